"""Diagnosis of a run: every kind of failure is named, and a sound run gets no warning."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import toy_pairs

from seq2seq.config.schema import Config, load_config
from seq2seq.data.vocabulary.vocabulary import UNK_ID, Vocabularies
from seq2seq.runs.layout import LOG, METRICS
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.training.diagnosis import FEW_STEPS, UNKNOWN, Metrics, ValidationResult, diagnose
from seq2seq.training.loop import train

SOURCES, REFERENCES = toy_pairs(40, seed=5)
DEMO = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"


def configured(*overrides: str) -> Config:
    """The demo's config, with overrides."""
    return load_config(DEMO, overrides)[0]


CONFIG = configured()


def figures(
    valid: Sequence[float] = (5.0, 3.0, 2.0),
    train: Sequence[float] = (6.0, 4.0, 3.0, 2.5),
    bleu: Sequence[float] = (1.0, 12.0, 30.0),
    every: int = 1000,
) -> Metrics:
    """The lines of metrics.jsonl of a training with these losses and scores."""
    lines = [{"step": every * n, "train_loss": loss} for n, loss in enumerate(train, start=1)]
    for n, (loss, score) in enumerate(zip(valid, bleu, strict=True), start=1):
        lines.append({"step": every * n, "valid_loss": loss, "valid_bleu": score})
    return lines


def nearly(lines: Sequence[str]) -> list[str]:
    """Return the references with a wrong word here and there, as a fair model translates."""
    generator = random.Random(3)
    return [
        " ".join("zaza" if generator.random() < 0.2 else word for word in line.split())
        for line in lines
    ]


def diagnose_run(
    hypotheses: Sequence[str], metrics: Metrics | None = None, config: Config = CONFIG
) -> list[str]:
    outcome = ValidationResult(
        SOURCES, REFERENCES, hypotheses, figures() if metrics is None else metrics
    )
    return diagnose(outcome, config)


def only(hypotheses: Sequence[str], metrics: Metrics | None = None, config: Config = CONFIG) -> str:
    (complaint,) = diagnose_run(hypotheses, metrics, config)
    assert "\n" not in complaint
    return complaint


POOR = figures(bleu=(0.0, 0.1, 0.4))
RISING = figures(valid=(3.0, 3.5, 4.0), bleu=(11.0, 11.0, 11.0))
FAR = figures(valid=(7.0, 6.0, 6.5), train=(6.0, 3.0, 2.0, 1.5), bleu=(2.5, 2.5, 2.5))


# ---------------------------------------------------------------------------------------- in peace


def test_a_sound_run_is_left_in_peace() -> None:
    assert diagnose_run(nearly(REFERENCES)) == []
    assert diagnose_run(REFERENCES) == []


@pytest.mark.parametrize(
    "metrics",
    [
        pytest.param(figures(valid=(3.0, 2.0, 2.4)), id="learnt by heart only late"),
        pytest.param(figures(valid=(2.1,), bleu=(55.0,)), id="one validation"),
        pytest.param(figures(train=()), id="too short for a line of the log"),
        pytest.param(figures(train=(1.5, 1.5, 1.5, 1.5)), id="converged before the first line"),
        pytest.param(figures(valid=(2.9, 2.8, 2.8), train=(3, 2, 1.5, 1.3)), id="small data"),
        pytest.param([], id="nothing yet"),
    ],
)
def test_figures_that_sound_runs_have_are_left_in_peace(metrics: Metrics) -> None:
    assert diagnose_run(nearly(REFERENCES), metrics) == []


def test_nothing_is_said_of_texts_where_there_are_none() -> None:
    assert diagnose_run([]) == []
    assert diagnose(ValidationResult(["a"] * 3, ["b"] * 3, [""] * 3, figures()), CONFIG) == []


