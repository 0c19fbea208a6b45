"""Time of a training: wall time over all processes of a run, speed, and the time that is left."""

import time
from typing import NamedTuple

from tqdm import tqdm

from seq2seq.config.schema import TrainingConfig
from seq2seq.training.stopping import TrainingLength


class Clock:
    """Time trained, over all processes of a run, and speed in target tokens."""

    def __init__(self, before: float) -> None:
        """Start with the seconds trained by earlier processes."""
        self._began = time.monotonic() - before
        self.saved_seconds = before  # at the last save
        self._process_began = self._window = time.monotonic()
        self._tokens = 0
        self.steps, self._pauses, self._paused = 0, 0, 0.0  # counted by this process

    @property
    def seconds(self) -> float:
        """Wall time since training began, validations included."""
        return time.monotonic() - self._began

    def count(self, tokens: int) -> None:
        """Count a step and its target tokens."""
        self._tokens += tokens
        self.steps += 1

    def leave_out(self, seconds: float) -> None:
        """Exclude the seconds of a validation from the speed."""
        self._window += seconds
        self._paused += seconds
        self._pauses += 1

    @property
    def step_seconds(self) -> float:
        """Mean seconds per step of this process, without validations."""
        return (time.monotonic() - self._process_began - self._paused) / max(1, self.steps)

    @property
    def validation_seconds(self) -> float:
        """Mean seconds per validation of this process; 0 before the first."""
        return self._paused / max(1, self._pauses)

    def speed(self) -> float:
        """Return the target tokens per second since the last call."""
        now = time.monotonic()
        speed = self._tokens / max(now - self._window, 1e-9)
        self._window, self._tokens = now, 0
        return speed


def minutes(seconds: float) -> str:
    """Format seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class TimeLeft(NamedTuple):
    """Remaining wall time, validations included, and the last step.

    `exact` is False if the last step is estimated from the speed, because `max_minutes` ends
    training first.
    """

    seconds: float
    last_step: int
    exact: bool

    def steps(self, step: int) -> str:
        """Format the current step and the last one."""
        return f"step {step:,}/{'' if self.exact else 'about '}{self.last_step:,}"


def estimate_time_left(
    settings: TrainingConfig, clock: Clock, step: int, length: TrainingLength
) -> TimeLeft | None:
    """Estimate the remaining time at a step, from the steps and validations of this process.

    Returns None before the first step of a process.
    """
    if not clock.steps:
        return None
    ends, last_step = [], length.last_step
    interval = settings.validate_every or length.steps_per_epoch
    if last_step is not None:
        validations = _validations_left(interval, step, last_step)
        seconds = clock.step_seconds * (last_step - step) + clock.validation_seconds * validations
        ends.append(TimeLeft(seconds, last_step, True))
    if settings.max_minutes is not None:
        left = max(0.0, 60 * settings.max_minutes - clock.seconds)
        end = step + int(left / (clock.step_seconds + clock.validation_seconds / interval))
        ends.append(TimeLeft(left + clock.validation_seconds, end, False))
    return min(ends, default=None)


def describe_time_left(settings: TrainingConfig, left: TimeLeft | None) -> str:
    """Describe an estimate for the log; patience may end training sooner."""
    if left is None:
        return ""
    bound = "about" if settings.patience is None else "at most about"
    return f", {bound} {tqdm.format_interval(left.seconds)} left"


def _validations_left(interval: int, step: int, last_step: int) -> int:
    """Return the number of validations after a step; one follows the last step in any case."""
    return last_step // interval - step // interval + bool(last_step % interval)
