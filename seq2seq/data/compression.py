"""Open files that may be compressed by gzip or bzip2, by their ending.

Everything is decompressed as it is read, so that memory does not depend on the size of the content.
"""

import bz2
import gzip
import io
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from seq2seq.runtime.errors import UserError, suggest_file
from seq2seq.runtime.file_types import BZIP2, GZIP, HEAD_BYTES, describe, recognise
from seq2seq.runtime.files import check_paths

_TOOLS = {".gz": "gzip", ".bz2": "bzip2"}  # with -dc they decompress a file
_TYPES = {".gz": GZIP, ".bz2": BZIP2}


def is_compressed(path: Path) -> bool:
    """Return whether the ending of a file's name is that of a compressed file."""
    return path.suffix in _TOOLS


def commands(path: Path) -> tuple[str, str] | None:
    """Return the shell commands that print a file and that compress its like; None if plain."""
    if (tool := _TOOLS.get(path.suffix)) is None:
        return None
    return f"{tool} -dc < {shlex.quote(str(path))}", tool


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a text file for reading bytes, decompressed by its ending: .gz or .bz2.

    Raises UserError if it cannot be opened, is of another type by its first bytes or is damaged
    there. Later damage raises errors that `damage_errors` converts.
    """
    with open_content(path, check_is_text) as file:
        yield file


@contextmanager
def open_content(path: Path, check: Callable[[bytes, Path, bool], None]) -> Iterator[IO[bytes]]:
    """Open a file as `open_file` does; `check` judges the first bytes, before and after unpacking.

    Raises UserError as `open_file` does, but for another type only if `check` does.
    """
    check_paths(path)
    with ExitStack() as stack:
        with opening_errors(path):
            raw = stack.enter_context(path.open("rb"))
            check(_first_bytes(path), path, False)
        if not is_compressed(path):
            yield raw
            return
        with damage_errors(path):
            file = stack.enter_context(_opened(raw, path, "rb"))
            check(cast(io.BufferedReader, file).peek(HEAD_BYTES), path, True)
        yield file


def _opened(raw: IO[bytes], path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile("", mode, fileobj=raw, mtime=0))
    return cast(IO[bytes], bz2.BZ2File(raw, mode))  # type: ignore[call-overload]


@contextmanager
def opening_errors(path: Path) -> Iterator[None]:
    """Raise UserError, naming the file, for any failure to open or read it."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{suggest_file(path)}") from None
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error})"
        if path.is_dir():
            reason = "is a folder. Give a text file."
        raise UserError(f"{path}: {reason}") from None


@contextmanager
def damage_errors(path: Path, error_class: type[Exception] = UserError) -> Iterator[None]:
    """Raise an error that names a compressed file if it turns out to be damaged."""
    try:
        yield
    except (EOFError, zlib.error, OSError) as error:
        if not is_compressed(path) or (isinstance(error, OSError) and error.errno is not None):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise error_class(
            f"{path}: the {_TOOLS[path.suffix]} file is damaged or incomplete ({reason}). Copy or "
            "download it again"
        ) from None


@contextmanager
def compressing(raw: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """Yield a file whose content is compressed into `raw`, by the ending of `path`.

    Equal content gives equal files.
    """
    if not is_compressed(path):
        yield raw
        return
    with _opened(raw, path, "wb") as file:
        yield file


def check_is_readable(head: bytes, path: Path, packed: bool = False) -> None:
    """Raise UserError as `check_is_text` does, but not for markup."""
    kind = recognise(head)
    if kind is not None and not kind.is_readable:
        check_is_text(head, path, packed)


def check_is_text(head: bytes, path: Path, packed: bool = False) -> None:
    """Raise UserError if the first bytes of a file, or of its content, are no lines of text.

    A file that is compressed as its ending says passes.
    """
    kind = recognise(head)
    if kind is None or (not packed and kind == _TYPES.get(path.suffix)):
        return
    if packed:
        unpack, _ = commands(path) or ("", "")
        raise UserError(f"{path}: its content is {kind.name}, not text. Run {unpack} > NEW_FILE")
    endings = [ending for ending, compressed in _TYPES.items() if compressed == kind]
    renamed = f", or rename it so that its name ends in {endings[0]}" if endings else ""
    raise UserError(f"{describe(kind, path)}{renamed}")


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a regular file; b"" for a pipe, which can be read only once."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
