"""Training with copying on a corpus with names: names are invented, and resumed exactly."""

from pathlib import Path

import pytest
from test_loop import BASE, fingerprint, trained

from seq2seq.inference.translator import Translator

COPYING = (*BASE, "model.copy=true", "vocabulary.sampling=0.3")


@pytest.fixture
def named_corpus(small_corpus: Path) -> Path:
    """The small corpus, with a name at the start of each training line."""
    for side in ("src", "tgt"):
        (path,) = small_corpus.parent.glob(f"train*.{side}")
        lines = path.read_text(encoding="utf-8").splitlines()
        named = [f"{('Tomek', 'Maria')[n % 2]} {line}" for n, line in enumerate(lines)]
        path.write_text("\n".join(named) + "\n", encoding="utf-8")
    return small_corpus


def test_invented_names_change_the_training_and_nothing_is_random(named_corpus: Path) -> None:
    invented = (*COPYING, "training.invented_names=0.9")
    prints = [
        fingerprint(trained(named_corpus, *keys, run=f"run{n}"))
        for n, keys in enumerate((COPYING, invented, invented))
    ]
    assert prints[0] != prints[1]
    assert prints[1] == prints[2]


def test_names_are_invented_without_sampled_segmentations(named_corpus: Path) -> None:
    plain = fingerprint(trained(named_corpus, *BASE, run="plain"))
    keys = (*BASE, "training.invented_names=0.9")
    assert fingerprint(trained(named_corpus, *keys, run="invented")) != plain


def test_a_run_with_copying_translates(named_corpus: Path) -> None:
    run = trained(named_corpus, *COPYING)
    translations = Translator.load(run, device="cpu").translate(["Tomek ba", "Maria."], 3)
    assert all(each.text and each.attention is not None for each in translations)
