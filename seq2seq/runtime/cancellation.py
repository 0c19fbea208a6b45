"""Cancellation of a computation from outside: it asks at every step whether it should stop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], object] | None] = ContextVar("cancellation", default=None)


@contextmanager
def cancellable(check: Callable[[], object]) -> Iterator[None]:
    """Let `check` end, by raising an error, the searches that are called within this context.

    It is called at each step, in any of the threads that search.
    """
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_cancelled() -> None:
    """Raise the error of a computation that is to end."""
    if (check := _CHECK.get()) is not None:
        check()
