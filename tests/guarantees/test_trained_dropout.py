"""Training with dropout by part of the model and of words: effect and exact resume."""

from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.trainings import stop_after

from seq2seq.config.schema import Config, load_config
from seq2seq.runs.layout import METRICS
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

PARTS = ("word", "embedding", "hidden", "output")
WORDS = ("model.dropout={word: 0.2, output: 0.1}", "training.losses.consistency=1")


def configured(corpus: Path, run: str, *overrides: str) -> Config:
    short = ("decoding.max_length=5", "training.max_steps=4", "training.log_every=1")
    return load_config(corpus, [*short, f"run_dir={corpus.parent / run}", *overrides])


@pytest.mark.thorough
def test_word_dropout_resumes_exactly(small_corpus: Path) -> None:
    complete = train(configured(small_corpus, "complete", *WORDS), "cpu")
    config = configured(small_corpus, "resumed", *WORDS)
    stop_after(2, config)
    resumed = train(config, "cpu", resume=True)
    assert (resumed / METRICS).read_bytes() == (complete / METRICS).read_bytes()


def rates(**parts: float) -> str:
    return f"model.dropout={{{', '.join(f'{part}: {rate}' for part, rate in parts.items())}}}"


@one_quick("part", PARTS)
def test_the_rate_of_each_part_has_an_effect(small_corpus: Path, part: str) -> None:
    off = dict.fromkeys(PARTS, 0.0)
    base = train(configured(small_corpus, "base", rates(**off)), "cpu")
    changed = train(configured(small_corpus, "changed", rates(**off | {part: 0.4})), "cpu")
    assert (base / METRICS).read_bytes() != (changed / METRICS).read_bytes()


@pytest.mark.thorough
def test_a_mapping_of_equal_rates_trains_as_the_number(small_corpus: Path) -> None:
    number = train(configured(small_corpus, "number", "model.dropout=0.2"), "cpu")
    parts = train(configured(small_corpus, "parts", rates(**dict.fromkeys(PARTS[1:], 0.2))), "cpu")
    assert (number / METRICS).read_bytes() == (parts / METRICS).read_bytes()
