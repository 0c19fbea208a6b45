"""The number of CPU threads that the user asks for, or that several trainings share."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

VARIABLE = "OMP_NUM_THREADS"  # decides, for torch and for search


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
