"""Training that begins with what another run has learnt."""

from pathlib import Path

import pytest
import torch
from conftest import toy_pairs
from torch import Tensor

from seq2seq.checkpoint import LAST, load_best, own_weights
from seq2seq.config import Config, load_config
from seq2seq.errors import UserError
from seq2seq.preparation import prepare
from seq2seq.reporting import LOG
from seq2seq.run.tensor_file import read_tensors
from seq2seq.training import train

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq.reporting._tensorboard", lambda _: (None, ""))


@pytest.fixture
def first(small_corpus: Path) -> Path:
    """A run that has been trained."""
    return train(load_config(small_corpus, ["training.max_steps=4"])[0], "cpu")


def other(corpus: Path, *overrides: str) -> Config:
    """A config of another text, from which another vocabulary would be learnt."""
    folder = corpus.parent
    for side, lines in zip(("src", "tgt"), toy_pairs(90, seed=9), strict=True):
        (folder / f"new.{side}").write_text("".join(f"{line} q\n" for line in lines), "utf-8")
    files = [f"data.train.{side}={folder}/new.{side}" for side in ("src", "tgt")]
    return load_config(corpus, [*files, f"run_dir={folder}/second", *overrides])[0]


def weights(run: Path) -> dict[str, Tensor]:
    return own_weights(load_best(run, CPU)[0])


def test_it_begins_with_the_vocabulary_and_the_weights(small_corpus: Path, first: Path) -> None:
    free = ("model.dropout=0.4", "vocabulary.sampling=0.3", "training.average=0.9")
    run, notes = prepare(other(small_corpus, *free), CPU, resume=False, init_from=first)
    _, vocabularies, _, _ = load_best(first, CPU)
    assert run.vocabularies.src.model == vocabularies.src.model
    assert run.vocabularies.src.sampling == 0.3
    learnt = weights(first)
    for found in (own_weights(run.model), run.averages):
        assert found.keys() == learnt.keys()
        assert all(torch.equal(found[name], learnt[name]) for name in learnt)
    assert all(weight.requires_grad for weight in run.model.parameters())
    assert notes[-1] == f"begins with the vocabulary and the best weights of {first}"
    alone, _ = prepare(other(small_corpus, f"run_dir={first.parent}/third"), CPU, resume=False)
    assert alone.vocabularies.src.model != vocabularies.src.model


def test_it_learns_from_there_and_leaves_the_other_as_it_was(
    small_corpus: Path, first: Path
) -> None:
    before, learnt = (first / LAST).read_bytes(), weights(first)
    config = other(small_corpus, "training.max_steps=2", "training.learning_rate=1e-6")
    second = train(config, "cpu", init_from=first)
    assert (first / LAST).read_bytes() == before
    assert f"begins with the vocabulary and the best weights of {first}" in (
        second / LOG
    ).read_text("utf-8")
    for name, weight in weights(second).items():
        assert torch.allclose(weight, learnt[name], atol=1e-5)
    assert any(not torch.equal(weights(second)[name], learnt[name]) for name in learnt)


def test_a_run_that_goes_on_goes_on_with_its_own(small_corpus: Path, first: Path) -> None:
    """As with the same command and --resume; the other run need not be there any more."""
    decay = "training.decay=constant"
    whole = train(
        other(small_corpus, "training.max_steps=4", f"run_dir={first.parent}/whole", decay),
        "cpu",
        init_from=first,
    )
    train(other(small_corpus, "training.max_steps=2", decay), "cpu", init_from=first)
    first.rename(first.with_name("away"))
    config = other(small_corpus, "training.max_steps=4", decay)
    parts = train(config, "cpu", resume=True, init_from=first)
    expected = read_tensors(whole / LAST)
    found = read_tensors(parts / LAST)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_it_may_take_the_place_of_the_other(small_corpus: Path, first: Path) -> None:
    learnt = weights(first)
    config = other(small_corpus, f"run_dir={first}", "training.learning_rate=1e-6")
    train(config, "cpu", overwrite=True, init_from=first)
    assert all(torch.allclose(each, learnt[n], atol=1e-3) for n, each in weights(first).items())


def test_another_model_or_vocabulary_is_refused(small_corpus: Path, first: Path) -> None:
    config = other(small_corpus, "model.hidden_size=24", "vocabulary.type=bpe")
    with pytest.raises(UserError) as refused:
        train(config, "cpu", init_from=first)
    assert str(refused.value) == (
        f"--init-from {first}: its weights are of another model than the config's; set these keys "
        "as it has them:\n  vocabulary.type: unigram -> bpe\n  model.hidden_size: 20 -> 24"
    )
    assert not config.run_dir.exists()


def test_location_scores_are_for_so_many_positions(small_corpus: Path) -> None:
    luong = ("model.decoder=luong", "model.attention_size=null", "model.score=location")
    short = ("training.max_steps=1", f"run_dir={small_corpus.parent}/location")
    first = train(load_config(small_corpus, [*luong, *short])[0], "cpu")
    longer = other(small_corpus, *luong, "training.max_length=50")
    with pytest.raises(UserError, match=r"training\.max_length: 40 -> 50"):
        train(longer, "cpu", init_from=first)
    train(other(small_corpus, *luong, *short[:1]), "cpu", init_from=first)
