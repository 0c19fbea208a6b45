"""Time of a training: wall time over all processes of a run, speed, and the time that is left."""

import time
from typing import NamedTuple

from tqdm import tqdm

from seq2seq.config.schema import TrainingConfig

SLOW = 1 / 3  # share of the best speed, below which other programs may need the threads' cores


class Clock:
    """Time trained, over all processes of a run, speed in target tokens, and time left."""

    def __init__(
        self, earlier_seconds: float, last_step: int | None = None, max_minutes: float | None = None
    ) -> None:
        """Start with the seconds trained by earlier processes, and with limits of training."""
        self.last_step = last_step
        self._max_minutes = max_minutes
        self._began = time.monotonic() - earlier_seconds
        self.saved_seconds = earlier_seconds  # at the last save
        self._process_began = self._window = time.monotonic()
        self._tokens = 0
        self.steps = 0  # counted by this process
        self._best_speed = 0.0  # target tokens per second
        self._was_slow = False

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

    def left(self, step: int) -> "TimeLeft | None":
        """Estimate the remaining time at a step by the steps of this process; None before any."""
        if not self.steps:
            return None
        ends = []
        per_step = (time.monotonic() - self._process_began) / self.steps
        if self.last_step is not None:
            ends.append(TimeLeft(per_step * (self.last_step - step), self.last_step, True))
        if self._max_minutes is not None:
            seconds = max(0.0, 60 * self._max_minutes - self.seconds)
            ends.append(TimeLeft(seconds, step + int(seconds / per_step), False))
        return min(ends, default=None)

    def speed(self) -> float:
        """Return the target tokens per second since the last call."""
        now = time.monotonic()
        speed = self._tokens / max(now - self._window, 1e-9)
        self._window = now
        self._tokens = 0
        self._best_speed = max(self._best_speed, speed)
        return speed

    def becomes_slow(self, speed: float) -> bool:
        """Return whether a speed is below SLOW of the best one, for the first time."""
        becomes_slow = not self._was_slow and speed < SLOW * self._best_speed
        self._was_slow |= becomes_slow
        return becomes_slow


class TimeLeft(NamedTuple):
    """Remaining wall time, validations included, and the last step.

    `exact` is False if the last step is estimated from the speed: `max_minutes` ends first.
    """

    seconds: float
    last_step: int
    exact: bool

    def steps(self, step: int) -> str:
        """Format the current step and the last one."""
        return f"step {step:,}/{'' if self.exact else 'about '}{self.last_step:,}"


def describe_time_left(settings: TrainingConfig, left: TimeLeft | None) -> str:
    """Describe an estimate for the log; patience may end training sooner."""
    if left is None:
        return ""
    bound = "about" if settings.patience is None else "at most about"
    return f", {bound} {tqdm.format_interval(left.seconds)} left"
