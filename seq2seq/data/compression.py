"""Open files that may be compressed, by their ending; their first bytes must agree with it.

Everything is decompressed as it is read, so that memory does not depend on the size of the content.
"""

import bz2
import gzip
import io
import lzma
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from seq2seq.runtime.errors import UserError
from seq2seq.runtime.extras import not_installed
from seq2seq.runtime.file_types import (
    BZIP2,
    GZIP,
    HEAD_BYTES,
    XZ,
    ZSTD,
    FileType,
    describe,
    recognise,
)
from seq2seq.runtime.files import check_paths
from seq2seq.runtime.suggestions import suggest_file

MAX_XZ_BYTES = 1 << 28  # memory of a decompressor; xz -9 needs 65 MiB, a hostile file 4 GiB
_XZ_READ_BYTES = 1 << 16


class _Format(NamedTuple):
    kind: FileType
    command: str  # compresses standard input; with -dc it decompresses a file
    open: Callable[[IO[bytes], str], IO[bytes]]


def _gzip(raw: IO[bytes], mode: str) -> IO[bytes]:
    file = gzip.GzipFile(filename="", mode=mode, fileobj=raw, mtime=0)
    return cast(IO[bytes], file)


def _bz2(raw: IO[bytes], mode: str) -> IO[bytes]:
    return cast(IO[bytes], bz2.BZ2File(raw, mode))  # type: ignore[call-overload]


def _xz(raw: IO[bytes], mode: str) -> IO[bytes]:
    if mode == "rb":
        return cast(IO[bytes], io.BufferedReader(_XzReader(raw)))
    return cast(IO[bytes], lzma.LZMAFile(raw, mode))


class _XzReader(io.RawIOBase):
    """Decompress xz streams within MAX_XZ_BYTES of memory, which `lzma.LZMAFile` does not limit."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._stream, self._pending = raw, _new_stream(), b""
        self._begun = False  # the current stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill part of a buffer; return the number of bytes, 0 at the end."""
        while True:
            if self._stream.eof:
                self._pending, self._begun = self._stream.unused_data.lstrip(b"\0"), False
                self._stream = _new_stream()
            if self._stream.needs_input and not self._pending:
                self._pending = self._raw.read(_XZ_READ_BYTES)
                if not self._begun:
                    self._pending = self._pending.lstrip(b"\0")  # padding after a stream
            if self._stream.needs_input and not self._pending:
                if self._begun:
                    raise EOFError
                return 0
            self._begun = True
            data = self._stream.decompress(self._pending, len(buffer))
            self._pending = b""
            if data:
                buffer[: len(data)] = data
                return len(data)


def _new_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_BYTES)


def _zstd(raw: IO[bytes], mode: str) -> IO[bytes]:
    zstd = _zstd_module()
    checked = {zstd.CompressionParameter.checksum_flag: 1} if mode == "wb" else None
    return cast(IO[bytes], zstd.ZstdFile(raw, mode, options=checked))


_FORMATS = {
    ".gz": _Format(GZIP, "gzip", _gzip),
    ".bz2": _Format(BZIP2, "bzip2", _bz2),
    ".xz": _Format(XZ, "xz", _xz),
    ".zst": _Format(ZSTD, "zstd", _zstd),
}
SUFFIXES = tuple(_FORMATS)


def is_compressed(path: Path) -> bool:
    """Return whether the ending of a file's name is that of a compressed file."""
    return path.suffix in _FORMATS


