"""Time of a training: wall time over all processes of a run, speed, and the time that is left."""

import time
from typing import NamedTuple

from tqdm import tqdm

from seq2seq.config.schema import TrainingConfig


class Clock:
    """Time trained, over all processes of a run, and speed in target tokens."""

    def __init__(self, before: float) -> None:
        """Start with the seconds trained by earlier processes."""
        self._began = time.monotonic() - before
        self.saved_seconds = before  # at the last save
        self._process_began = self._window = time.monotonic()
        self._tokens = 0
        self.steps = 0  # of this process

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

    @property
    def step_seconds(self) -> float:
        """Mean seconds per step of this process, validations included."""
        return (time.monotonic() - self._process_began) / max(1, self.steps)

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
    settings: TrainingConfig, clock: Clock, step: int, last_step: int | None
) -> TimeLeft | None:
    """Estimate the remaining time at a step, from the steps of this process; None before any."""
    if not clock.steps:
        return None
    ends = []
    if last_step is not None:
        ends.append(TimeLeft(clock.step_seconds * (last_step - step), last_step, True))
    if settings.max_minutes is not None:
        left = max(0.0, 60 * settings.max_minutes - clock.seconds)
        ends.append(TimeLeft(left, step + int(left / clock.step_seconds), False))
    return min(ends, default=None)


def describe_time_left(settings: TrainingConfig, left: TimeLeft | None) -> str:
    """Describe an estimate for the log; patience may end training sooner."""
    if left is None:
        return ""
    bound = "about" if settings.patience is None else "at most about"
    return f", {bound} {tqdm.format_interval(left.seconds)} left"
