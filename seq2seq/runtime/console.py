"""Console output: the logger of all packages, its messages on stderr, and aligned tables.

The packages log to the logger `seq2seq` and print nothing by themselves. Within `console()`, which
the command line and `seq2seq.train` enter, messages and progress bars appear on stderr, or in a
notebook, which shows stderr in red, on stdout; elsewhere, the logging configuration of the calling
program decides. Messages contain names and text from files of others, so that they are escaped.
"""

import logging
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

# Control characters except tab and line feed, bidi controls, line separators and lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Escape characters that control a terminal or reorder its text, as `\uXXXX`, as in JSON."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str) -> str:
    r"""Escape as `printable` does, and line feeds, too: a name cannot forge a second line."""
    return printable(text).replace("\n", r"\u000a")


def say(text: str) -> None:
    """Print a message on stdout, escaped; the logger does so on stderr."""
    _print(printable(text), sys.stdout)


def _print(text: str, stream: TextIO) -> None:
    if (tqdm := sys.modules.get("tqdm")) is not None:
        tqdm.tqdm.write(text, file=stream)
    else:
        print(text, file=stream)
    stream.flush()


def in_notebook() -> bool:
    """Return whether the program runs in the kernel of a notebook."""
    return type(sys.stdout).__module__.startswith("ipykernel")


class _ConsoleHandler(logging.Handler):
    """Write messages to the current stderr, above any progress bar; in a notebook to stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message as one line; work continues if the reader of stderr is gone."""
        text = one_line(self.format(record))
        stream = sys.stdout if in_notebook() else sys.stderr
        with suppress(OSError):
            _print(text, stream)


logger = logging.getLogger("seq2seq")
logger.addHandler(logging.NullHandler())  # else Python prints warnings that no handler takes
_HANDLER = _ConsoleHandler()
_lock = threading.Lock()
_users = 0  # contexts of `console` that are open
_outside = logging.NOTSET, True  # level and `propagate` of the logger outside of these contexts


@contextmanager
def console() -> Iterator[None]:
    """Print messages and progress bars within this context, which may be nested."""
    global _users, _outside
    with _lock:
        _users += 1
        if _users == 1:
            _outside = logger.level, logger.propagate
            logger.addHandler(_HANDLER)
            logger.setLevel(logger.level or logging.INFO)
            logger.propagate = False  # the root logger's handlers would print all again
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                logger.removeHandler(_HANDLER)
                level, logger.propagate = _outside
                logger.setLevel(level)


def processor() -> str:
    """Return the name of the processor, as the system has it."""
    with suppress(OSError):
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if model := re.search(r"^model name\s*: *(.*\S)", info, re.MULTILINE):
            return model[1]
    import platform

    return platform.processor() or "unknown"


def hides_bars() -> bool | None:
    """Return the argument `disable` of a progress bar: None draws it on terminals only."""
    return None if _users else True


def progress_bar(task: str, unit: str, total: int | None = None) -> Any:
    """Return a bar that vanishes at the end; none is drawn where `hides_bars`."""
    from tqdm import tqdm

    return tqdm(desc=task, unit=unit, total=total, leave=False, disable=hides_bars())


def aligned_table(rows: Sequence[Sequence[str]], align: str = "right") -> str:
    """Format rows of equal length as columns: the first left-aligned, the others as `align`."""
    from tabulate import tabulate

    columns = ("left", *[align] * (len(rows[0]) - 1))
    cells = [[one_line(cell) for cell in row] for row in rows]
    return tabulate(cells, tablefmt="plain", disable_numparse=True, colalign=columns)


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun}{'s' * (number != 1)}"


def size_in_bytes(count: int) -> str:
    """Return a number of bytes in kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def fixed(value: float, digits: int) -> str:
    """Format a number with `digits` decimals, or with an exponent if it is very large."""
    return f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.3g}"