def test_what_the_references_do_as_well_is_no_fault() -> None:
    repeated = ["tra la la la la la la la la la"] * 20 + list(REFERENCES[:20])
    assert diagnose(ValidationResult(SOURCES, repeated, repeated, figures()), CONFIG) == []
    blank = [""] * 15 + list(REFERENCES[15:])
    assert diagnose(ValidationResult(SOURCES, blank, blank, figures()), CONFIG) == []
    assert diagnose(ValidationResult(blank, REFERENCES, blank, figures()), CONFIG) == []
    unknown = [f"{UNKNOWN} ba {n}" for n in range(40)]
    assert diagnose(ValidationResult(SOURCES, unknown, unknown, figures()), CONFIG) == []
    assert diagnose(ValidationResult(SOURCES, SOURCES, SOURCES, figures()), CONFIG) == []


# ------------------------------------------------------------------------------- the translations


def test_empty_translations_are_named() -> None:
    text = only([""] * 10 + REFERENCES[10:])
    assert "25% of the last validation's translations are empty" in text
    assert "training.learning_rate" in text


def test_one_output_for_every_input_is_named() -> None:
    text = only(["ba da."] * 30 + REFERENCES[30:], POOR)
    assert "75% of the last validation's translations are one and the same" in text
    assert "seq2seq check" in text


@pytest.mark.parametrize(
    "loop", [" na na na na na", " so it goes so it goes so it goes so it goes"]
)
def test_endless_repetition_is_named(loop: str) -> None:
    text = only([line + loop for line in REFERENCES])
    assert "100% of the last validation's translations repeat themselves" in text
    assert "training.max_epochs" in text


def test_unknown_words_are_named(tiny_vocabularies: Vocabularies) -> None:
    assert tiny_vocabularies.tgt.decode([UNK_ID]).strip() == UNKNOWN
    text = only([" ".join(UNKNOWN for _ in line.split()) for line in REFERENCES], POOR)
    assert (
        f"100% of the words of the last validation's translations are unknown ({UNKNOWN})" in text
    )
    assert "vocabulary.size" in text


def test_copies_of_the_source_are_named() -> None:
    text = only(SOURCES, POOR)
    assert "copies of their source" in text
    assert "data.train.tgt" in text


@pytest.mark.parametrize(("factor", "word"), [(0.4, "short"), (2.5, "long")])
def test_lengths_far_from_the_references_are_named(factor: float, word: str) -> None:
    hypotheses = [(line * 3)[: int(factor * len(line))] for line in REFERENCES]
    ratio = sum(map(len, hypotheses)) / sum(map(len, REFERENCES))
    assert f"too {word}, {ratio:.2f} times as long as the references" in only(hypotheses)


# --------------------------------------------------------------------------------------- the scores


def test_a_falling_loss_without_bleu_is_named() -> None:
    text = only(list(reversed(REFERENCES)), POOR)
    assert "the validation loss fell from 5.00 to 2.00, but BLEU is 0.4" in text
    assert "data.valid.tgt" in text


def test_a_loss_that_stays_without_bleu_is_named() -> None:
    slow = figures(valid=(5.0, 4.9, 4.8), train=(6.0, 5.5, 5.2, 5.0), bleu=(0.0, 0.1, 0.4))
    text = only(list(reversed(REFERENCES)), slow)
    assert "hardly fallen" in text
    assert "seq2seq check" in text


def test_text_without_spaces_in_an_alphabet_explains_a_low_bleu() -> None:
    references = ["thequickbrownfoxjumpsoverthelazydog", "acatsatonthematallday"] * 6
    hypotheses = ["thequickredfoxrunsoverthelazydog", "adogsatonthematallday"] * 6
    outcome = ValidationResult([str(n) for n in range(12)], references, hypotheses, POOR)
    (text,) = diagnose(outcome, CONFIG)
    assert "hardly any spaces" in text
    assert "--tokenize char" in text


