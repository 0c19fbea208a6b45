"""Recognise files that are not lines of text by their first bytes, with what reads them."""

import re
import shlex
from pathlib import Path
from typing import Literal, NamedTuple

HEAD_BYTES = 512  # that `recognise` needs: a tar archive has its mark at byte 257
_MAX_HEAD_BYTES = 4096  # examined of longer ones
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # endings of files that are decompressed when read
# Formats of a file with both sides of a text, by its ending.
_TABLES: dict[str, Literal["csv", "json", "parquet"]] = {
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
}


DOCUMENTS = {".html": "html", ".htm": "html", ".xhtml": "html", ".srt": "srt", ".vtt": "vtt"}
DOCUMENT_FORMATS = ("text", "html", "srt", "vtt")


def is_column_number(column: str) -> bool:
    """Return whether a column of a table is given by its number, not by its name."""
    return column.isascii() and column.isdigit()


def table_format(path: Path) -> Literal["tsv", "csv", "json", "parquet"]:
    """Return the format of a table by the ending of its name, before that of compression."""
    name = path.stem if path.suffix in COMPRESSED else path.name
    return _TABLES.get(Path(name).suffix.lower(), "tsv")


def document_format(path: Path | None) -> str:
    """Return which of DOCUMENT_FORMATS the name of a file is that of; text if it has no other."""
    if path is None:
        return "text"
    name = path.stem if path.suffix in COMPRESSED else path.name
    return DOCUMENTS.get(Path(name).suffix.lower(), "text")


def is_table(path: Path) -> bool:
    """Return whether the name of a file is that of a table: TSV, CSV, JSON lines or Parquet."""
    name = path.stem if path.suffix in COMPRESSED else path.name
    return Path(name).suffix.lower() in (".tsv", *_TABLES)


class FileType(NamedTuple):
    """Type of a file that is not lines of text."""

    name: str  # continues "FILE: is"
    remedy: str  # sentence; {path} is the file, quoted for a shell
    is_readable: bool = False  # as characters: markup, whose lines are no sentences


def _compressed(tool: str) -> FileType:
    return FileType(f"compressed by {tool}", f"Unpack it: {tool} -dc < {{path}} > NEW_FILE")


GZIP, BZIP2, XZ, ZSTD = map(_compressed, ("gzip", "bzip2", "xz", "zstd"))
_TAR = FileType("a tar archive", "Unpack it: tar -xf {path}")
_ZIP = FileType("a zip archive or an Office document (xlsx, docx)", "Unpack it: unzip {path}")
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # a block, or the end of an empty file


def _office(name: str) -> FileType:
    return FileType(name, "Save it as HTML: soffice --headless --convert-to html {path}")


def _translated(name: str, form: str) -> FileType:
    remedy = f"seq2seq translate reads it with --format {form}, and each line with --format text"
    return FileType(name, remedy, is_readable=True)


def _exported(name: str) -> FileType:
    return FileType(name, "Export its texts, one a line", is_readable=True)


_TYPES = (  # by first bytes that hardly begin a text, the more special ones first
    (rb"\x1f\x8b", GZIP),
    (rb"\xfd7zXZ\0", XZ),
    (rb"\x28\xb5\x2f\xfd", ZSTD),
    (rb"7z\xbc\xaf|Rar!\x1a", FileType("a 7z or rar archive", "Unpack it: 7z x {path}")),
    (
        rb"PK\x03\x04.{26}mimetypeapplication/epub",
        FileType("an e-book (EPUB)", "Convert it: pandoc {path} -t html > NEW_FILE.html"),
    ),
    (rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis", _office("an OpenDocument file (odt, ods)")),
    (
        rb"PK\x03\x04.{26}(?:\[Content_Types\]|_rels/|docProps/|word/|xl/|ppt/)",
        _office("an Office document (docx, xlsx, pptx)"),
    ),
    (rb"PK\x03\x04", _ZIP),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _office("an Office document (doc, xls)")),
    (rb"\{\\rtf", _office("a document in RTF")),
    (rb"PAR1\x15", FileType("a Parquet file", "A config reads it as {{file: NAME.parquet}}")),
    (rb"%PDF-", FileType("a PDF document", "Extract its text: pdftotext {path} NEW_FILE")),
    (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a", FileType("a picture", "Give a text file")),
    (rb"\xde\x12\x04\x95", FileType("a compiled catalogue (mo)", "Run msgunfmt {path} > NEW_FILE")),
    (rb"WEBVTT\s", _translated("a file of subtitles (WebVTT)", "vtt")),
    (rb"\s*\d+\s+\d+:\d\d:\d\d[.,]\d+\s*-->", _translated("a file of subtitles (SubRip)", "srt")),
    (rb"\[Script Info\]", _exported("a file of subtitles (Advanced SubStation Alpha)")),
    (rb"\s*(?i:<!doctype\s+html|<html[\s>]|<head[\s>])", _translated("an HTML document", "html")),
    (rb"\s*<\?xml[^>]*>.*<(?i:!doctype\s+)?html[\s>]", _translated("an XHTML document", "html")),
    (rb"\s*<\?xml[^>]*>.*<xliff[\s>]", _exported("a list of translations (XLIFF)")),
    (rb"\s*<\?xml[^>]*>.*<tmx[\s>]", _exported("a translation memory (TMX)")),
    (rb"\s*<\?xml\s", _exported("an XML document")),
    (rb"(?:\s|#[^\n]*\n)*msgid \"", _exported("a catalogue of messages (PO)")),
    (rb"(?:\s|%[^\n]*\n)*\\documentclass\b", _exported("a LaTeX document")),
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
    text = "lines of text" if kind.is_readable else "text"
    return f"{name}: is {kind.name}, not {text}. {kind.remedy.format(path=quoted)}"
