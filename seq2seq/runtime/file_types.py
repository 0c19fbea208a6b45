"""Recognise files that are not lines of text by their first bytes, with what reads them."""

import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple, get_args

HEAD_BYTES = 512  # that `recognise` needs: a tar archive has its mark at byte 257
_MAX_HEAD_BYTES = 4096  # examined of longer ones
COMPRESSED = (".gz", ".bz2")  # endings of files that are decompressed when read
# Formats of a file with both sides of a text, by its ending.
Format = Literal["tsv", "csv", "json"]
_TABLES: dict[str, Format] = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
DOCUMENTS = {".html": "html", ".htm": "html", ".xhtml": "html", ".srt": "srt", ".vtt": "vtt"}
DocumentFormat = Literal["text", "html", "srt", "vtt"]
DOCUMENT_FORMATS: tuple[str, ...] = get_args(DocumentFormat)


def is_column_number(column: str) -> bool:
    """Return whether a column of a table is given by its number, not by its name."""
    return column.isascii() and column.isdigit()


def table_format(path: Path) -> Format:
    """Return the format of a table by the ending of its name, before that of compression."""
    return _TABLES.get(_ending(path), "tsv")


def document_format(path: Path | None) -> str:
    """Return which of DOCUMENT_FORMATS the name of a file is that of; text if it has no other."""
    return "text" if path is None else DOCUMENTS.get(_ending(path), "text")


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table: TSV, CSV or JSON lines."""
    return _ending(path) in (".tsv", *_TABLES)


def _ending(path: Path) -> str:
    name = path.stem if path.suffix in COMPRESSED else path.name
    return Path(name).suffix.lower()


class FileType(NamedTuple):
    """Type of a file that is not lines of text."""

    name: str  # continues "FILE: is"
    remedy: str  # sentence; {path} is the file, quoted for a shell
    is_readable: bool = False  # as characters: markup, whose lines are no sentences


def _compressed(tool: str) -> FileType:
    return FileType(f"compressed by {tool}", f"Unpack it: {tool} -dc < {{path}} > NEW_FILE")


GZIP, BZIP2 = map(_compressed, ("gzip", "bzip2"))
_TAR = FileType("a tar archive", "Unpack it: tar -xf {path}")
_OFFICE = "Save it as HTML: soffice --headless --convert-to html {path}"
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a block, or the end of an empty file


def _translated(name: str, form: str) -> FileType:
    remedy = f"seq2seq translate reads it with --format {form}, and each line with --format text"
    return FileType(name, remedy, is_readable=True)


_TYPES = (  # by first bytes that hardly begin a text, the more special ones first
    (rb"\x1f\x8b", GZIP),
    (rb"\xfd7zXZ\0", _compressed("xz")),
    (rb"\x28\xb5\x2f\xfd", _compressed("zstd")),
    (rb"7z\xbc\xaf|Rar!\x1a", FileType("a 7z or rar archive", "Unpack it: 7z x {path}")),
    (
        rb"PK\x03\x04.{26}(?:\[Content_Types\]|_rels/|docProps/|word/|xl/|ppt/|mimetype)",
        FileType("an Office document (docx, xlsx, odt) or an e-book", _OFFICE),
    ),
    (rb"PK\x03\x04", FileType("a zip archive", "Unpack it: unzip {path}")),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1|\{\\rtf", FileType("a document of Word", _OFFICE)),
    (rb"PAR1\x15", FileType("a Parquet file", "Convert it to JSON lines, as with pandas")),
    (rb"%PDF-", FileType("a PDF document", "Extract its text: pdftotext {path} NEW_FILE")),
    (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a", FileType("a picture", "Give a text file")),
    (rb"WEBVTT\s", _translated("a file of subtitles (WebVTT)", "vtt")),
    (rb"\s*\d+\s+\d+:\d\d:\d\d[.,]\d+\s*-->", _translated("a file of subtitles (SubRip)", "srt")),
    (
        rb"\s*(?:<\?xml[^>]*>.*)?(?i:<!doctype\s+html|<html[\s>]|<head[\s>])",
        _translated("an HTML document", "html"),
    ),
    (
        rb"\s*<\?xml\s|(?:\s|#[^\n]*\n)*msgid \"|\[Script Info\]",
        FileType("a list of texts (TMX, XLIFF, PO, ...)", "Export its texts, one a line", True),
    ),
)
_PATTERNS = [(re.compile(rb"(?:\xef\xbb\xbf)?" + mark, re.DOTALL), kind) for mark, kind in _TYPES]


def recognise(head: bytes) -> FileType | None:
    """Return the type of a file by its first bytes, HEAD_BYTES of them or more; None if unknown."""
    head = head[:_MAX_HEAD_BYTES]
    if head.startswith(b"BZh") and head[4:10] in _BZIP2_BLOCKS:
        return BZIP2
    if head[257:262] == b"ustar" and b"\0" in head[:257]:
        return _TAR
    return next((kind for mark, kind in _PATTERNS if mark.match(head)), None)


def describe(kind: FileType, name: Path | str, path: Path | str | None = None) -> str:
    """Name the type of a file, and the command that unpacks it, with `path` if it is not `name`."""
    quoted = shlex.quote(str(name if path is None else path))
    text = "lines of text" if kind.is_readable else "text"
    return f"{name}: is {kind.name}, not {text}. {kind.remedy.format(path=quoted)}"
