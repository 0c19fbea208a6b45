"""Lines of text files: strict UTF-8, one sentence per line, compressed or not.

Only a line feed ends a line. A form feed, U+0085 or U+2028 within a sentence therefore cannot shift
one side of a parallel text against the other. Compressed files are decompressed as they are read,
so that memory does not depend on the size of the content.
"""

import bz2
import gzip
import hashlib
import io
import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any, cast

from seq2seq.runtime.errors import UserError, suggest_file
from seq2seq.runtime.file_types import BZIP2, GZIP, HEAD_BYTES, describe, recognise
from seq2seq.runtime.files import check_paths

MAX_LINE_BYTES = 1 << 24  # a longer line is no sentence
MAX_COUNTED_LINES = 1_000_000  # further lines that are counted for a message
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20  # read and decoded at a time
_TOOLS = {".gz": "gzip", ".bz2": "bzip2"}  # with -dc they decompress a file
_TYPES = {".gz": GZIP, ".bz2": BZIP2}


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file as `iter_lines` yields them."""
    return list(iter_lines(path))


def iter_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file, decompressed if its name ends in .gz or .bz2.

    Line ends (`\n` or `\r\n`) and a byte-order mark at the start of the file are removed; nothing
    else changes. Raises UserError if the file is missing, empty, damaged, not UTF-8, not text,
    contains a NUL character or a line of more than MAX_LINE_BYTES, and if CR alone ends its lines.
    """
    for text in iter_text(path):
        yield from _split(text)


def lines_of(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open file, which `name` names, as `iter_lines` does."""
    for text in _blocks(file, Path(name)):
        yield from _split(text)


def _split(text: str) -> Iterator[str]:
    """Yield the lines of a block."""
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    for line in lines:
        yield line.removesuffix("\r")


def iter_text(path: Path) -> Iterator[str]:
    """Yield a file in blocks of complete lines, ends included; raises UserError as `iter_lines`."""
    with open_file(path) as file, opening_errors(path), damage_errors(path):
        yield from _blocks(file, path)


def _blocks(file: IO[bytes], path: Path) -> Iterator[str]:
    block, lines = _read_block(file, path, 1)
    block = block.removeprefix(_BYTE_ORDER_MARK)
    if not block:
        raise UserError(f"{path}: the file is empty. It needs one sentence per line.")
    number = 1
    while block:
        yield decode(block, path, number)
        number += lines
        block, lines = _read_block(file, path, number)


def aligned_lines(src: Path, tgt: Path) -> Iterator[tuple[str, str]]:
    """Yield line n of both files together; raise UserError if their numbers of lines differ."""
    named_lines = [(str(path), iter_lines(path)) for path in (src, tgt)]
    rule = "line n of one must translate line n of the other"
    yield from in_step(named_lines, rule)


def in_step(
    named_lines: Sequence[tuple[str, Iterator[Any]]],
    rule: str = "line n of one must belong to line n of the other",
) -> Iterator[tuple[Any, ...]]:
    """Yield line n of all texts together, given by name.

    Raises UserError with `rule` as soon as one of them ends before another.
    """
    iterators = [lines for _, lines in named_lines]
    for number, row in enumerate(zip_longest(*iterators)):
        if None in row:
            counts = [_count_from(number, *text) for text in zip(row, iterators, strict=True)]
            different = next(n for n, count in enumerate(counts) if count != counts[0])
            noun = "line" if counts[0] == "1" else "lines"
            reason = (
                f"{named_lines[0][0]} has {counts[0]} {noun} but {named_lines[different][0]} has"
            )
            raise UserError(f"{reason} {counts[different]}: {rule}")
        yield row


def _count_from(number: int, line: object, lines: Iterator[object]) -> str:
    """Return the number of lines of a text, of which `number` and perhaps `line` were read."""
    if line is None:
        return str(number)
    count = number + 1 + sum(1 for _ in islice(lines, MAX_COUNTED_LINES))
    return f"more than {count}" if next(lines, None) is not None else str(count)


def bounded_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a binary file. Raises UserError for one of more than MAX_LINE_BYTES."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        check_line_length(len(line), name, number)
        yield line


def check_line_length(length: int, name: str, number: int) -> None:
    """Raise UserError for a line of more than MAX_LINE_BYTES."""
    if length > MAX_LINE_BYTES:
        text = f"{name}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB."
        raise UserError(f"{text} Give one sentence per line")


def strip_line(line: bytes, first: bool) -> bytes:
    r"""Remove the line end (`\n` or `\r\n`) and, from the first line, a byte-order mark."""
    content = line.removesuffix(b"\n").removesuffix(b"\r")
    return content.removeprefix(_BYTE_ORDER_MARK) if first else content


def checksum_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises UserError if the file cannot be read."""
    check_paths(path)
    with opening_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_block(file: IO[bytes], path: Path, number: int) -> tuple[bytes, int]:
    """Return complete lines from line `number` on, and how many; raises UserError for others."""
    block = file.read(_BLOCK_BYTES)
    if number == 1:
        check_is_text(block, path)
    line_feeds = _check_line_ends(block, path, number)
    if block.endswith(b"\n") or not block:
        return block, line_feeds
    _check_nul(block, path, number)  # before a line without end is read
    end = file.readline(MAX_LINE_BYTES + 1)
    check_line_length(len(end), str(path), number + line_feeds)
    return block + end, line_feeds + 1


def _check_line_ends(block: bytes, path: Path, number: int) -> int:
    """Return the number of line feeds; raise UserError if CR alone ends the lines."""
    line_feeds = block.count(b"\n")
    returns = block.count(b"\r") - block.count(b"\r\n") - block.endswith(b"\r")  # LF may follow
    if returns > line_feeds:
        text = f"{path}:{number}: line ends are CR alone; only LF and CRLF end a line."
        raise UserError(
            f"{text} Convert with: tr '\\r' '\\n' < {shlex.quote(str(path))} > NEW_FILE"
        )
    return line_feeds


def _check_nul(block: bytes, path: Path, number: int) -> None:
    if (nul := block.find(b"\0")) >= 0:
        number += block.count(b"\n", 0, nul)
        raise UserError(
            f"{path}:{number}: contains a NUL character; no text does. If this is text in UTF-16, "
            f"convert it: iconv -f UTF-16 -t UTF-8 {shlex.quote(str(path))} > NEW_FILE"
        )


def decode(block: bytes, path: Path, number: int) -> str:
    """Decode lines of a file from `number` on; raises UserError for NUL and for bytes not UTF-8."""
    _check_nul(block, path, number)
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        number += block.count(b"\n", 0, error.start)
        line_start = block.rfind(b"\n", 0, error.start) + 1
        column = len(block[line_start : error.start].decode("utf-8")) + 1
        text = f"{path}:{number}: byte 0x{block[error.start]:02x} at column {column} is not UTF-8."
        raise UserError(f"{text} Convert the file: iconv -f ENCODING -t UTF-8.") from None


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
    """Open as `open_file` does; `check` judges the first bytes, before and after unpacking."""
    check_paths(path)
    with ExitStack() as stack:
        with opening_errors(path):
            raw = stack.enter_context(path.open("rb"))
            if path.is_file():  # a pipe can be read only once
                check(raw.read(HEAD_BYTES), path, False)
                raw.seek(0)
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
        text = f"{path}: the {_TOOLS[path.suffix]} file is damaged or incomplete ({reason})."
        raise error_class(f"{text} Copy or download it again") from None


@contextmanager
def compressing(raw: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that is compressed into `raw` by the ending of `path`, reproducibly."""
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
