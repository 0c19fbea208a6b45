"""User-defined symbols through training, resume and translation."""

from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.config.schema import Config, load_config
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, METRICS
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

SYMBOLS = "vocabulary.symbols=<2yy>,<2zz>,<num>"


@pytest.fixture
def multilingual(small_corpus: Path) -> Path:
    """The config of the small corpus with a target tag before each line and masked numbers."""
    for split in ("train", "valid", "test"):
        for side, pattern in (("src", "{tag} {line} <num>"), ("tgt", "{line} <num>.")):
            path = small_corpus.parent / f"{split}.{side}"
            lines = path.read_text(encoding="utf-8").splitlines()
            text = (
                pattern.format(tag=("<2yy>", "<2zz>")[n % 2], line=line)
                for n, line in enumerate(lines)
            )
            path.write_text("".join(f"{text_line}\n" for text_line in text), encoding="utf-8")
    return small_corpus


def configured(path: Path, run: str, *overrides: str) -> Config:
    short = ("training.max_steps=8", "decoding.max_length=5", "training.validate_every=4", SYMBOLS)
    return load_config(path, [f"run_dir={path.parent / run}", *short, *overrides])


@pytest.mark.thorough
@one_quick(
    "kind",
    [
        ("vocabulary.type=unigram", "vocabulary.size=320", "vocabulary.sampling=0.4"),
        ("vocabulary.type=bpe", "vocabulary.size=320", "vocabulary.sampling=0.3"),
        ("vocabulary.type=word", "vocabulary.size=900"),
    ],
    ids=lambda kind: kind[0].partition("=")[2],
)
def test_symbols_are_kept_by_training_resume_and_translation(
    multilingual: Path, kind: tuple[str, ...]
) -> None:
    uninterrupted = train(configured(multilingual, "a", *kind), "cpu")
    train(configured(multilingual, "b", *kind, "training.max_steps=4"), "cpu")
    resumed = train(configured(multilingual, "b", *kind), "cpu", resume=True)
    for name in (METRICS, BEST):
        assert (resumed / name).read_bytes() == (uninterrupted / name).read_bytes()
    translator = Translator.load(resumed, device="cpu")
    src = translator.vocabularies.src
    tgt = translator.vocabularies.tgt
    assert src.symbols == tgt.symbols == ("<2yy>", "<2zz>", "<num>")
    assert translator.source.tags == ["<2yy>", "<2zz>"]
    (text,) = toy_pairs(1, seed=9)[0]
    line = "<2yy> <num> <2zz> " + " ".join([text] * 40)
    (translation,) = translator.translate([line], beam_size=1)
    tokens = [token.removeprefix("\u2581") for token in translation.src_tokens]
    assert translation.parts > 2
    assert tokens.count("<2yy>") == translation.parts  # a tag is repeated in each part
    assert tokens.count("<num>") == tokens.count("<2zz>") == 1
