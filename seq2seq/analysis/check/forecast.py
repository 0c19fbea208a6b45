"""What a training will cost, by a few real updates in memory; nothing is written."""

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from seq2seq.data.batching import EncodedPairs, Rows, epoch_order
from seq2seq.runs.checkpoint import own_weights
from seq2seq.runtime.device import total_memory
from seq2seq.training.loop import own_batches, total_steps
from seq2seq.training.optimizer import learning_rate
from seq2seq.training.session import Run
from seq2seq.training.step import train_step

WARM_UP = 3  # updates that are not measured
LEAST, MOST = 5, 40  # updates that are, as many as fit
SECONDS, PATIENCE = 6.0, 30.0  # for MOST and for LEAST


class Forecast(NamedTuple):
    """Size, memory and time of a training; bytes, seconds."""

    device: str
    parameters: int
    state_bytes: int  # weights, gradients, averages, moments of the optimizer
    peak_bytes: int | None  # the most held so far; None where the system does not tell
    machine_bytes: int | None  # that the machine has
    updates_per_epoch: int
    total_steps: int | None  # where max_epochs or max_steps ends training
    measured_updates: int
    tokens_per_second: float  # target tokens
    epoch_seconds: float  # validations left out
    core_share: float | None  # of a core's time, that the updates got on a CPU; many cores: over 1


def forecast(run: Run) -> Forecast:
    """Take updates, the widest batch first, and scale their time by target tokens to an epoch.

    Changes the run's weights. Raises RunError where not even a single pair fits into memory.
    """
    settings = run.config.training
    order = epoch_order(run.train, settings.batch_tokens, run.config.seed, 0)
    updates = [
        order[n : n + settings.accumulate] for n in range(0, len(order), settings.accumulate)
    ]
    widest = [max(order, key=lambda rows: _width(run.train, rows))] * len(updates[0])
    last = total_steps(run)
    for rows in [widest, *updates[: WARM_UP - 1]]:
        _update(run, rows, last)
    count, tokens, seconds, core_share = _measure(run, updates, last)
    an_epoch = int(run.train.tgt.lengths.sum()) + len(run.train)
    return Forecast(
        str(run.device),
        sum(weight.numel() for weight in own_weights(run.model).values()),
        _state_bytes(run),
        _peak_bytes(run.device),
        total_memory(run.device),
        len(updates),
        last,
        count,
        tokens / seconds,
        an_epoch * seconds / tokens,
        core_share if run.device.type == "cpu" else None,
    )


def _measure(
    run: Run, updates: Sequence[Sequence[Rows]], last: int | None
) -> tuple[int, int, float, float]:
    """Updates, target tokens, seconds, seconds of a core a second; a short epoch is begun anew."""
    count = tokens = 0
    seconds = 0.0
    _wait(run.device)
    began, worked = time.perf_counter(), time.process_time()
    while count < MOST and (seconds < SECONDS or (count < LEAST and seconds < PATIENCE)):
        tokens += _update(run, updates[count % len(updates)], last)
        count += 1
        seconds = time.perf_counter() - began
    _wait(run.device)
    seconds = time.perf_counter() - began
    return count, tokens, seconds, (time.process_time() - worked) / seconds


def _update(run: Run, taken: Sequence[Rows], last: int | None) -> int:
    """One update, as training takes it; returns its target tokens."""
    run.progress.step += 1
    rate = learning_rate(run.config.training, run.progress.step, last)
    return train_step(run, own_batches(run, taken), rate)


def _width(pairs: EncodedPairs, rows: Rows) -> int:
    """Source and target positions of a batch, padding included, but for the rounding."""
    longest = int(pairs.src.lengths[rows].max()) + int(pairs.tgt.lengths[rows].max())
    return len(rows) * (longest + 2)


def _state_bytes(run: Run) -> int:
    weights = list(own_weights(run.model).values())
    moments = [value for state in run.optimizer.state.values() for value in state.values()]
    tensors = [*weights, *weights, *run.averages.values(), *moments]  # a gradient for each weight
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _peak_bytes(device: torch.device) -> int | None:
    """Of the device's memory that torch took, or of all memory that this process ever held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    try:
        import resource
    except ImportError:  # there is none on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