def commands(path: Path) -> tuple[str, str] | None:
    """Return the shell commands that print a file and that compress its like; None if plain."""
    if (format_ := _FORMATS.get(path.suffix)) is None:
        return None
    return f"{format_.command} -dc < {shlex.quote(str(path))}", format_.command


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a text file for reading bytes, decompressed by its ending: .gz, .bz2, .xz or .zst.

    Raises UserError if it cannot be opened, is of another type by its first bytes, is damaged
    there, or needs a package that is missing. Later damage raises one of `damage()`.
    """
    with open_content(path, check_is_text) as file:
        yield file


@contextmanager
def open_content(
    path: Path, check: Callable[[bytes, Path, bool], None] | None = None
) -> Iterator[IO[bytes]]:
    """Open a file as `open_file` does; `check` judges the first bytes, before and after unpacking.

    Raises UserError as `open_file` does, but for another type only if `check` does.
    """
    check_paths(path)
    if path.is_char_device():
        raise UserError(f"{path}: is a device, which may never end. Give a text file.")
    with ExitStack() as stack:
        with opening_errors(path):
            raw = stack.enter_context(path.open("rb"))
            if check is not None:
                check(_first_bytes(path), path, False)
        if path.suffix not in _FORMATS or not _peek(raw):
            yield raw
            return
        format_ = _FORMATS[path.suffix]
        _check_content(raw, format_, path)
        with damage_errors(path):
            file = stack.enter_context(format_.open(raw, "rb"))
            if check is not None:
                check(_peek(file), path, True)
        yield file


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


def damage() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a damaged compressed file raises."""
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
    try:
        return (*errors, _zstd_module().ZstdError)
    except ImportError:
        return errors


@contextmanager
def damage_errors(path: Path, error_class: type[Exception] = UserError) -> Iterator[None]:
    """Raise an error that names the file if it turns out to be damaged or cannot be read."""
    if path.suffix not in _FORMATS:
        yield
        return
    name = _FORMATS[path.suffix].command
    again = "Copy or download it again"
    try:
        yield
    except EOFError:
        raise error_class(
            f"{path}: the {name} file is incomplete: truncated or damaged. {again}"
        ) from None
    except damage() as error:
        if "Memory usage limit" in str(error):
            raise error_class(
                f"{path}: needs more than {MAX_XZ_BYTES >> 20} MiB to be decompressed. Compress it "
                "again: xz -dc OLD | xz -6 > NEW"
            ) from None
        reason = " ".join(str(error).split()).rstrip(".")
        raise error_class(f"{path}: the {name} file is damaged ({reason}). {again}") from None
    except OSError as error:
        if error.errno is not None or error.strerror:  # bz2 reports damage as a bare OSError
            raise
        raise error_class(f"{path}: the {name} file is damaged ({error}). {again}") from None


@contextmanager
def compressing(raw: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """Yield a file whose content is compressed into `raw`, by the ending of `path`.

    Equal content gives equal files. Raises UserError if a package is missing.
    """
    if (format_ := _FORMATS.get(path.suffix)) is None:
        yield raw
        return
    if format_.kind == ZSTD:
        _check_zstd(path)
    with format_.open(raw, "wb") as file:
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
    if (kind := recognise(head)) is None:
        return
    if packed:
        unpack, _ = commands(path) or ("", "")
        remedy = kind.remedy.format(path="NEW_FILE").replace("> NEW_FILE", "> TEXT_FILE")
        raise UserError(
            f"{path}: its content is {kind.name}, not text. Run {unpack} > NEW_FILE. {remedy}"
        )
    suffixes = [suffix for suffix, format_ in _FORMATS.items() if format_.kind == kind]
    if path.suffix not in suffixes:
        renamed = f", or rename it so that its name ends in {suffixes[0]}" if suffixes else ""
        raise UserError(f"{describe(kind, path)}{renamed}")


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a regular file; b"" for a pipe, which can be read only once."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _peek(file: IO[bytes]) -> bytes:
    """Return bytes at the start of a file without consuming them; b"" if it is empty."""
    return bytes(cast(io.BufferedReader, file).peek(HEAD_BYTES))


def _check_content(raw: IO[bytes], format_: _Format, path: Path) -> None:
    """Raise UserError if a file is not compressed as its ending says, or cannot be unpacked."""
    if format_.kind == ZSTD:
        _check_zstd(path)
    head = _peek(raw)
    skippable = format_.kind == ZSTD and head[1:4] == b"\x2a\x4d\x18"  # a frame without content
    if not head or recognise(head) == format_.kind or skippable:
        return
    raise UserError(
        f"{path}: is not {format_.kind.name}, although its name ends in {path.suffix}. If it is "
        f"text, rename it so that its name does not end in {path.suffix}"
    )


def _zstd_module() -> Any:
    """Import zstd: part of Python from 3.14 on, before that the backport. Raises ImportError."""
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd


def _check_zstd(path: Path) -> None:
    try:
        _zstd_module()
    except ImportError:
        raise not_installed(f"{path}: .zst needs backports.zstd", "formats") from None
