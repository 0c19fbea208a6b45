"""Forked worker processes that end with this one and leave its signals to it."""

import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

# The main process handles these, and its end ends the workers.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def worker_pool(
    count: int, initialize: Callable[..., None], arguments: tuple[Any, ...]
) -> Iterator[ProcessPoolExecutor]:
    """Yield forked processes, which share the memory of this one as it is now, without copying it.

    They end with the block, or with this process, even if it is killed. `initialize` is called in
    each, with arguments that need not be picklable. If a worker is killed, the results of all
    pending calls are BrokenProcessPool.
    """
    fork = get_context("fork")
    lifeline, held = fork.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, fork, _start, (lifeline, held, initialize, *arguments))
    try:
        with warnings.catch_warnings():  # threads exist, but workers take none of their locks
            warnings.simplefilter("ignore", DeprecationWarning)
            pool.submit(os.getpid).result()  # starts all workers
        yield pool
    finally:
        held.close()  # end the workers now, not after the calls they are busy with
        pool.shutdown(cancel_futures=True)
        lifeline.close()


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(
    lifeline: Connection, held: Connection, initialize: Callable[..., None], *arguments: Any
) -> None:
    """Ignore signals, and end this worker once its parent has closed the lifeline or died."""
    gc.freeze()  # a collection would visit, and copy, all that the parent had loaded
    held.close()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)

    def wait() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    initialize(*arguments)
