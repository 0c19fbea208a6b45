"""Number of CPU threads of a training: chosen once, by timing gradients, and kept by the run.

A second thread may save a third of the time. Where another program needs its core, threads wait for
each other, and steps may take several times as long. The number decides the last bits of sums, so
that a resumed run keeps it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch

from seq2seq.data.batching import EpochOrder
from seq2seq.runtime.console import counted
from seq2seq.runtime.device import may_use_threads
from seq2seq.runtime.threads import VARIABLE, are_threads_set, shared_threads
from seq2seq.training.batches import own_batches
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import compute_gradient

ROUNDS = 2  # in which each number of threads computes a gradient


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
    progress = session.progress
    shared = shared_threads()
    notes = list[str]()
    if _may_choose(session):
        if run_threads := progress.threads or shared.number:
            torch.set_num_threads(run_threads)
        elif not progress.step:
            notes = choose_threads(session)
    number = torch.get_num_threads()
    if progress.threads not in (0, number):
        earlier = counted(progress.threads, "thread")
        notes.append(f"trained by {earlier} so far, by {number} now: last digits will differ")
    progress.threads = shared.number = number
    return notes


def _may_choose(session: TrainingSession) -> bool:
    is_alone = session.device.type == "cpu" and session.run.group.size == 1
    return is_alone and not are_threads_set() and may_use_threads()


def choose_threads(session: TrainingSession) -> list[str]:
    """Set one thread or all, whichever computes the gradient of a step sooner; return a note.

    Weights, optimizer and random numbers of the training stay as they are.
    """
    number = torch.get_num_threads()
    if number == 1:
        return []
    one_thread, all_threads = gradient_seconds(session, [1, number])
    torch.set_num_threads(number if all_threads < one_thread else 1)
    text = f"a gradient takes one thread {one_thread:.2g} s, {number} threads {all_threads:.2g} s"
    return [f"{counted(torch.get_num_threads(), 'thread')}: {text}; {VARIABLE} decides otherwise"]


def gradient_seconds(session: TrainingSession, numbers: Sequence[int]) -> list[float]:
    """Return the seconds in which each number of threads computes the gradient of the first step.

    They take turns, so that other work meets all; the shortest time of each counts.
    """
    settings = session.config.training
    order = EpochOrder(session.data.train, settings.batch_tokens, session.config.seed, 0)
    batches = own_batches(session, order[: settings.accumulate])
    compute_gradient(session, batches)  # allocates
    seconds: dict[int, list[float]] = {number: [] for number in numbers}
    for number in [*numbers] * ROUNDS:
        torch.set_num_threads(number)
        began = perf_counter()
        compute_gradient(session, batches)
        seconds[number].append(perf_counter() - began)
    return [min(measured) for measured in seconds.values()]
