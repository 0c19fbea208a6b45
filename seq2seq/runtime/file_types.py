"""Recognise files that are not text by their first bytes, with the command that unpacks them."""

import shlex
from pathlib import Path
from typing import Literal, NamedTuple

HEAD_BYTES = 512  # that `recognise` needs: a tar archive has its mark at byte 257
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # endings of files that are decompressed when read
# Formats of a file with both sides of a text, by its ending.
_TABLES: dict[str, Literal["csv", "json", "parquet"]] = {
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}


def is_column_number(column: str) -> bool:
    """Return whether a column of a table is given by its number, not by its name."""
    return column.isascii() and column.isdigit()


def table_format(path: Path) -> Literal["tsv", "csv", "json", "parquet"]:
    """Return the format of a table by the ending of its name, before that of compression."""
    name = path.stem if path.suffix in COMPRESSED else path.name
    return _TABLES.get(Path(name).suffix.lower(), "tsv")


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table: TSV, CSV, JSON lines or Parquet."""
    name = path.stem if path.suffix in COMPRESSED else path.name
    return Path(name).suffix.lower() in (".tsv", *_TABLES)


class FileType(NamedTuple):
    """Type of a file that is not text."""

    name: str  # continues "FILE: is"
    remedy: str  # sentence; {path} is the file, quoted for a shell


def _compressed(tool: str) -> FileType:
    return FileType(f"compressed by {tool}", f"Unpack it: {tool} -dc < {{path}} > NEW_FILE")


GZIP, BZIP2, XZ, ZSTD = map(_compressed, ("gzip", "bzip2", "xz", "zstd"))
_TAR = FileType("a tar archive", "Unpack it: tar -xf {path}")
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a block, or the end of an empty file
_TYPES = (  # by first bytes that hardly begin a text
    (b"\x1f\x8b", GZIP),
    (b"\xfd7zXZ\0", XZ),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (
        b"PK\x03\x04",
        FileType("a zip archive or an Office document (xlsx, docx)", "Unpack it: unzip {path}"),
    ),
    (b"PAR1\x15", FileType("a Parquet file", "A config reads it as {{file: NAME.parquet}}")),
    (b"%PDF-", FileType("a PDF document", "Extract its text: pdftotext {path} NEW_FILE")),
)


def recognise(head: bytes) -> FileType | None:
    """Return the type of a file by its first bytes, HEAD_BYTES of them or more; None if unknown."""
    if head.startswith(b"BZh") and head[4:10] in _BZIP2_BLOCKS:
        return BZIP2
    if head[257:262] == b"ustar" and b"\0" in head[:257]:
        return _TAR
    return next((kind for mark, kind in _TYPES if head.startswith(mark)), None)


def wide_encoding(head: bytes) -> str | None:
    """Return the name of a wide encoding if its byte-order mark begins the file."""
    for name, marks in (
        ("UTF-32", (b"\xff\xfe\0\0", b"\0\0\xfe\xff")),
        ("UTF-16", (b"\xff\xfe", b"\xfe\xff")),
    ):
        if head.startswith(marks):
            return name
    return None


def describe(kind: FileType, name: Path | str, path: Path | str | None = None) -> str:
    """Return a message that names the type of a file, and the command that unpacks it.

    `path` is what to write in the command if `name` is not the path.
    """
    quoted = shlex.quote(str(name if path is None else path))
    return f"{name}: is {kind.name}, not text. {kind.remedy.format(path=quoted)}"
