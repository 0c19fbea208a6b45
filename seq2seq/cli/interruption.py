"""Ctrl-C: the first waits until a command is loaded, a second one ends the process at once."""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from seq2seq.runtime.interrupts import PatientHandler

# Libraries whose initialisation in C++ ignores Ctrl-C, or fails by it.
_COMPILED = ("torch", "onnxruntime")
_TOGETHER = 0.3  # seconds in which several signals are one Ctrl-C, which wrappers pass on


class DeferredInterrupt(PatientHandler):
    """Handler of SIGINT that lets the first Ctrl-C wait; a second one ends the process."""

    def __init__(self) -> None:
        self.is_waiting = False

    def __call__(self, _number: int, _frame: object) -> None:
        self.is_waiting = True


@contextmanager
def frozen_objects() -> Iterator[None]:
    """Keep the garbage collector from what is loaded: it would take a quarter of a second.

    Ctrl-C waits: torch's initialisation in C++ would ignore it, or fail. A second one does not.
    """
    deferred = DeferredInterrupt()
    receives_signals = threading.current_thread() is threading.main_thread()
    if receives_signals:
        handler = signal.signal(signal.SIGINT, deferred)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
        if receives_signals:
            signal.signal(signal.SIGINT, handler)
        if deferred.is_waiting and callable(handler):
            handler(signal.SIGINT, None)  # a signal would count as a second Ctrl-C
        elif deferred.is_waiting:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def second_interrupt_ends() -> Iterator[None]:
    """End the process at a second SIGINT: the first may wait for a computation outside of Python.

    While torch or ONNX Runtime is imported, the first one ends it: there is nothing to lose yet. A
    command that handles SIGINT in its own way, as the server does, is left alone.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if before != -1:  # of the calling program
        signal.set_wakeup_fd(before)
    else:
        threading.Thread(target=_watch, args=(reader,), name="interrupts", daemon=True).start()
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        os.close(writer)  # ends the thread
        if before != -1:
            os.close(reader)


def _watch(reader: int) -> None:
    """Read the numbers of signals as they arrive; the system writes them, not Python."""
    first = None
    with suppress(OSError):
        while numbers := os.read(reader, 1):
            handler = signal.getsignal(signal.SIGINT)
            is_default = handler is signal.default_int_handler
            is_ours = is_default or isinstance(handler, PatientHandler)
            if numbers[0] != signal.SIGINT or not is_ours:
                continue
            now = time.monotonic()
            if _is_importing() or (first is not None and now - first > _TOGETHER):
                os._exit(128 + signal.SIGINT)
            first = now if first is None else first
    with suppress(OSError):
        os.close(reader)


def _is_importing() -> bool:
    """Return whether a compiled library is being imported, by the mark of Python's own imports."""
    specs = (getattr(sys.modules.get(name), "__spec__", None) for name in _COMPILED)
    return any(getattr(spec, "_initializing", False) for spec in specs)
