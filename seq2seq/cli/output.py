"""Lines in and lines out: files, stdin and stdout; and a word on stderr."""

import gzip
import os
import select
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import is_stream, output_path, resolve_link

BATCH_LINES = 2048  # read, sorted by length and translated together
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
_READ_BYTES = 1 << 16  # at most, at a time, of a stream: what a pipe holds


@contextmanager
def open_input(path: Path | None) -> Iterator[IO[bytes]]:
    """The lines of a file or of stdin, as bytes.

    Raises UserError where it cannot be opened, RunError where reading finds it damaged.
    """
    if path is None:
        if not sys.stdin.readable():
            raise UserError("standard input is closed; give a file, -i FILE")
        if sys.stdin.isatty():
            say("Type a sentence a line; end with Ctrl-D.")
        yield sys.stdin.buffer
        return
    if path.is_dir():
        raise UserError(f"{path}: is a folder, not a text file")
    try:
        file = _open_bytes(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except _DAMAGE as error:
        raise UserError(_damaged(path, error)) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    with file:
        try:
            yield file
        except _DAMAGE as error:
            raise RunError(_damaged(path, error)) from None


def _open_bytes(path: Path) -> IO[bytes]:
    if path.suffix != ".gz":
        return path.open("rb")
    file = gzip.open(path, "rb")  # noqa: SIM115
    file.peek(1)  # what is no gzip file at all is found before any work
    return file  # type: ignore[return-value]


def _damaged(path: Path, error: Exception) -> str:
    return f"{path}: is no whole gzip file ({error}); pack it again"


def batches(lines: IO[bytes], size: int | None) -> Iterator[tuple[int, list[bytes]]]:
    """Each batch of lines and the number, from 1, of its first; from a terminal line by line."""
    size = size or (1 if lines.isatty() else BATCH_LINES)
    number, batch = 1, []
    for line in lines:
        batch.append(line)
        if len(batch) == size:
            yield number, batch
            number, batch = number + size, []
    if batch:
        yield number, batch


def arrivals(lines: IO[bytes], size: int | None) -> Iterator[tuple[int, list[bytes]]]:
    """As `batches`, but of the lines that have arrived: it waits only where there are none."""
    size = size or BATCH_LINES
    number = 1
    for arrived in _reads(lines):
        for start in range(0, len(arrived), size):
            yield number + start, arrived[start : start + size]
        number += len(arrived)


def _reads(lines: Any) -> Iterator[list[bytes]]:
    """The lines that each single read of a binary file completes."""
    begun: list[bytes] = []  # of the line whose end is yet to come
    read = lines.raw.read if hasattr(lines, "raw") else lines.read1
    while (data := read(_READ_BYTES)) != b"":
        if data is None:  # opened without blocking, and nothing is there yet
            select.select([lines], [], [])
            continue
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            begun = []
            yield ended
        begun.append(rest)
    if any(begun):
        yield [b"".join(begun)]


class Output:
    """Text on its way to a file or to stdout; RunError where that fails, as on a full disk."""

    def __init__(self, file: IO[str], name: str) -> None:
        self._file = file
        self._name = name

    def write(self, text: str) -> None:
        """Write text, perhaps later."""
        with self._telling():
            self._file.write(text)

    def flush(self) -> None:
        """Write now what is yet to be written."""
        with self._telling():
            self._file.flush()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # no failure: the reader had enough
            raise
        except OSError as error:
            raise RunError(f"{self._name}: cannot be written ({error.strerror or error})") from None


def check_output(path: Path | None, *others: Path | None, at_once: bool = False) -> None:
    """Refuse, before any work, a path that `open_output` could not write, or one of the others.

    With `at_once` also a file, which would appear only at the end.
    """
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file name")
    if path.is_symlink() and not path.exists() and _leads_nowhere(path):
        raise UserError(f"{path}: is a link that leads to no place for a file; remove it")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"{path}: may not be written to")
    elif not os.access(folder := resolve_link(path).parent, os.W_OK):
        raise UserError(f"{path}: the folder {folder} may not be written to")
    if path.suffix == ".gz":
        raise UserError(f"{path}: is written as it is; leave .gz out")
    if any(_same(path, other) for other in others) or _is_stdin(path):
        raise UserError(f"{path}: this call reads or writes it already; choose another name")
    if at_once and (path.is_file() or not path.exists()):
        raise UserError(
            f"{path}: -o makes a file that appears whole at the end; with --stream use > {path}"
        )


def _leads_nowhere(link: Path) -> bool:
    """Whether a link goes round in circles, or into a folder that is not there."""
    try:
        return not link.resolve().parent.is_dir()
    except (RuntimeError, OSError):  # Python before 3.13, and later
        return True


def _same(path: Path, other: Path | None) -> bool:
    if other is None or path == other or not (path.is_file() and other.exists()):
        return path == other
    return path.samefile(other)


def _is_stdin(path: Path) -> bool:
    with suppress(OSError, ValueError):  # where stdin is no file of the system's
        return path.is_file() and os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
    return False


@contextmanager
def open_output(path: Path | None) -> Iterator[Output]:
    """stdout, or a file that appears whole once all is written."""
    check_output(path)
    if path is None or str(path) == "-":
        if not sys.stdout.writable():
            raise UserError("standard output is closed; give a file, -o FILE")
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield Output(sys.stdout, "standard output")
        return
    with output_path(path) as target, _opened(target, "w") as file:
        yield file


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[Output]:
    file = path.open(mode, encoding="utf-8", newline="\n")
    try:
        output = Output(file, str(path))
        yield output
        output.flush()
    finally:
        with suppress(OSError):  # of several failures the first is told
            file.close()


def say(text: str) -> None:
    """Print a line on stderr, at once; where nobody can read it, the work goes on all the same."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def fill_closed_streams() -> None:
    """Put something in the place of a standard stream that the caller closed.

    Python has None there, and the next file opened would take the number of the closed one: notes
    would end among the translations. Reading or writing what is closed fails, in words.
    """
    for name, mode in (("stdin", "w"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
