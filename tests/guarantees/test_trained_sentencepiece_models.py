"""A run with an existing SentencePiece model holds its own copy, and `auto` sizes are resumed."""

import shutil
from pathlib import Path

import pytest
from cases.sentencepiece_models import trained
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.config.schema import Config, load_config
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, METRICS
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")


def configured(path: Path, run: str, *overrides: str) -> Config:
    short = ("decoding.max_length=5", "training.validate_every=4")
    return load_config(path, [f"run_dir={path.parent / run}", *short, *overrides])


@pytest.mark.thorough
def test_a_started_run_no_longer_needs_the_given_model(small_corpus: Path) -> None:
    path = small_corpus.parent / "given.model"
    trained(path, model_type="bpe")
    keys = (f"vocabulary.model={path}", "vocabulary.sampling=0.2")
    uninterrupted = train(configured(small_corpus, "a", *keys), "cpu")
    run = train(configured(small_corpus, "b", *keys, "training.max_steps=4"), "cpu")
    shutil.move(path, path.with_name("moved.model"))
    train(configured(small_corpus, "b", *keys), "cpu", resume=True)
    for name in (METRICS, BEST):
        assert (run / name).read_bytes() == (uninterrupted / name).read_bytes()
    shutil.move(run, small_corpus.parent / "elsewhere")
    lines = toy_pairs(5, seed=4)[0]
    texts_of_runs = [
        [translation.text for translation in Translator.load(folder, device="cpu").translate(lines)]
        for folder in (uninterrupted, small_corpus.parent / "elsewhere")
    ]
    assert texts_of_runs[0] == texts_of_runs[1]


@pytest.mark.thorough
@one_quick("kind", ["unigram", "word"])
def test_an_automatic_size_is_logged_and_resumed(small_corpus: Path, kind: str) -> None:
    keys = ("vocabulary.size=auto", f"vocabulary.type={kind}")
    uninterrupted = train(configured(small_corpus, "a", *keys), "cpu")
    run = train(configured(small_corpus, "b", *keys, "training.max_steps=4"), "cpu")
    size = len(Translator.load(run, device="cpu").vocabularies.src)
    log = (run / "train.log").read_text(encoding="utf-8")
    assert f"vocabulary.size: auto chose {size:,} tokens" in log
    train(configured(small_corpus, "b", *keys), "cpu", resume=True)
    for name in (METRICS, BEST):
        assert (run / name).read_bytes() == (uninterrupted / name).read_bytes()
