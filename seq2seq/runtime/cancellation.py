"""Cancellation of a computation from outside: it asks at every step whether it should stop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], object] | None] = ContextVar("cancellation", default=None)


@contextmanager
def cancellable(check: Callable[[], object]) -> Iterator[None]:
    """Let `check`, called at each step in any thread, end searches of this context by an error."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_cancelled() -> None:
    """Raise the error of a computation that is to end."""
    if (check := _CHECK.get()) is not None:
        check()
