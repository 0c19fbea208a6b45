"""Number of CPU threads of a training: chosen once, by timing steps, and kept by the run.

A second thread may save a third of the time. Where another program needs its core, threads wait for
each other, and steps may take several times as long. The number decides the last bits of sums,
so that a resumed run keeps it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter

import torch

from seq2seq.data.batching import EpochOrder
from seq2seq.runtime.console import counted
from seq2seq.runtime.device import may_use_threads
from seq2seq.training.batches import own_batches
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import compute_gradient

ROUNDS = 2  # in which each number of threads computes a gradient
VARIABLE = "OMP_NUM_THREADS"


@dataclass
class _Shared:
    """Number of threads of all trainings of a comparison; 0: the first one chooses it."""

    number: int


_shared: ContextVar[_Shared | None] = ContextVar("_shared", default=None)


@contextmanager
def same_threads(number: int = 0) -> Iterator[None]:
    """Let all trainings inside have one number of threads; 0: that of the first."""
    token = _shared.set(_Shared(number))
    try:
        yield
    finally:
        _shared.reset(token)


@contextmanager
def restored_threads() -> Iterator[None]:
    """Restore the number of threads at the end."""
    number = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(number)


def settle_threads(session: TrainingSession) -> list[str]:
    """Set the number of threads of a run and record it; return notes for the log.

    OMP_NUM_THREADS decides, and a forked process has one thread; else the number is that of the run
    so far, or of the comparison. A new run has one thread or all, whichever computes a gradient
    sooner.
    """
    progress, notes = session.progress, list[str]()
    shared = _shared.get() or _Shared(0)
    is_free = VARIABLE not in os.environ and may_use_threads()
    if session.device.type == "cpu" and session.group.size == 1 and is_free:
        if known := progress.threads or shared.number:
            torch.set_num_threads(known)
        elif not progress.step:
            notes = choose_threads(session)
    number = torch.get_num_threads()
    if progress.threads not in (0, number):
        earlier = counted(progress.threads, "thread")
        notes.append(f"trained by {earlier} so far, by {number} now: last digits will differ")
    progress.threads = shared.number = number
    return notes


def choose_threads(session: TrainingSession) -> list[str]:
    """Set one thread or all, whichever computes the gradient of a step sooner; return a note.

    Weights, optimizer and random numbers of the training stay as they are.
    """
    number = torch.get_num_threads()
    if number == 1:
        return []
    settings = session.config.training
    order = EpochOrder(session.data.train, settings.batch_tokens, session.config.seed, 0)
    batches = own_batches(session, order[: settings.accumulate])
    compute_gradient(session, batches)  # allocates
    seconds: dict[int, list[float]] = {1: [], number: []}
    for _ in range(ROUNDS):
        for threads, measured in seconds.items():
            torch.set_num_threads(threads)
            began = perf_counter()
            compute_gradient(session, batches)
            measured.append(perf_counter() - began)
    alone, together = min(seconds[1]), min(seconds[number])
    torch.set_num_threads(number if together < alone else 1)
    text = f"a gradient takes one thread {alone:.2g} s, {number} threads {together:.2g} s"
    return [f"{counted(torch.get_num_threads(), 'thread')}: {text}; {VARIABLE} decides otherwise"]
