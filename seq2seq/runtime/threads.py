"""The number of CPU threads that the user asks for, or that several trainings share.

Otherwise `training/threads.py` chooses that of a training, and `engines/onnx/network.py` that of a
search.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

VARIABLE = "OMP_NUM_THREADS"  # for torch and for search


def are_threads_set() -> bool:
    """Return whether the user decides the number, in whatever form OpenMP understands."""
    return VARIABLE in os.environ


def requested_threads() -> int | None:
    """Return the number that the user asks for, None without one."""
    number = os.environ.get(VARIABLE, "")
    return int(number) or None if number.isdecimal() else None


def set_threads(number: int | None) -> None:
    """Set the number of this process and its children, if given, before torch is imported."""
    if number is not None:
        os.environ[VARIABLE] = str(number)


@dataclass
class SharedThreads:
    """Number of threads of all trainings of a comparison; 0: the first one chooses it."""

    number: int = 0


_shared: ContextVar[SharedThreads | None] = ContextVar("_shared", default=None)


@contextmanager
def same_threads(number: int) -> Iterator[None]:
    """Let all trainings within the context have one number of threads; 0: that of the first."""
    token = _shared.set(SharedThreads(number))
    try:
        yield
    finally:
        _shared.reset(token)


def shared_threads() -> SharedThreads:
    """Return the number that trainings in this context share; outside of one, of this training."""
    return _shared.get() or SharedThreads()
