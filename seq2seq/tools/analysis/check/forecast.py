"""Forecast of the memory and time of a training, from a few real steps in memory."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.batching import EpochOrder
from seq2seq.data.length_windows import Rows
from seq2seq.model.seq2seq import count_parameters, named_weights
from seq2seq.runtime.console import counted, duration
from seq2seq.runtime.device import peak_memory, synchronize, total_memory
from seq2seq.tools.analysis.check.data_statistics import TABLE
from seq2seq.tools.analysis.check.findings import Finding
from seq2seq.training.batches import own_batches
from seq2seq.training.diagnosis import FEW_STEPS
from seq2seq.training.optimizer import learning_rate
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import train_step
from seq2seq.training.stopping import last_step_of, raise_limits
from seq2seq.training.threads import restored_threads, settle_threads

WARM_UP_STEPS = 3  # not measured
MIN_STEPS = 5
MAX_STEPS = 40
MAX_SECONDS, MIN_STEPS_SECONDS = 6.0, 30.0  # to measure up to MAX_STEPS; for the first MIN_STEPS
HIGH_MEMORY = 0.6  # share of machine memory; later training may take half as much again


class Forecast(NamedTuple):
    """Size, memory and time of a training, in bytes and seconds."""

    device: str
    parameters: int
    state_bytes: int  # weights, gradients, averaged weights and optimizer moments
    peak_bytes: int | None  # highest use so far; None if the system does not report it
    machine_bytes: int | None  # memory of the machine
    steps_per_epoch: int
    total_steps: int | None  # until max_epochs or max_steps; None if neither is set
    measured_steps: int
    tokens_per_second: float  # target tokens
    epoch_seconds: float  # validation excluded
    threads: int = 0  # on a CPU

    @property
    def hardware(self) -> str:
        """Return the device, with the number of threads on a CPU."""
        return f"{self.device} ({counted(self.threads, 'thread')})" if self.threads else self.device

    @property
    def all_seconds(self) -> float | None:
        """Return the seconds of all steps; None if max_epochs and max_steps are not set."""
        steps = self.total_steps
        return None if steps is None else steps / self.steps_per_epoch * self.epoch_seconds


def forecast(session: TrainingSession) -> Forecast:
    """Extrapolate the target tokens of some steps, the widest batch first, to an epoch.

    Has the number of threads that training would choose. Changes the weights of `session`. Raises
    RunError if not even a single pair fits into memory.
    """
    with restored_threads():
        settle_threads(session)
        return _forecast(session)


def _forecast(session: TrainingSession) -> Forecast:
    settings = session.config.training
    pairs = session.data.train

    def width(rows: Rows) -> int:
        """Return the source and target positions of a batch with padding, before rounding."""
        longest = int(pairs.src.lengths[rows].max()) + int(pairs.tgt.lengths[rows].max())
        return len(rows) * (longest + 2)

    order = EpochOrder(pairs, settings.batch_tokens, session.config.seed, 0)
    steps = [order[n : n + settings.accumulate] for n in range(0, len(order), settings.accumulate)]
    widest = [max(order, key=width)] * len(steps[0])
    last = last_step_of(session.config, pairs)
    for batches in [widest, *steps[: WARM_UP_STEPS - 1]]:
        _step(session, batches, last)
    count, tokens, seconds = _measure(session, steps, last)
    rows = np.concatenate(order[:])  # by weight, an epoch draws a part of a corpus
    epoch_tokens = int(pairs.tgt.lengths[rows].sum()) + len(rows)
    weights = list(named_weights(session.model).values())
    moments = [value for state in session.optimizer.state.values() for value in state.values()]
    tensors = [*weights, *weights, *session.averages.values(), *moments]  # weights again: gradients
    return Forecast(
        str(session.device),
        count_parameters(session.model),
        sum(tensor.nbytes for tensor in tensors),
        peak_memory(session.device),
        total_memory(session.device),
        len(steps),
        last,
        count,
        tokens / seconds,
        epoch_tokens * seconds / tokens,
        session.progress.threads if session.device.type == "cpu" else 0,
    )


def training_seconds(settings: TrainingConfig, cost: Forecast) -> float | None:
    """Return the expected training time, validation excluded; None if only patience ends it."""
    limits = [settings.max_minutes and 60 * settings.max_minutes, cost.all_seconds]
    return min((limit for limit in limits if limit is not None), default=None)


def training_steps(settings: TrainingConfig, cost: Forecast) -> int | None:
    """Return the expected number of steps; None if only patience ends training."""
    seconds = training_seconds(settings, cost)
    return None if seconds is None else int(seconds / cost.epoch_seconds * cost.steps_per_epoch)


def ending_limit(settings: TrainingConfig, cost: Forecast) -> str | None:
    """Return the limit that is expected to end training; None if only patience ends it."""
    needed = cost.all_seconds
    minutes = settings.max_minutes
    if minutes is not None and (needed is None or 60 * minutes < needed):
        return "max_minutes"
    return None if needed is None else _limit_of_steps(settings, cost)


def _limit_of_steps(settings: TrainingConfig, cost: Forecast) -> str:
    """Return which of the limits of steps and epochs comes first."""
    return "max_steps" if settings.max_steps == cost.total_steps else "max_epochs"


def cost_findings(settings: TrainingConfig, cost: Forecast) -> Iterator[Finding]:
    """Check that a training fits into memory and into its time limit, and has enough steps."""
    peak = cost.peak_bytes
    machine = cost.machine_bytes
    if peak is not None and machine is not None and peak > HIGH_MEMORY * machine:
        text = TABLE["cost"]["memory"].format(peak=size(peak), machine=size(machine))
        yield Finding("memory", True, text)
    else:
        yield Finding("memory", False, f"an optimizer step fits into memory ({cost.device})")
    needed = cost.all_seconds
    minutes = settings.max_minutes
    limit = ending_limit(settings, cost)
    if needed is not None and minutes is not None and limit != "max_minutes":
        yield Finding("time", False, "training.max_minutes is enough for all steps")
    elif needed is not None and minutes is not None:
        decays = settings.decay.name in ("linear", "cosine")
        completes = f" so that the {settings.decay.name} decay completes" if decays else ""
        words: dict[str, object] = {"minutes": minutes, "steps": cost.total_steps}
        words |= {"share": 60 * minutes / needed, "limit": _limit_of_steps(settings, cost)}
        text = TABLE["cost"]["time"].format(completes=completes, needed=duration(needed), **words)
        yield Finding("time", True, text)
    steps = training_steps(settings, cost)
    if steps is not None and steps < FEW_STEPS:
        alternative = "" if limit == "max_steps" else ", or lower training.batch_tokens"
        remedy = f"{raise_limits(settings, limit)}{alternative}"
        text = TABLE["cost"]["steps"].format(steps=steps, few=FEW_STEPS, remedy=remedy)
        yield Finding("steps", True, text)


def size(number: int) -> str:
    """Format a number of bytes."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"


def _measure(
    session: TrainingSession, steps: Sequence[Sequence[Rows]], last: int | None
) -> tuple[int, int, float]:
    """Take steps, cycling through a short epoch; return their number, target tokens, seconds."""
    count = tokens = 0
    seconds = 0.0
    synchronize(session.device)
    started = time.perf_counter()
    while count < MAX_STEPS and (
        seconds < MAX_SECONDS or (count < MIN_STEPS and seconds < MIN_STEPS_SECONDS)
    ):
        tokens += _step(session, steps[count % len(steps)], last)
        count += 1
        seconds = time.perf_counter() - started
    synchronize(session.device)
    return count, tokens, time.perf_counter() - started


def _step(session: TrainingSession, batches: Sequence[Rows], last: int | None) -> int:
    """Take one optimizer step as training does; return its number of target tokens."""
    session.progress.step += 1
    rate = learning_rate(session.config.training, session.progress.step, last)
    result = train_step(session, own_batches(session, batches), rate)
    session.progress.max_micro_batch_positions = result.max_micro_batch_positions
    return result.tokens
