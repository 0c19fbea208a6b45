"""Stopping criteria and stop signals, synchronised between ranks."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seq2seq.config.schema import Config, TrainingConfig
from seq2seq.data.batching import EncodedPairs, EpochOrder
from seq2seq.runs.layout import BEST
from seq2seq.runs.run_folder import Counters
from seq2seq.runtime.errors import argument
from seq2seq.runtime.interrupts import PatientHandler
from seq2seq.runtime.process_group import ProcessGroup

LIMITS = ("max_steps", "max_epochs", "max_minutes", "patience")


def last_step_of(config: Config, pairs: EncodedPairs) -> int | None:
    """Return the last step by max_steps and max_epochs; None if time or patience end training."""
    settings = config.training
    ends = [config.training.max_steps]

    def steps(epoch: int) -> int:
        order = EpochOrder(pairs, settings.batch_tokens, config.seed, epoch)
        return -(-len(order) // settings.accumulate)

    if (epochs := settings.max_epochs) is not None:  # epochs of weighted corpora differ
        ends.append(sum(map(steps, range(epochs))) if pairs.shares else epochs * steps(0))
    return min((end for end in ends if end is not None), default=None)


def met_limit(settings: TrainingConfig, progress: Counters, seconds: float) -> str | None:
    """Return the first of LIMITS that is met after `seconds` of training; None if none is."""
    counts = (progress.step, progress.epoch, seconds / 60, progress.validations_since_improvement)
    for name, value in zip(LIMITS, counts, strict=True):
        limit = getattr(settings, name)
        if limit is not None and value >= limit:
            return name
    return None


def limit_reached(
    settings: TrainingConfig, name: str, progress: Counters, last_step: int | None
) -> str:
    """Describe a limit that was met, and what is left of the steps if it is one of time."""
    text = f"training.{name}={getattr(settings, name):.12g} reached"
    if name != "max_minutes" or last_step is None or progress.step >= last_step:
        return text
    remedy = f"{argument('resume', True)} with a higher one makes the rest"
    return f"{text} after {progress.step:,} of {last_step:,} steps; {remedy}"


def raise_limits(settings: TrainingConfig, ended_by: str | None = None) -> str:
    """Advise to raise the limit that ends training, or each that is set if that is unknown."""
    names = LIMITS if ended_by is None else (ended_by,)
    limits = [
        f"training.{name} (now {limit:g})"
        for name in names
        if (limit := getattr(settings, name)) is not None
    ]
    return f"raise {' or '.join(limits)}"


def finished_note(config: Config, reason: str) -> str:
    """Return the message for a resumed run that already meets a stopping criterion."""
    key = reason.partition("=")[0]
    decay = config.training.decay.name
    remedy = f"To train further, pass {argument('resume', True)} and increase {key}"
    if decay in ("linear", "cosine") and key in ("training.max_epochs", "training.max_steps"):
        start = f"start another run (another run_dir) with {argument('init_from', config.run_dir)}"
        remedy = f"training.decay={decay} ends there: to train longer, {start}"
    return f"Training has already finished ({reason}). {remedy}."


def is_finished(config: Config, progress: Counters) -> bool:
    """Return whether the progress of a run meets a stopping criterion and was validated there."""
    if not (config.run_dir / BEST).exists():
        return False
    validated = progress.validated_step == progress.step
    return validated and met_limit(config.training, progress, progress.seconds) is not None


class StopSync:
    """Stop signals of all ranks, and the main one's clock, so that all stop after the same step."""

    def __init__(self, group: ProcessGroup, stops: list[int], seconds: Callable[[], float]) -> None:
        self._group = group
        self._stops = stops
        self._seconds = seconds
        self._synced_stops: list[int] = []
        self._synced_seconds = 0.0
        self.after_step(0, 0)

    def after_step(self, tokens: int, max_micro_batch_positions: int) -> tuple[int, int]:
        """Synchronise the ranks; return the tokens of all and the lowest limit of micro-batches."""
        if self._group.size == 1:
            return tokens, max_micro_batch_positions
        stop = self._stops[0] if self._stops else 0
        rows = self._group.gather([tokens, max_micro_batch_positions, stop, self._seconds()])
        all_tokens, limits, stops, seconds = zip(*rows, strict=True)
        self._synced_stops = [int(number) for number in stops if number]
        self._synced_seconds = seconds[0]
        return int(sum(all_tokens)), min((int(limit) for limit in limits if limit), default=0)

    @property
    def stops(self) -> list[int]:
        """The stop signals received so far."""
        return self._stops if self._group.size == 1 else self._synced_stops

    @property
    def seconds(self) -> float:
        """The time trained so far."""
        return self._seconds() if self._group.size == 1 else self._synced_seconds


class _Collector(PatientHandler):
    """Handler that collects the numbers of signals; a second Ctrl-C is no longer one of them."""

    def __init__(self) -> None:
        self.caught: list[int] = []

    def __call__(self, number: int, _frame: object) -> None:
        self.caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and the closing of the terminal (unless under `nohup`) instead.

    A second Ctrl-C kills as usual. In another thread than the main one nothing is collected.
    """
    collector = _Collector()
    if threading.current_thread() is not threading.main_thread():
        yield collector.caught
        return
    numbers = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.add(signal.SIGHUP)
    handlers = {number: signal.signal(number, collector) for number in numbers}
    try:
        yield collector.caught
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # it was installed outside of Python
                signal.signal(number, handler)
