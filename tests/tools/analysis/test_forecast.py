"""Forecast of training: exact counts, times measured in real steps, and no files written."""

from pathlib import Path

import pytest
import torch

from seq2seq.config.schema import load_config
from seq2seq.data.batching import EpochOrder, encode_pairs
from seq2seq.data.corpus import read_pairs, usable
from seq2seq.data.length_windows import Rows
from seq2seq.data.padding import Batch
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.runtime.errors import RunError
from seq2seq.tools.analysis.check import forecast as module
from seq2seq.tools.analysis.check.forecast import forecast
from seq2seq.training.batches import batch_of
from seq2seq.training.session import TrainingSession, new_session, session_data

TOKENS = 450  # training.batch_tokens of the small corpus


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 3)
    monkeypatch.setattr(module, "WARM_UP_STEPS", 2)


def run_of(
    corpus: Path, *overrides: str, sizes: tuple[int, ...] = (), weights: tuple[float, ...] = ()
) -> TrainingSession:
    config = load_config(corpus, overrides)
    train, valid = (usable(read_pairs(text))[0] for text in (config.data.train, config.data.valid))
    vocabularies = train_vocabularies(config.vocabulary, train.src, train.tgt)
    longest = config.data.max_length
    pairs = encode_pairs(train.src, train.tgt, vocabularies, longest, sizes, weights)
    return new_session(
        config, torch.device("cpu"), session_data(config, vocabularies, pairs, valid)
    )


def test_the_forecast_equals_independent_counts(small_corpus: Path) -> None:
    run = run_of(small_corpus, "training.accumulate=3", "training.average=0.9")
    batches = len(EpochOrder(run.data.train, TOKENS, 1, 0))
    tokens = sum(len(ids) + 1 for ids in run.data.train.tgt)
    costs = forecast(run)
    assert costs.parameters == sum(weight.numel() for weight in run.model.parameters())
    # weight, gradient, average and two moments, in float32; Adam has a step count per weight
    weights = len(list(run.model.parameters()))
    assert costs.state_bytes == 5 * 4 * costs.parameters + 4 * weights
    assert costs.steps_per_epoch == -(-batches // 3)
    assert costs.total_steps == 2 * costs.steps_per_epoch
    assert costs.epoch_seconds * costs.tokens_per_second == pytest.approx(tokens)
    assert costs.measured_steps == 3
    assert run.progress.step == 5
    assert costs.peak_bytes is None or costs.peak_bytes > costs.state_bytes
    assert costs.device == "cpu"


def test_an_epoch_of_weighted_corpora_has_the_tokens_that_it_draws(small_corpus: Path) -> None:
    run = run_of(small_corpus, sizes=(10, 1000), weights=(1.0, 0.25))
    pairs = run.data.train
    rows = [int(row) for batch in EpochOrder(pairs, TOKENS, 1, 0) for row in batch]
    assert {*range(10)} < {*rows}
    assert len(rows) == pytest.approx(10 + (len(pairs) - 10) / 4, abs=1)
    costs = forecast(run)
    tokens = sum(len(pairs.tgt[row]) + 1 for row in rows)
    assert costs.epoch_seconds * costs.tokens_per_second == pytest.approx(tokens)


def test_the_widest_batch_comes_first(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(small_corpus)
    sizes = []
    step = module.train_step

    def spy(*arguments):  # type: ignore[no-untyped-def]
        sizes.extend(batch.src.numel() + batch.tgt_in.numel() for batch in arguments[1])
        return step(*arguments)

    monkeypatch.setattr(module, "train_step", spy)
    forecast(run)
    order = EpochOrder(run.data.train, TOKENS, 1, 0)
    padded = [batch.src.numel() + batch.tgt_in.numel() for batch in _all(run, order)]
    assert sizes[0] >= 0.9 * max(padded)  # batch lengths are rounded up
    assert sizes[1:] == [*padded[:1], *padded[:3]]


@pytest.mark.thorough
def test_a_step_has_at_most_the_batches_of_an_epoch(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(small_corpus, "training.accumulate=1000000000000000000000")
    counts = []
    step = module.train_step

    def spy(*arguments):  # type: ignore[no-untyped-def]
        counts.append(len(arguments[1]))
        return step(*arguments)

    monkeypatch.setattr(module, "train_step", spy)
    forecast(run)
    assert set(counts) == {len(EpochOrder(run.data.train, TOKENS, 1, 0))}


def _all(run: TrainingSession, order: list[Rows]) -> list[Batch]:
    return [batch_of(run, rows, 0) for rows in order]


def test_out_of_memory_is_reported_with_the_key_to_lower(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    run = run_of(small_corpus)
    monkeypatch.setattr("seq2seq.training.step.batch_loss", full)
    with pytest.raises(RunError, match=r"step 1: out of memory with a single pair. Lower "):
        forecast(run)