def test_a_tokenizer_that_knows_the_script_is_not_blamed() -> None:
    references = ["彼は昨日新しい本を三冊買いました。", "猫が静かに窓の外を見ていますよ。"] * 6
    hypotheses = ["彼は昨日古い本を二冊買いましたよ。", "犬が静かに窓の外を見ていますね。"] * 6
    outcome = ValidationResult([str(n) for n in range(12)], references, hypotheses, POOR)
    (text,) = diagnose(outcome, CONFIG)
    assert "spaces" not in text
    assert "--tokenize" not in text


def test_a_short_training_is_the_first_cause_to_be_named() -> None:
    every = FEW_STEPS // 10
    early = figures(bleu=(0.0, 0.1, 0.4), every=every)
    assert f"{4 * every} steps are few" in only(list(reversed(REFERENCES)), early)
    assert f"{4 * every} steps are few" in only(["ba."] * 40, early)


# --------------------------------------------------------------------------------------- the losses


@pytest.mark.parametrize(
    ("metrics", "words", "key"),
    [
        (
            figures(train=(8.1, 8.0, 8.2, 8.1), bleu=(2.5, 2.5, 2.5)),
            "the training loss has hardly fallen (8.10 to 8.10)",
            "training.learning_rate",
        ),
        (
            RISING,
            "risen from the first validation (3.00 to 4.00) while the training loss fell (6.00 to",
            "model.dropout",
        ),
        (
            FAR,
            "the validation loss (6.00 at its best) is far above the training loss (1.50)",
            "data.valid",
        ),
    ],
)
def test_losses_that_go_wrong_are_named(metrics: Metrics, words: str, key: str) -> None:
    text = only(nearly(REFERENCES), metrics)
    assert words in text
    assert key in text


def test_a_diverged_training_is_named_and_no_data_is_blamed() -> None:
    diverged = figures(valid=(9.0, 5e5, 3e6), train=(9.0, 9.5, 1e5, 4e6), bleu=(0.0, 0.0, 0.0))
    for hypotheses in (["ba da."] * 40, [""] * 40, REFERENCES):
        text = only(hypotheses, diverged)
        assert "the training loss rose from 9.00 to 4000000.00, so the training diverged" in text
        assert "training.learning_rate (now 0.005)" in text
        assert "data" not in text


@pytest.mark.parametrize("metrics", [RISING, FAR])
def test_validation_on_the_training_text_is_never_called_overfitting(metrics: Metrics) -> None:
    hypotheses = nearly(REFERENCES)
    seen = ValidationResult(SOURCES, REFERENCES, hypotheses, metrics, lambda: 0.9)
    found = " ".join(diagnose(seen, CONFIG))
    assert "overfits" not in found
    assert "may differ" not in found
    assert ("90% of the validation pairs are in the training text" in found) == (metrics is RISING)
    unseen = ValidationResult(SOURCES, REFERENCES, hypotheses, metrics, lambda: 0.4)
    assert diagnose(unseen, CONFIG) == diagnose_run(hypotheses, metrics) != []


def test_losses_that_rise_together_are_not_called_overfitting() -> None:
    """As label smoothing, late in training, makes a model less certain of what it knows."""
    metrics = figures(valid=(0.30, 0.35, 0.40), train=(0.5, 0.51, 0.52, 0.53), bleu=(90, 91, 92))
    for line, objective in zip(metrics, (1.9, 1.8, 1.7, 1.6), strict=False):
        line["train_objective"] = objective
    assert diagnose_run(nearly(REFERENCES), metrics) == []


# --------------------------------------------------------------------------------------- the config

