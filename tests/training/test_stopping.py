"""Stopping criteria, and the decays that follow them."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.trainings import (
    always,
    configured,
    fingerprint,
    lines_of,
    log_of,
    state_of,
    steps_of,
    stop_after,
    trained,
    validations,
)

from seq2seq.data.padding import Batch
from seq2seq.runs.layout import BEST, LAST, METRICS
from seq2seq.training import loop as training
from seq2seq.training import validation
from seq2seq.training.loop import Interrupted, train
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import StepResult, train_step

pytestmark = pytest.mark.usefixtures("no_engine", "no_tensorboard", "short_sentences")


def stopping_criterion(run: Path) -> str:
    (line,) = (line for line in log_of(run).splitlines() if "Training finished: " in line)
    return line.partition("Training finished: ")[2]


def test_max_steps_ends_training(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=5", "training.max_epochs=9")
    assert stopping_criterion(run) == "training.max_steps=5 reached."
    assert steps_of(run) == 5
    assert [line["step"] for line in validations(run)] == [5]  # there is always one validation


@pytest.mark.thorough
def test_max_epochs_ends_training(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_epochs=2", "training.max_steps=1000")
    assert stopping_criterion(run) == "training.max_epochs=2 reached."
    assert [line["step"] for line in validations(run)] == [steps_of(run) // 2, steps_of(run)]


def test_patience_ends_training(small_corpus: Path) -> None:
    still = ("training.learning_rate=1e-12", "training.validate_every=2")  # BLEU stays as it is
    run = trained(small_corpus, *still, "training.patience=3", "training.max_epochs=90")
    assert stopping_criterion(run) == "training.patience=3 reached."
    assert [line["step"] for line in validations(run)] == [2, 4, 6, 8]
    assert state_of(run / BEST)[0]["step"] == 2


class FakeTime:
    """A clock on which every step takes a quarter of a minute."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def step(self, run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        self.now += 15.0
        return train_step(run, batches, rate)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(training, "train_step", clock.step)
    return clock


@pytest.mark.thorough
@pytest.mark.usefixtures("fake_time")
def test_max_minutes_ends_training_and_counts_all_processes(small_corpus: Path) -> None:
    limits = ("training.max_epochs=90", "training.validate_every=50")
    run = trained(small_corpus, *limits, "training.max_minutes=1.5")
    end = stopping_criterion(run)
    assert end.startswith("training.max_minutes=1.5 reached after 6 of ")
    assert end.endswith("steps; resume=True with a higher one makes the rest.")
    assert steps_of(run) == 6
    assert state_of(run / LAST)[0]["seconds"] == 90
    config = configured(small_corpus, *limits, "training.max_minutes=2")
    train(config, "cpu", resume=True)
    assert steps_of(run) == 8


@pytest.mark.thorough
@one_quick("decay", ["linear", "cosine"])
def test_a_decay_by_time_reaches_zero_and_resumes_where_it_was(
    small_corpus: Path, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch, decay: str
) -> None:
    """Eight steps of a quarter of a minute have the rates of a training of eight steps."""
    by_time = ("training.max_epochs=null", f"training.decay={decay}", "training.log_every=1")
    complete = trained(small_corpus, *by_time, "training.max_minutes=2", run="complete")
    steps = trained(small_corpus, *by_time, "training.max_steps=8", run="steps")
    resumed, uninterrupted = (
        [line["learning_rate"] for line in lines_of(run / METRICS) if "learning_rate" in line]
        for run in (complete, steps)
    )
    assert len(resumed) == 8
    assert resumed == pytest.approx(uninterrupted)

    def interrupted(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        if run.progress.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return fake_time.step(run, batches, rate)

    config = configured(small_corpus, *by_time, "training.max_minutes=2")
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_step", interrupted)
        with pytest.raises(Interrupted):
            train(config, "cpu")
    train(config, "cpu", resume=True)
    assert (config.run_dir / METRICS).read_bytes() == (complete / METRICS).read_bytes()


@pytest.mark.thorough
def test_a_plateau_decays_the_rate_and_resumes_exactly(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "valid_bleu", always(50.0))
    monkeypatch.setattr(validation, "valid_loss", lambda _: 1.0)
    settings = ("training.decay={plateau: 0.2}", "training.patience=2")
    often = ("training.validate_every=1", "training.log_every=1", "training.max_epochs=50")
    complete = trained(small_corpus, *settings, *often, run="complete")
    rates = [
        line["learning_rate"] for line in lines_of(complete / METRICS) if "learning_rate" in line
    ]
    assert rates == pytest.approx([1e-3] * 3 + [2e-4] * 2 + [4e-5] * 2)
    assert stopping_criterion(complete) == "training.patience=2 reached."
    assert "step 3: no improvement in 2 validations; the learning rate is now 0.2 of" in log_of(
        complete
    )
    config = configured(small_corpus, *settings, *often)
    stop_after(4, config)
    run = train(config, "cpu", resume=True)
    assert fingerprint(run) == fingerprint(complete)
