"""Stopping criteria and stop signals; whether the run in a folder has ended."""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.runs.checkpoint import BEST, Progress
from seq2seq.runs.tensor_file import header_errors, read_dataclass
from seq2seq.runs.training_state import check_last
from seq2seq.runtime.process_group import ProcessGroup


def why_stop(settings: TrainingConfig, progress: Progress, seconds: float) -> str | None:
    """Why training ends here, after so many seconds, if it does."""
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"update {progress.step} of training.max_steps {settings.max_steps}"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"epoch {progress.epoch} of training.max_epochs {settings.max_epochs}"
    if settings.max_minutes is not None and seconds >= 60 * settings.max_minutes:
        return f"training.max_minutes {settings.max_minutes:g} are over"
    if settings.patience is not None and progress.validations_since_best >= settings.patience:
        return (
            f"no better BLEU in {progress.validations_since_best} validations (training.patience)"
        )
    return None


def nothing_left(config: Config, reason: str) -> str:
    """What to say where a run that goes on has reached its end already, and how to move that."""
    (key,) = re.findall(r"training\.\w+", reason)
    falling = config.training.decay in ("linear", "cosine")
    if falling and key in ("training.max_epochs", "training.max_steps"):
        remedy = f"training.decay {config.training.decay} ends there: a longer one is a new run"
    else:
        remedy = f"to train on, give --resume and a larger {key}"
    return f"Already at the end: {reason}. Nothing is left to train; {remedy}."


class StopSync:
    """Stop signals and trained seconds, synchronised so that all ranks stop after the same step.

    Signals may reach any rank; the clock is that of the main process.
    """

    def __init__(self, group: ProcessGroup, stops: list[int], seconds: Callable[[], float]) -> None:
        self._group, self._stops, self._seconds = group, stops, seconds
        self._synced_stops: list[int] = []
        self._synced_seconds = 0.0
        self.after_step(0, None)

    def after_step(
        self, tokens: int, max_micro_batch_positions: int | None
    ) -> tuple[int, int | None]:
        """Synchronise the ranks; return the tokens of all and the least limit of micro-batches."""
        if self._group.size == 1:
            return tokens, max_micro_batch_positions
        stop = self._stops[0] if self._stops else 0
        rows = self._group.gather([tokens, max_micro_batch_positions or 0, stop, self._seconds()])
        all_tokens, positions, stops, seconds = zip(*rows, strict=True)
        self._synced_stops = [int(number) for number in stops if number]
        self._synced_seconds = seconds[0]
        least = min((int(each) for each in positions if each), default=None)
        return int(sum(all_tokens)), least

    @property
    def stops(self) -> list[int]:
        """The stop signals received so far."""
        return self._stops if self._group.size == 1 else self._synced_stops

    @property
    def seconds(self) -> float:
        """The time trained so far."""
        return self._seconds() if self._group.size == 1 else self._synced_seconds


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Gather Ctrl-C, SIGTERM and the end of the terminal instead of dying of them.

    A second Ctrl-C kills as usual; with `nohup` the terminal may go.
    """
    caught: list[int] = []

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = {signal.SIGINT, signal.SIGTERM}
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.add(hangup)
    before = {number: signal.signal(number, catch) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def trained_so_far(config: Config) -> tuple[Progress, float] | None:
    """Where the run of a config stands and how many seconds it took; None: nothing was saved yet.

    Raises DamagedFile with the way out.
    """
    last = check_last(config.run_dir)
    if last is None:
        return None
    path, header = last
    progress = read_dataclass(Progress, header, "progress", path)
    with header_errors(path):
        return progress, float(header["seconds"])


def has_ended(config: Config) -> bool:
    """Whether the run of a config was trained to its end, and validated there."""
    found = trained_so_far(config)
    if found is None or not (config.run_dir / BEST).exists():
        return False
    progress, seconds = found
    validated = progress.validated_step == progress.step
    return validated and why_stop(config.training, progress, seconds) is not None
