"""Lines of text files: strict UTF-8, one sentence per line, optionally gzip-compressed.

Only a line feed ends a line. A form feed, U+0085 or U+2028 within a sentence therefore cannot shift
one side of a parallel text against the other.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths

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
    r"""Yield the lines of a UTF-8 file, decompressed if its name ends in `.gz`.

    Line ends (`\n` or `\r\n`) and a byte-order mark at the start of the file are removed; nothing
    else changes. Raises UserError if the file is missing, empty, damaged, not UTF-8, or contains a
    NUL character, and if its lines end in another character, such as CR alone.
    """
    with _user_errors(path), _open(path) as file:
        block = _read_block(file, path, 1).removeprefix(_BYTE_ORDER_MARK)
        if not block:
            raise UserError(f"{path}: the file is empty. It needs one sentence per line.")
        number = 1
        while block:
            lines = _decode(block, path, number).split("\n")
            if not lines[-1]:
                del lines[-1]
            for line in lines:
                yield line.removesuffix("\r")
            number += len(lines)
            block = _read_block(file, path, number)


def iter_raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, decompressed, each with its line end.

    Raises UserError if the file is missing or damaged.
    """
    with _user_errors(path), _open(path) as file:
        yield from file


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
    with _user_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: Path) -> IO[bytes]:
    check_paths(path)
    if path.is_char_device():
        raise UserError(f"{path}: is a device, which may never end. Give a text file.")
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _read_block(file: IO[bytes], path: Path, number: int) -> bytes:
    """Read complete lines, the first of which is line `number` of the file.

    Raises UserError if other characters end the lines, before a line of the file's size is read.
    """
    block = file.read(_BLOCK_BYTES)
    _check_line_ends(block, path, number)
    return block + (b"" if block.endswith(b"\n") else file.readline())


def _check_line_ends(block: bytes, path: Path, number: int) -> None:
    line_feeds = block.count(b"\n")
    for end, name, share, command in _OTHER_LINE_ENDS:
        count = block.count(end)
        if end == b"\r":
            count -= block.count(b"\r\n") + block.endswith(b"\r")  # a line feed may follow
        if count > share * line_feeds and count >= share:
            number += block.count(b"\n", 0, block.find(end))
            convert = f"{command} < {path}"
            if path.suffix == ".gz":
                convert = f"zcat {path} | {command} | gzip"
            raise UserError(
                f"{path}:{number}: line ends are {name} alone; only LF and CRLF end a line. "
                f"Convert with: {convert} > NEW_FILE"
            )


@contextmanager
def _user_errors(path: Path) -> Iterator[None]:
    """Raise UserError, naming the file, for any failure to open or read it."""
    try:
        yield
    except FileNotFoundError:
        from seq2seq.config.errors import suggest_file  # loads pydantic

        raise UserError(f"{path}: no such file{suggest_file(path)}") from None
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(
            f"{path}: not a gzip file, or damaged. Rename a plain text file so that its name does "
            "not end in .gz."
        ) from None
    except EOFError:
        raise UserError(f"{path}: the gzip file is truncated. Copy or download it again.") from None
    except OSError as error:
        reason = "is a folder. Give a text file." if path.is_dir() else error.strerror
        raise UserError(f"{path}: {reason}") from None


def _decode(block: bytes, path: Path, number: int) -> str:
    """Decode complete lines, the first of which is line `number` of the file."""
    if (nul := block.find(b"\0")) >= 0:
        number += block.count(b"\n", 0, nul)
        raise UserError(
            f"{path}:{number}: contains a NUL character; the file is damaged or encoded as UTF-16. "
            "Save it as UTF-8."
        )
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
