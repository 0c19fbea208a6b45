"""Estimate of the remaining time of a training, by the limit that ends it first."""

from typing import NamedTuple

from tqdm import tqdm

from seq2seq.config.schema import TrainingConfig
from seq2seq.training.clock import Clock
from seq2seq.training.stopping import TrainingLength


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
    every = settings.validate_every or length.steps_per_epoch
    if last_step is not None:
        validations = _validations_left(every, step, last_step)
        seconds = clock.step_seconds * (last_step - step) + clock.validation_seconds * validations
        ends.append(TimeLeft(seconds, last_step, True))
    if settings.max_minutes is not None:
        left = max(0.0, 60 * settings.max_minutes - clock.seconds)
        end = step + int(left / (clock.step_seconds + clock.validation_seconds / every))
        ends.append(TimeLeft(left + clock.validation_seconds, end, False))
    return min(ends, default=None)


def describe_time_left(settings: TrainingConfig, left: TimeLeft | None) -> str:
    """Describe an estimate for the log; patience may end training sooner."""
    if left is None:
        return ""
    bound = "about" if settings.patience is None else "at most about"
    return f", {bound} {tqdm.format_interval(left.seconds)} left"


def _validations_left(every: int, step: int, last_step: int) -> int:
    """Return the number of validations after a step; one follows the last step in any case."""
    return last_step // every - step // every + bool(last_step % every)
