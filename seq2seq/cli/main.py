"""The entry point of the `seq2seq` command: runs a subcommand and returns its exit code.

Heavy libraries are imported inside functions, so that `seq2seq --help` stays fast.
"""

import os
import signal
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from seq2seq.cli.arguments import option
from seq2seq.cli.interruption import second_interrupt_ends
from seq2seq.cli.options import Groups
from seq2seq.cli.parser import commands_of, parse
from seq2seq.model.trusted_scores import trusted_scores
from seq2seq.runtime import errors
from seq2seq.runtime.console import console, logger
from seq2seq.runtime.process_group import reports_errors

_MEMORY = (
    "translate with a smaller -b or --batch-size, train with less training.batch_tokens or a "
    "smaller model"
)


def main(groups: Groups, arguments: Sequence[str]) -> int:
    """Run a subcommand of the groups and return its exit code.

    The code is 0 on success, 2 for a mistake of the user found before any work, 1 for a later
    failure, and 128 plus the signal number after an interruption: 129, 130 (Ctrl-C) or 143.
    """
    _replace_closed_streams()
    _limit_spinning()
    with errors.arguments_spelled(option), console(), second_interrupt_ends():
        try:
            return _run(groups, arguments)
        except Exception as error:
            if not _is_interrupt(error):
                raise
            return _fail(["interrupted"], 128 + signal.SIGINT)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: imports turn it into others, each in its own way."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _run(groups: Groups, arguments: Sequence[str]) -> int:
    try:
        call = parse(arguments, groups)
        with trusted_scores(call.scores):
            code = call.run(call.options)
        sys.stdout.flush()
        return code
    except errors.ReportedError as error:
        return _fail(error.lines, 2 if isinstance(error, errors.UserError) else 1)
    except KeyboardInterrupt as stop:
        signal_number = getattr(stop, "signal_number", None)
        if signal_number is not None:  # training has saved its state and logged how to resume
            return 128 + int(signal_number)
        return _fail(["interrupted"], 128 + next(iter(stop.args), signal.SIGINT))
    except ModuleNotFoundError as error:
        called = next((word for word in arguments if word in commands_of(groups)), "seq2seq")
        if (message := errors.missing_extra(error, called)) is None:
            raise
        return _fail(message.lines, 2)
    except BrokenPipeError:  # the reader of stdout has finished, as `head` does
        _discard_stdout()
        return 0
    except OSError as error:
        return _fail([f"{error.filename or 'input or output'}: {error.strerror or error}"], 1)
    except (MemoryError, RuntimeError) as error:
        if not errors.is_out_of_memory(error):
            raise
        return _fail([f"out of memory; {_MEMORY}"], 1)


def _fail(lines: Sequence[str], code: int) -> int:
    if reports_errors():
        for start, line in zip_longest(["seq2seq: error: "], lines, fillvalue=""):
            logger.error(f"{start}{errors.shorten_middle(line)}")
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()
    return code


def _discard_stdout() -> None:
    """Redirect stdout to the null device, since Python flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that is closed: a file could take its place.

    The modes are reversed, so that reading or writing a closed stream raises an error.
    """
    for name, mode in (("stdin", "w"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _limit_spinning() -> None:
    """Limit the milliseconds for which OpenMP's threads wait on a core that others may need.

    This has to be set before torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
