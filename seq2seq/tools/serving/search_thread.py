"""Thread in which batches are searched, one after the other; small ones pass a large one."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")


class SearchThread:
    """Thread that makes calls; the event loop waits for their results.

    A call that takes long calls `let_pass` at its steps: calls that may pass it are made there,
    and it continues once they have returned.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "translation")
        self._passing: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def close(self) -> None:
        """End the thread once all calls have been made."""
        self._pool.shutdown()

    def run(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Make a call after all others."""
        return asyncio.wrap_future(self._pool.submit(call))

    def pass_others(self, call: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Make a call at the next step of the one that is being made, or after it."""
        future: Future[Result] = Future()
        self._passing.append((future, call))
        self._pool.submit(self.let_pass)  # for a call that returns before its next step
        return asyncio.wrap_future(future)

    def let_pass(self) -> None:
        """Make the calls that are to pass; the last ones first, as they may pass those before."""
        with suppress(IndexError):
            while True:
                future, call = self._passing.pop()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
