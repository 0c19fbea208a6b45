"""Errors reported to the user as one line: place, problem, remedy."""

import re

from seq2seq.runtime.console import one_line

_OUT_OF_MEMORY = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc"
    "|STATUS_ALLOC_FAILED|ALLOCATION_FAILED"  # cuBLAS, cuDNN
)


class ReportedError(Exception):
    """Error whose arguments are the lines of its message, mostly a single one.

    A line never becomes two, whatever file names and keys are in it.
    """

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
