"""Warm start: training initialised from another run."""

from pathlib import Path

import pytest
import torch
from cases.toy_text import toy_pairs
from torch import Tensor

from seq2seq.config.schema import Config, load_config
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.runs.checkpoint import load_model, read_warm_start, start_note
from seq2seq.runs.layout import BEST, LAST, LOG
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runs.tensor_file import read_tensors
from seq2seq.runs.training_state import open_folder
from seq2seq.runtime.errors import UserError
from seq2seq.text.learned_profile import describe_source
from seq2seq.tools.analysis.check.check import check
from seq2seq.tools.averaging import average
from seq2seq.training import validation
from seq2seq.training.loop import train
from seq2seq.training.preparation import prepare

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

CPU = torch.device("cpu")


@pytest.fixture
def first(small_corpus: Path) -> Path:
    """Train a run."""
    return train(load_config(small_corpus, ["training.max_steps=4"]), "cpu")


def second_config(corpus: Path, *overrides: str) -> Config:
    """Return a config with another text, on which another vocabulary would be trained."""
    folder = corpus.parent
    for side, lines in zip(("src", "tgt"), toy_pairs(90, seed=9), strict=True):
        (folder / f"new.{side}").write_text("".join(f"{line} q\n" for line in lines), "utf-8")
    files = [f"data.train.{side}={folder}/new.{side}" for side in ("src", "tgt")]
    return load_config(corpus, [*files, f"run_dir={folder}/second", *overrides])


def weights(run: Path) -> dict[str, Tensor]:
    return named_weights(load_model(run, CPU).model)


def test_a_warm_start_has_the_vocabulary_and_weights_of_the_run(
    small_corpus: Path, first: Path
) -> None:
    overrides = ("model.dropout=0.4", "vocabulary.sampling=0.3", "training.average=0.9")
    run, notes = prepare(second_config(small_corpus, *overrides), CPU, init_from=first)
    vocabularies = load_model(first, CPU).vocabularies
    assert run.data.vocabularies.src.model == vocabularies.src.model
    assert run.data.vocabularies.src.sampling == 0.3
    first_weights = weights(first)
    for initial in (named_weights(run.model), run.averages):
        assert initial.keys() == first_weights.keys()
        assert all(torch.equal(initial[name], first_weights[name]) for name in first_weights)
    assert all(weight.requires_grad for weight in run.model.parameters())
    assert notes[-1] == f"initialised from the vocabulary and the best weights of {first}"
    cold_start, _ = prepare(second_config(small_corpus, f"run_dir={first.parent}/third"), CPU)
    assert cold_start.data.vocabularies.src.model != vocabularies.src.model


def test_training_starts_from_these_weights_and_leaves_the_run_unchanged(
    small_corpus: Path, first: Path
) -> None:
    state_before = (first / LAST).read_bytes()
    first_weights = weights(first)
    config = second_config(small_corpus, "training.max_steps=2", "training.learning_rate=1e-6")
    second = train(config, "cpu", init_from=first)
    assert (first / LAST).read_bytes() == state_before
    assert f"initialised from the vocabulary and the best weights of {first}" in (
        second / LOG
    ).read_text("utf-8")
    for name, weight in weights(second).items():
        assert torch.allclose(weight, first_weights[name], atol=1e-5)
    assert any(
        not torch.equal(weights(second)[name], first_weights[name]) for name in first_weights
    )


@pytest.mark.thorough
def test_a_resumed_run_continues_with_its_own_weights(small_corpus: Path, first: Path) -> None:
    """The same command with --resume works after the first run was removed."""
    decay = "training.decay=constant"
    uninterrupted = train(
        second_config(
            small_corpus, "training.max_steps=4", f"run_dir={first.parent}/uninterrupted", decay
        ),
        "cpu",
        init_from=first,
    )
    train(second_config(small_corpus, "training.max_steps=2", decay), "cpu", init_from=first)
    first.rename(first.with_name("away"))
    config = second_config(small_corpus, "training.max_steps=4", decay)
    parts = train(config, "cpu", resume=True, init_from=first)
    expected = read_tensors(uninterrupted / LAST)
    resumed = read_tensors(parts / LAST)
    assert resumed.keys() == expected.keys()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)


