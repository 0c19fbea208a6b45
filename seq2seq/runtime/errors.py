"""Errors reported to the user as one line: place, problem, remedy.

Messages name the arguments of functions, as `argument` spells them: a Python caller reads
`n_best=3`, and the command line sets a spelling of its own, `--n-best 3`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from seq2seq.runtime.console import one_line

Spelling = Callable[[str, object], str]

_OUT_OF_MEMORY = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc"
    "|STATUS_ALLOC_FAILED|ALLOCATION_FAILED"  # cuBLAS, cuDNN
)


def python_spelling(name: str, value: object = None) -> str:
    """Spell an argument as in a call of a Python function."""
    if value is None:
        return name
    return f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"


_spelling: ContextVar[Spelling] = ContextVar("spelling", default=python_spelling)


@contextmanager
def arguments_spelled(spelling: Spelling) -> Iterator[None]:
    """Spell the arguments in messages in this way within the context."""
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


def argument(name: str, value: object = None) -> str:
    """Return an argument of a function, with its value unless that is None, as the caller does."""
    return _spelling.get()(name, value)


class ReportedError(Exception):
    """Error whose arguments are the lines of its message, mostly a single one.

    A line never becomes two, whatever file names and keys are in it. The first one begins with the
    `argument` that the error is about, if any.
    """

    def __init__(self, *lines: str, argument: str | None = None, value: object = None) -> None:
        if argument is not None:
            lines = (f"{_spelling.get()(argument, value)}: {lines[0]}", *lines[1:])
        super().__init__(*lines)
        self.argument = argument

    @property
    def lines(self) -> list[str]:
        """The lines, with control characters escaped."""
        return [one_line(str(line)) for line in self.args]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class UserError(ReportedError, ValueError):
    """Invalid command, config or data, found before any work starts (exit code 2)."""


class RunError(ReportedError, RuntimeError):
    """Failure of work that has already started (exit code 1)."""


class UnsuitableRun(ReportedError):
    """Failure that lies in the config of a run: it diverges or needs too much memory."""


class TooLarge(UnsuitableRun, UserError):
    """Model that does not fit into memory."""


class TrainingFailed(UnsuitableRun, RunError):
    """Training that diverged or ran out of memory."""


class UnreadableFile(UserError):
    """Existing file that cannot be opened now; nothing is known of its content."""


class DamagedFile(UserError):
    """Corrupt file in a run folder: its content is not what was written to it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an allocation failed in Python, on the CPU or in CUDA.

    Not all have an exception type of their own: a RuntimeError is recognised by its message.
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))
