"""Estimates of the time left, against simulated trainings with known times."""

import time
from typing import Any

import pytest

from seq2seq.config.schema import TrainingConfig
from seq2seq.training.clock import Clock, TimeLeft, describe_time_left
from seq2seq.training.stopping import StopSync

STEP, VALIDATION, EPOCH = 2.0, 30.0, 10  # seconds, seconds, steps


class Training:
    """A training by the clock: a step takes STEP seconds, a validation VALIDATION."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int = 0, **limits: Any) -> None:
        self.now, self.step = 1000.0, step
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.settings = TrainingConfig.model_validate(limits)
        epochs = self.settings.max_epochs
        steps = self.settings.max_steps
        last = steps if epochs is None else epochs * EPOCH
        self.every = self.settings.validate_every or EPOCH
        seconds = step * STEP + step // self.every * VALIDATION
        self.clock = Clock(seconds, last, self.settings.max_minutes)
        self.validated = step // self.every * self.every

    def estimate(self) -> TimeLeft | None:
        return self.clock.left(self.step)

    def advance(self) -> bool:
        """Take a step; return whether the training has ended."""
        self.step += 1
        self.now += STEP
        self.clock.count(5)
        if self.step % self.every == 0:
            self.validate()
        minutes = self.settings.max_minutes
        late = minutes is not None and self.clock.seconds >= 60 * minutes
        return self.step == self.clock.last_step or late

    def validate(self) -> None:
        self.now += VALIDATION
        self.clock.leave_out(VALIDATION)
        self.validated = self.step

    def finish(self) -> None:
        """Train to the end, where the last step is validated."""
        while not self.advance():
            pass
        if self.validated != self.step:
            self.validate()


@pytest.mark.approximate
@pytest.mark.parametrize("first_step", [0, 30])
@pytest.mark.parametrize("limits", [{"max_epochs": 7}, {"max_steps": 64}, {"validate_every": 9}])
def test_an_estimate_by_steps_is_near_after_validations(
    monkeypatch: pytest.MonkeyPatch, first_step: int, limits: dict[str, int]
) -> None:
    training = Training(monkeypatch, first_step, **{"max_steps": 65} | limits)
    assert training.estimate() is None
    for _ in range(20):
        training.advance()
    left = training.estimate()
    now = training.now
    training.finish()
    assert left is not None
    assert left.seconds == pytest.approx(training.now - now, abs=3 * VALIDATION)
    assert (left.last_step, left.exact) == (training.step, True)


@pytest.mark.approximate
@pytest.mark.parametrize("steps", [None, 5000])
def test_an_estimate_by_time_is_the_time_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, steps: int | None
) -> None:
    training = Training(monkeypatch, max_minutes=8, max_steps=steps)
    for _ in range(25):
        training.advance()
    left = training.estimate()
    now = training.now
    training.finish()
    assert left is not None
    assert left.seconds == pytest.approx(training.now - now, abs=STEP + VALIDATION)
    assert abs(left.last_step - training.step) <= 2 * EPOCH
    assert not left.exact


def test_the_limit_that_is_reached_first_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, max_minutes=800, max_steps=40)
    training.advance()
    left = training.estimate()
    assert left is not None
    assert left.exact
    assert left.seconds < 120


@pytest.mark.parametrize(
    ("patience", "seconds", "text"),
    [(None, 200.4, ", about 03:20 left"), (3, 4000.0, ", at most about 1:06:40 left")],
)
def test_the_log_notes_that_patience_may_end_training_sooner(
    patience: int | None, seconds: float, text: str
) -> None:
    settings = TrainingConfig(max_steps=9, patience=patience)
    assert describe_time_left(settings, TimeLeft(seconds, 9, True)) == text
    assert describe_time_left(settings, None) == ""


def test_steps_are_shown_with_their_total() -> None:
    assert TimeLeft(1.0, 1200, True).steps(34) == "step 34/1,200"
    assert TimeLeft(1.0, 1200, False).steps(34) == "step 34/about 1,200"


def test_the_speed_leaves_out_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(0.0)
    clock.count(600)
    now[0] = 2.0
    clock.leave_out(1.5)
    assert clock.speed() == 1200
    clock.count(100)
    now[0] = 3.0
    assert clock.speed() == 100


def test_the_clock_of_the_main_process_decides_for_all() -> None:
    class Group:
        size = 2

        def gather(self, values: list[float]) -> list[list[float]]:
            return [[0, 0, 0, 7.0], values]

    group: Any = Group()
    assert StopSync(group, [], lambda: 9.0).seconds == 7.0