@pytest.mark.thorough
def test_initial_weights_remain_the_best_if_training_makes_them_worse(
    small_corpus: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The initial weights are validated first, so that a high learning rate cannot lose them."""
    real = validation.valid_bleu
    monkeypatch.setattr(validation, "valid_bleu", lambda run: real(run) and 0.0)  # the loss decides
    harm = ("training.max_steps=2", "training.learning_rate=1", "training.warmup_steps=0")
    second = train(
        second_config(small_corpus, *harm, "training.patience=null"), "cpu", init_from=first
    )
    first_weights = weights(first)
    assert all(torch.equal(weight, first_weights[name]) for name, weight in weights(second).items())
    initial, *later_lines = read_metrics(second)
    assert initial["step"] == 0
    assert all(line.get("valid_loss", 1e9) > initial["valid_loss"] for line in later_lines)
    log = (second / LOG).read_text("utf-8")
    assert log.count("(best so far)") == 1
    assert f"at step 0: {second}" in log
    assert load_model(second, CPU).config.run_dir == second
    again = second_config(small_corpus, *harm[1:], "training.patience=null", "training.max_steps=3")
    train(again, "cpu", resume=True)
    assert all(torch.equal(weight, first_weights[name]) for name, weight in weights(second).items())


def test_the_run_folder_itself_is_refused(small_corpus: Path, first: Path) -> None:
    first_weights = weights(first)
    config = second_config(small_corpus, f"run_dir={first.parent}/x/../{first.name}")
    first.with_name("x").mkdir()
    with pytest.raises(UserError, match=r"is run_dir itself; set another run_dir"):
        train(config, "cpu", overwrite=True, init_from=first)
    assert all(torch.equal(weight, first_weights[name]) for name, weight in weights(first).items())


@pytest.mark.thorough
def test_the_log_reports_other_languages(small_corpus: Path, first: Path) -> None:
    config = second_config(small_corpus, "data.src_lang=nl", "data.tgt_lang=en")
    start = read_warm_start(first, config)
    first_data = load_model(first, CPU).config.data
    note = start_note(start, config)
    assert note.endswith(
        f"of {first}, which translates {first_data.src_lang} to {first_data.tgt_lang}"
    )


@pytest.mark.thorough
def test_check_uses_the_warm_start_too(small_corpus: Path, first: Path) -> None:
    """A vocabulary of that size could not be trained on so little text."""
    folder = small_corpus.parent
    for side in ("src", "tgt"):
        (folder / f"few.{side}").write_text("a b\nb a\n" * 8, "utf-8")
    files = [f"data.train.{side}={folder}/few.{side}" for side in ("src", "tgt")]
    config = second_config(small_corpus, *files)
    with pytest.raises(UserError, match=r"vocabulary\.size"):
        next(check(config, "cpu"))
    part = next(check(config, "cpu", first))
    assert part.key == "texts"
    assert isinstance(part.value, dict)
    assert list(part.value) == ["train", "valid", "test"]
    assert not config.run_dir.exists()


def test_a_run_without_weights_is_refused_by_name(small_corpus: Path, first: Path) -> None:
    config = second_config(small_corpus)
    (first / BEST).unlink()
    with pytest.raises(UserError, match=rf"^init_from={first}: has no {BEST}, .* {LAST} is"):
        train(config, "cpu", init_from=first)


@pytest.mark.thorough
def test_another_model_is_refused(small_corpus: Path, first: Path) -> None:
    config = second_config(small_corpus, "model.hidden_size=24", "vocabulary.type=bpe")
    with pytest.raises(UserError) as refused:
        train(config, "cpu", init_from=first)
    assert str(refused.value) == (
        f"init_from={first}: its weights do not fit the config; set these keys to its values:"
        "\n  vocabulary.type: unigram -> bpe\n  model.hidden_size: 20 -> 24"
    )
    assert not config.run_dir.exists()


@pytest.mark.thorough
def test_location_scores_need_the_same_number_of_positions(small_corpus: Path) -> None:
    luong = ("model.decoder=luong", "model.attention_size=null", "model.score=location")
    short = ("training.max_steps=1", f"run_dir={small_corpus.parent}/location")
    first = train(load_config(small_corpus, [*luong, *short]), "cpu")
    more_positions = second_config(small_corpus, *luong, "data.max_length=50")
    with pytest.raises(UserError, match=r"data\.max_length: 40 -> 50"):
        train(more_positions, "cpu", init_from=first)
    train(second_config(small_corpus, *luong, *short[:1]), "cpu", init_from=first)


def written(corpus: Path, folder: str, src: list[str], tgt: list[str]) -> list[str]:
    """Write a training text; return the overrides that name it and a run folder."""
    place = corpus.parent
    for side, lines in (("src", src), ("tgt", tgt)):
        (place / f"{folder}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files = [f"data.train.{side}={place}/{folder}.{side}" for side in ("src", "tgt")]
    return [*files, f"run_dir={place}/{folder}"]


# Lines that a record of the training text changes before search.
AWKWARD = [
    *("danu buri. kime danu.", "1. Danu buri.", "danu\u00a0buri", "12345", "Danu buri. (1)"),
    *("danu buri 1990. *", "\u2022 danu", "danu buri\u3002", "DANU BURI!"),
]


@pytest.mark.parametrize("count", [60, 160])
def test_a_warm_start_that_learns_nothing_translates_as_its_base(
    small_corpus: Path, first: Path, count: int
) -> None:
    """Whatever the new text: these are words, without final marks, in another form."""
    words = [f"{chr(97 + n % 26)}\u00e7 {n}" for n in range(count)]
    config = load_config(
        small_corpus,
        [
            *written(small_corpus, "words", words, words),
            *("training.max_steps=2", "training.learning_rate=1e-30", "training.warmup_steps=0"),
        ],
    )
    base = Translator.load(first, device="cpu")
    tuned = Translator.load(train(config, "cpu", init_from=first), device="cpu")
    for beam_size in (1, 3):
        translations = [t.translate(AWKWARD, beam_size) for t in (base, tuned)]
        assert [t.text for t in translations[0]] == [t.text for t in translations[1]]
    assert [t.parts for t in translations[0]] == [t.parts for t in translations[1]]
    own_characters = set("".join(words)) if count > 100 else set()
    assert set(tuned.source.characters) == set(base.source.characters) | own_characters
    assert all(tuned.limit(n) >= base.limit(n) for n in range(40))


def test_habits_are_adopted_where_validation_is_no_worse(
    small_corpus: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later validations and a resumed run keep them, and others remain pending."""
    src, tgt = toy_pairs(150, seed=3)
    lines = [f"{line} {src[0].capitalize()}" for line in src]
    overrides = written(small_corpus, "tuned", lines, tgt)
    valid = written(small_corpus, "valid-of-tuned", lines[:30], tgt[:30])[:2]
    overrides += [text.replace("data.train", "data.valid") for text in valid]
    config = load_config(small_corpus, [*overrides, "training.validate_every=2"])
    scores = {1: [30.0, 30.0, 30.0], 2: [20.0, 30.0, 30.0]}  # by sentences of a line

    def measured(translator: Translator, *_: object) -> tuple[float, list[str]]:
        steps.append(translator.source.sentences)
        return scores[translator.source.sentences].pop(0), []

    steps = list[int]()
    monkeypatch.setattr(validation, "greedy_bleu", measured)
    session, _ = prepare(config, CPU, init_from=first)
    assert (session.data.source.sentences, session.data.joined.sentences) == (1, 2)
    assert validation.adopt_habits(session) == []
    (note,) = validation.adopt_habits(session)
    assert note.startswith("as in the training text, more sentences in a line (")
    assert session.data.source.sentences == 2
    assert validation.adopt_habits(session) == []
    assert steps == [1, 2, 1, 2]
    session.save_state()
    with open_folder(config, resume=True, overwrite=False) as folder:
        resumed, _ = prepare(config, CPU, folder)
        assert resumed.data.source == session.data.source
        assert resumed.data.joined == session.data.joined


def test_a_student_has_the_record_of_its_own_text_alone(small_corpus: Path) -> None:
    src, _ = toy_pairs(120, seed=5)
    student, _ = prepare(load_config(small_corpus, written(small_corpus, "own", src, src)), CPU)
    assert student.data.joined is None
    assert student.data.source == describe_source(src, src)


def test_combined_runs_have_the_record_of_both_texts(small_corpus: Path, first: Path) -> None:
    src, tgt = toy_pairs(150, seed=6)
    lines = [f"{line} \u00e7 (1)" for line in src]
    config = load_config(
        small_corpus, [*written(small_corpus, "tails", lines, tgt), "training.max_steps=2"]
    )
    runs = [first, train(config, "cpu", init_from=first)]
    records = [load_model(run, CPU) for run in runs]
    characters = {character for run in records for character in run.source.characters}
    average(runs, small_corpus.parent / "average", "cpu")
    combinations = [
        Translator.load(*runs, device="cpu"),
        Translator.load(*runs[::-1], device="cpu"),
        Translator.load(small_corpus.parent / "average", device="cpu"),
    ]
    for translator in combinations:
        assert set(translator.source.characters) == characters
        assert translator.limit.ratio == max(run.limit.ratio for run in records)
