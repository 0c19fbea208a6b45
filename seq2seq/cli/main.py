"""The entry point of the `seq2seq` command: runs a subcommand and returns its exit code.

Heavy libraries are imported inside functions, so that `seq2seq --help` stays fast.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

from seq2seq.cli.arguments import option
from seq2seq.cli.parser import COMMANDS, parse
from seq2seq.runtime.console import console, logger
from seq2seq.runtime.errors import (
    RunError,
    UserError,
    arguments_spelled,
    is_out_of_memory,
    missing_extra,
)
from seq2seq.runtime.process_group import reports_errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit code.

    The code is 0 on success, 2 for a mistake of the user found before any work, 1 for a later
    failure, and 128 plus the signal number after an interruption: 129, 130 (Ctrl-C) or 143.
    """
    _replace_closed_streams()
    _limit_spinning()
    hold_interrupts("torch")
    with arguments_spelled(option), console():
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Sequence[str]) -> int:
    """Run a subcommand and return its exit code; log the message of an error."""
    options = None
    try:
        options = parse(arguments)
        options.call = main  # for commands that run others
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _fail(error.lines, 2)
    except RunError as error:
        return _fail(error.lines, 1)
    except KeyboardInterrupt as stop:
        signal_number = getattr(stop, "signal_number", None)
        if signal_number is not None:  # training has saved its state and logged how to resume
            return 128 + int(signal_number)
        return _fail(["interrupted"], 128 + getattr(stop, "number", signal.SIGINT))
    except ModuleNotFoundError as error:
        called = next((word for word in arguments if word in COMMANDS), "seq2seq")
        if (message := missing_extra(error, called)) is None:
            raise
        return _fail(message.lines, 2)
    except BrokenPipeError:  # the reader of stdout has finished, as `head` does
        _discard_stdout()
        return 0
    except OSError as error:
        return _fail([f"{error.filename or 'input or output'}: {error.strerror or error}"], 1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _fail([f"out of memory{_memory_remedy(options)}"], 1)


def _memory_remedy(options: argparse.Namespace | None) -> str:
    """Return what reduces the memory of a subcommand, with the present values."""
    if options is None:
        return ""
    if hasattr(options, "overrides"):
        return "; reduce training.batch_tokens or the size of the model"
    remedies = []
    if getattr(options, "model", None) and hasattr(options, "beam"):
        from seq2seq.runs.run_config import read_config

        with suppress(UserError):
            beam = options.beam or read_config(Path(options.model[0])).decoding.beam_size
            remedies += [f"-b (now {beam})"] * (beam > 1)
    if hasattr(options, "batch_size"):
        from seq2seq.cli.input import BATCH_LINES

        lines = options.batch_size or BATCH_LINES
        remedies += [f"--batch-size (now {lines})"] * (lines > 1)
    if not remedies:
        return "; give fewer or shorter lines, or use a machine with more memory"
    return f"; reduce {' or '.join(remedies)}"


def _fail(lines: Sequence[str], code: int) -> int:
    if reports_errors():
        for start, line in zip_longest(["seq2seq: error: "], lines, fillvalue=""):
            logger.error(f"{start}{line}")
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()
    return code


def _discard_stdout() -> None:
    """Redirect stdout to the null device, since Python flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed.

    Otherwise the next file opened would take the stream's descriptor, and messages would be written
    into it. The modes are reversed, so that reading or writing a closed stream raises an error.
    """
    for name, mode in (("stdin", "w"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def hold_interrupts(module: str) -> None:
    """Let Ctrl-C wait until a module that is not imported yet has been.

    The initialisation of torch in C++ imports NumPy and ignores the KeyboardInterrupt, or fails.
    """
    if module not in sys.modules and not any(isinstance(f, _Holding) for f in sys.meta_path):
        sys.meta_path.insert(0, _Holding(module))


class _Holding(MetaPathFinder):
    """Finder of one module, during whose import SIGINT is only noted."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of the module that the other finders have; None for others."""
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with _noted_interrupts():
                    execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextmanager
def _noted_interrupts() -> Iterator[None]:
    """Raise SIGINT again after the block if it arrived within."""
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield
        return
    noted: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)


def _limit_spinning() -> None:
    """Limit OpenMP spin-waiting (must be set before torch is imported).

    By default, waiting threads spin for milliseconds. If another program needs a core, they take
    it from the thread they wait for.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
