"""Recognise files that are not text by their first bytes, with the command that unpacks them."""

import shlex
from pathlib import Path
from typing import Literal, NamedTuple

HEAD_BYTES = 512  # that `recognise` needs: a tar archive has its mark at byte 257


COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # endings of files that are decompressed when read
_TABLES: dict[
    str, Literal["csv", "json", "parquet"]
] = {  # formats of a file with both sides of a text, by ending
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


def _compressed(tool: str, command: str = "") -> FileType:
    return FileType(
        f"compressed by {tool}", f"Unpack it: {command or tool} -dc < {{path}} > NEW_FILE"
    )


def _archive(name: str, command: str) -> FileType:
    return FileType(f"{name} archive", f"Unpack it: {command} {{path}}")


def _document(name: str) -> FileType:
    return FileType(name, "Save it as text in UTF-8, one sentence per line")


GZIP, BZIP2, XZ, ZSTD = map(_compressed, ("gzip", "bzip2", "xz", "zstd"))
PARQUET = FileType(
    "a Parquet file",
    "A config reads it as {{file: NAME.parquet}}; otherwise write its columns as text",
)
_WORKBOOK, _ZIP = _document("an Excel workbook (xlsx)"), _archive("a zip", "unzip")
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a block, or the end of an empty file
_TYPES = (  # by first bytes that hardly begin a text
    (b"\x1f\x8b", GZIP),
    (b"\xfd7zXZ\0", XZ),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"]\0\0", _compressed("lzma", "xz --format=lzma")),
    (b"\x1f\x9d", _compressed("compress", "gzip")),
    (b"\x04\x22\x4d\x18", _compressed("lz4")),
    (b"LZIP\x01", _compressed("lzip")),
    (b"PK\x05\x06", _ZIP),
    (b"7z\xbc\xaf\x27\x1c", _archive("a 7z", "7z x")),
    (b"Rar!\x1a\x07", _archive("a rar", "unrar x")),
    (b"PAR1\x15", PARQUET),
    (b"ARROW1\0\0", FileType("an Arrow file", "Write its columns as text")),
    (b"Obj\x01", FileType("an Avro file", "Write its fields as text")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _document("an Office file of the old format (xls, doc)")),
    (b"%PDF-", FileType("a PDF document", "Extract its text: pdftotext {path} NEW_FILE")),
    (b"SQLite format 3\0", FileType("an SQLite database", "Write its columns as text")),
    (b"\x89HDF\r\n\x1a\n", FileType("an HDF5 file", "Write its content as text")),
    (b"\x93NUMPY", FileType("a NumPy array", "Write its content as text")),
    (b"\x89PNG\r\n\x1a\n", FileType("a PNG image", "Give a text file")),
    (b"\xff\xd8\xff", FileType("a JPEG image", "Give a text file")),
)
_IN_ZIP = (  # by names and contents of the first members of a zip archive
    (b"xl/", _WORKBOOK),
    (b"word/", _document("a Word document (docx)")),
    (b"ppt/", _document("a PowerPoint document (pptx)")),
    (b"opendocument.spreadsheet", _document("an OpenDocument spreadsheet (ods)")),
    (b"opendocument.text", _document("an OpenDocument text (odt)")),
)


def recognise(head: bytes, tail: bytes = b"") -> FileType | None:
    """Return the type of a file by its first bytes, HEAD_BYTES of them or more; None if unknown.

    The last bytes of a file, if known, distinguish a workbook from another zip archive.
    """
    if head.startswith(b"PK\x03\x04"):
        return next((kind for mark, kind in _IN_ZIP if mark in head or mark in tail), _ZIP)
    if head.startswith(b"BZh") and head[4:10] in _BZIP2_BLOCKS:
        return BZIP2
    if head[257:262] == b"ustar" and b"\0" in head[:257]:
        return _archive("a tar", "tar -xf")
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