REPEATED = [f"{line} na na na na na" for line in REFERENCES]
UNKNOWN_WORDS = [" ".join(UNKNOWN for _ in line.split()) for line in REFERENCES]
SHORT = [line[: len(line) * 2 // 5] for line in REFERENCES]
WORDS = ("vocabulary.type=word", "vocabulary.joint=false")


@pytest.mark.parametrize(
    ("hypotheses", "metrics", "overrides", "advised", "not_advised"),
    [
        (REPEATED, None, ["model.decoder=none"], ["model.decoder=bahdanau", "no attention"], []),
        (REPEATED, None, ["model.decoder=luong"], ["model.score=coverage"], ["model.decoder"]),
        (
            REPEATED,
            None,
            ["model.decoder=luong", "model.input_feeding=false"],
            ["model.input_feeding=true"],
            ["model.decoder", "model.score"],
        ),
        (REPEATED, None, [], ["model.score=coverage", "now 0.005"], ["model.decoder"]),
        (REPEATED, None, ["model.score=coverage"], [], ["model.decoder", "model.score"]),
        (REPEATED, None, [], ["max_epochs (now 6)", "max_minutes (now 2.2)"], ["max_steps"]),
        (
            REPEATED,
            None,
            ["training.max_epochs=null", "training.max_steps=900", "training.patience=3"],
            ["max_steps (now 900)", "patience (now 3)"],
            ["max_epochs"],
        ),
        (UNKNOWN_WORDS, POOR, [], ["size (now 2400)"], ["vocabulary.type", "replace_unknown"]),
        (UNKNOWN_WORDS, POOR, WORDS, ["vocabulary.type=unigram", "replace_unknown"], []),
        (
            UNKNOWN_WORDS,
            POOR,
            [*WORDS, "decoding.replace_unknown=true"],
            ["vocabulary.type=unigram"],
            ["replace_unknown"],
        ),
        (
            UNKNOWN_WORDS,
            POOR,
            [*WORDS, "model.decoder=none"],
            ["vocabulary.type=unigram"],
            ["replace_unknown"],
        ),
        (nearly(REFERENCES), RISING, [], ["dropout (now 0.1)", "hidden_size (now 192)"], []),
        (nearly(REFERENCES), RISING, ["model.dropout=0.5"], ["hidden_size"], ["dropout"]),
        (nearly(REFERENCES), FAR, ["model.dropout=0.6"], ["data.valid"], ["dropout"]),
        (SHORT, None, [], [], ["decoding.max_length"]),
        (SHORT, None, ["decoding.max_length=9"], ["raise decoding.max_length (now 9)"], []),
        (SOURCES, POOR, [], ["data.train.tgt"], ["file"]),
        (
            SOURCES,
            POOR,
            ["data.train.src=null", "data.train.tgt=null", "data.train.file=a.tsv"],
            ["data.train.file"],
            ["data.train.tgt"],
        ),
    ],
)
def test_advice_names_only_what_the_config_leaves_open(
    hypotheses: Sequence[str],
    metrics: Metrics | None,
    overrides: Sequence[str],
    advised: Sequence[str],
    not_advised: Sequence[str],
) -> None:
    text = only(hypotheses, metrics, configured(*overrides))
    for each in advised:
        assert each in text
    for each in not_advised:
        assert each not in text


def test_attention_is_not_waited_for_without_attention() -> None:
    early = figures(bleu=(0.0, 0.1, 0.4), every=20)
    text = only(["ba."] * 40, early, configured("model.decoder=none"))
    assert "80 steps are few" in text
    assert "attention" not in text


# -------------------------------------------------------------------------------------- of the run


def test_a_training_that_ends_too_early_says_so_in_its_log(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.training.reporting.open_board", lambda _: (None, ""))
    config, _ = load_config(small_corpus, ["decoding.max_length=9", "training.max_epochs=1"])
    run = train(config, "cpu")
    lines = (run / LOG).read_text(encoding="utf-8").splitlines()
    place = next(n for n, line in enumerate(lines) if "Best validation BLEU" in line)
    said = lines[place + 1 :]
    assert said
    assert all(" warning: " in line for line in said)
    assert "steps are few" in said[0]


def test_the_metrics_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 3, "train_loss": 2.5}\n{"step": 4}\n', "utf-8")
    assert read_metrics(tmp_path) == [{"step": 3, "train_loss": 2.5}, {"step": 4}]
