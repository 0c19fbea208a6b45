"""Lines of text files: strict UTF-8, one sentence per line, compressed or not.

Only a line feed ends a line. A form feed, U+0085 or U+2028 within a sentence therefore cannot shift
one side of a parallel text against the other.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from seq2seq.data.compression import (
    check_is_text,
    commands,
    damage_errors,
    open_file,
    opening_errors,
)
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import wide_encoding
from seq2seq.runtime.files import check_paths

MAX_LINE_BYTES = 1 << 24  # a longer line is no sentence
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK_BYTES = 1 << 20  # read and decoded at a time
# A character that is visible. Invisible are white space, Unicode's default-ignorable code
# points (DerivedCoreProperties.txt), annotation marks, the blank Braille pattern, and U+2581, which
# is a space to SentencePiece.
_VISIBLE = re.compile(
    r"[^\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2581\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Characters that end lines elsewhere, how many per line feed mean that they do so in a file, and
# the command that converts them. One within a sentence is no line end.
_OTHER_LINE_ENDS = (
    (b"\r", "CR", 1, r"tr '\r' '\n'"),
    (b"\v", "VT", 10, r"tr '\v' '\n'"),
    (b"\f", "FF", 10, r"tr '\f' '\n'"),
    (b"\x1e", "RS", 10, r"tr '\036' '\n'"),
    (b"\xc2\x85", "U+0085", 10, r"perl -pe 's/\xc2\x85/\n/g'"),
    (b"\xe2\x80\xa8", "U+2028", 10, r"perl -pe 's/\xe2\x80\xa8/\n/g'"),
    (b"\xe2\x80\xa9", "U+2029", 10, r"perl -pe 's/\xe2\x80\xa9/\n/g'"),
)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file as `iter_lines` yields them."""
    return list(iter_lines(path))


def iter_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file, decompressed if its name ends in .gz, .bz2, .xz or .zst.

    Line ends (`\n` or `\r\n`) and a byte-order mark at the start of the file are removed; nothing
    else changes. Raises UserError if the file is missing, empty, damaged, not UTF-8, not text,
    contains a NUL character or a line of more than MAX_LINE_BYTES, and if its lines end in another
    character, such as CR alone.
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
    """Yield the text of a file in blocks of complete lines, with their line ends.

    Raises UserError as `iter_lines` does.
    """
    with open_file(path) as file, opening_errors(path), damage_errors(path):
        yield from _blocks(file, path)


def _blocks(file: IO[bytes], path: Path) -> Iterator[str]:
    block, lines = _read_block(file, path, 1)
    block = block.removeprefix(_BYTE_ORDER_MARK)
    if not block:
        raise UserError(f"{path}: the file is empty. It needs one sentence per line.")
    number = 1
    while block:
        yield _decode(block, path, number)
        number += lines
        block, lines = _read_block(file, path, number)


def iter_raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, decompressed, each with its line end.

    Raises UserError if the file is missing, damaged or not text, or a line is too long.
    """
    with open_file(path) as file, opening_errors(path), damage_errors(path):
        yield from bounded_lines(file, str(path))


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
        raise UserError(
            f"{name}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB. Give one "
            "sentence per line"
        )


def is_blank(line: str) -> bool:
    """Return whether a line has no visible character: the definition for all of seq2seq."""
    return _VISIBLE.search(line) is None


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
    """Read complete lines, the first of which is line `number` of the file; return their number.

    Raises UserError for other line ends, a NUL character or a line that is too long, before more
    than a line of the maximum length is read.
    """
    block = file.read(_BLOCK_BYTES)
    if number == 1:
        check_is_text(block, path)
        _check_encoding(block, path)
    line_feeds = _check_line_ends(block, path, number)
    if block.endswith(b"\n") or not block:
        return block, line_feeds
    _check_nul(block, path, number)  # before a line without end is read
    end = file.readline(MAX_LINE_BYTES + 1)
    check_line_length(len(end), str(path), number + line_feeds)
    return block + end, line_feeds + 1


def _check_line_ends(block: bytes, path: Path, number: int) -> int:
    """Return the number of line feeds; raise UserError if other characters end the lines."""
    line_feeds = block.count(b"\n")
    for end, name, share, command in _OTHER_LINE_ENDS:
        count = block.count(end)
        if end == b"\r":
            count -= block.count(b"\r\n") + block.endswith(b"\r")  # a line feed may follow
        if count > share * line_feeds and count >= share:
            number += block.count(b"\n", 0, block.find(end))
            convert = f"{command} < {shlex.quote(str(path))}"
            if (compressed := commands(path)) is not None:
                unpack, pack = compressed
                convert = f"{unpack} | {command} | {pack}"
            raise UserError(
                f"{path}:{number}: line ends are {name} alone; only LF and CRLF end a line. "
                f"Convert with: {convert} > NEW_FILE"
            )
    return line_feeds


def _check_encoding(start: bytes, path: Path) -> None:
    """Raise UserError for the byte-order mark of an encoding other than UTF-8."""
    if (encoding := wide_encoding(start)) is not None:
        raise UserError(
            f"{path}: is encoded as {encoding}, by its byte-order mark. Convert it: "
            f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > NEW_FILE"
        )


def _check_nul(block: bytes, path: Path, number: int) -> None:
    if (nul := block.find(b"\0")) >= 0:
        number += block.count(b"\n", 0, nul)
        raise UserError(
            f"{path}:{number}: contains a NUL character; no text does. If this is "
            f"text in UTF-16, convert it: iconv -f UTF-16LE -t UTF-8 {shlex.quote(str(path))} "
            "> NEW_FILE"
        )


def _decode(block: bytes, path: Path, number: int) -> str:
    """Decode complete lines, the first of which is line `number` of the file."""
    _check_nul(block, path, number)
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        number += block.count(b"\n", 0, error.start)
        line_start = block.rfind(b"\n", 0, error.start) + 1
        column = len(block[line_start : error.start].decode("utf-8")) + 1
        raise UserError(
            f"{path}:{number}: byte 0x{block[error.start]:02x} at column {column} is not UTF-8. "
            "Convert the file: iconv -f ENCODING -t UTF-8."
        ) from None
