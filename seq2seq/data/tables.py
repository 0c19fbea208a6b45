"""Parallel text in two files or a table: TSV without quotes, CSV, and JSON lines."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO

from seq2seq.runtime import file_types, files
from seq2seq.runtime.console import counted
from seq2seq.runtime.errors import UserError, did_you_mean, shorten
from seq2seq.runtime.files import LONE_SURROGATE, Renames
from seq2seq.text.text_files import compressing, iter_lines, iter_text

DELIMITERS = ",;\t|"  # in order of preference
NESTED = "translation"  # object of translations by language, as in Hugging Face's datasets
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"\"?sep=([^\w\s]|\t)\"?\s*")  # of Excel
_LISTED_NAMES = 10
_HEADER_WORDS = frozenset(
    """column columns english french german id index label lang language line original pair
    reference score segment sentence sentences source src target text tgt translated translation
    trg""".split()  # noqa: SIM905
)
WritePair = Callable[[str, str], object]


def iter_tsv(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield two cells of each line, by number, or by name in line 1. Raises UserError."""
    lines = iter_lines(path)
    first = 1
    positions = as_numbers(columns or ("1", "2"))
    if positions is None:
        assert columns is not None, "named"
        names = next(lines).split("\t")
        first = 2
        positions = [_position(names, column, f"{path}:1") for column in columns]
    src, tgt = positions
    for number, line in enumerate(lines, start=first):
        cells = line.split("\t")
        if len(cells) <= max(src, tgt):
            text = f"{path}:{number}: the line has {counted(len(cells), 'column')},"
            text = f"{text} which tabs separate; column {max(src, tgt) + 1} is to be read"
            hint = " (of a text in two files, name both)" if number == 1 and columns is None else ""
            raise UserError(f"{text}{hint}")
        yield cells[src], cells[tgt]


def iter_csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield two cells of each record, by number, or by name in the header.

    Cells are quoted as in RFC 4180; a line break within a cell becomes a space. The delimiter is a
    comma, semicolon, tab or bar: the first one that divides the first line into the columns, or
    what Excel's line `sep=;` before it names.
    Raises UserError as `iter_text` does, for malformed quotes, a missing column and a record with
    another number of cells than the first.
    """
    lines = (line for text in iter_text(path) for line in io.StringIO(text, newline="\n"))
    start = next(lines)
    positions = as_numbers(columns)
    skipped_lines = 0
    delimiters = DELIMITERS
    if (separator := _SEPARATOR.fullmatch(start)) is not None:
        start = next(lines, "")
        delimiters = separator[1]
        skipped_lines = 1
    names, delimiter = _header(start, columns, delimiters)
    reader = csv.reader(chain([start], lines), delimiter=delimiter, strict=True)
    try:
        if positions is None:
            next(reader)
            positions = [
                _position(names, column, f"{path}:{skipped_lines + 1}") for column in columns
            ]
        size = len(names)
        for record in filter(None, reader):  # blank lines have no cells
            place = f"{path}:{skipped_lines + reader.line_num}"
            if len(record) != size or size <= max(positions):
                reason = f"the first one {size}. Quote a cell that contains {delimiter!r}"
                raise UserError(f"{place}: the record has {counted(len(record), 'cell')}, {reason}")
            src, tgt = (as_line(record[position], place) for position in positions)
            yield src, tgt
    except csv.Error as error:
        reason = f"{path}:{skipped_lines + reader.line_num}: malformed CSV ({error})."
        raise UserError(f"{reason} Close each quoted cell, and double the quotes in it") from None


def iter_json_lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the values of two keys of each line's object, or of the object in its `translation`.

    A line break within a value becomes a space, null becomes blank text, and blank lines are
    skipped. Raises UserError as `iter_lines` does, for a line that is no object, a missing key and
    a value that is no text.
    """
    for number, line in enumerate(iter_lines(path), start=1):
        if line.strip():
            place = f"{path}:{number}"
            fields = _fields(line, place)
            src, tgt = (_text(fields, name, place) for name in columns)
            yield src, tgt


def _header(line: str, columns: Sequence[str], delimiters: Sequence[str]) -> tuple[list[str], str]:
    """Return the cells of the first line of a CSV, and its delimiter."""
    positions = as_numbers(columns)
    longest = ([""], delimiters[0])
    for delimiter in delimiters:
        with suppress(csv.Error):  # reported when all is read
            cells = next(csv.reader([line], delimiter=delimiter), [""])
            if len(cells) > max(positions) if positions else {*columns} <= {*cells}:
                return cells, delimiter
            longest = max(longest, (cells, delimiter), key=lambda header: len(header[0]))
    return longest


def _position(names: Sequence[str], name: str, place: str) -> int:
    """Return the place of a named column; raises UserError unless one has the name."""
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise UserError(f"{place}: several columns are named {name!r}; choose columns by number")
    raise _missing(names, name, place)


def _missing(names: Sequence[str], name: str, place: str) -> UserError:
    listed = ", ".join(shorten(column) for column in names[:_LISTED_NAMES])
    hint = did_you_mean(name, names) or ". Set columns, or give the file the ending of its format"
    return UserError(f"{place}: has no column {name!r}; it has: {listed}{hint}")


def _fields(line: str, place: str) -> dict[str, object]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        if (start := line.strip()) in ("[", "{"):  # the file is indented
            text = f"{place}: begins JSON of several lines; each line must be an object. Convert it"
            query = "'.[]'" if start == "[" else "."
            raise UserError(f"{text}: jq -c {query} FILE > NEW.jsonl") from None
        raise UserError(f"{place}: invalid JSON ({error}); each line must be an object") from None
    if not isinstance(fields, dict):
        is_pair = isinstance(fields, list) and all(isinstance(entry, str) for entry in fields)
        query = "'{src: .[0], tgt: .[1]}'" if is_pair and len(fields) > 1 else "'.[]'"
        text = f"{place}: each line must be a JSON object."
        raise UserError(f"{text} Convert an array: jq -c {query} FILE > NEW.jsonl")
    return fields


def _text(fields: dict[str, object], name: str, place: str) -> str:
    nested = fields.get(NESTED)
    if isinstance(nested, dict) and name not in fields:
        fields = nested
    if name not in fields:
        raise _missing(list(fields), name, place)
    if (value := fields[name]) is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{place}: the value of {name!r} is {str(value)[:40]!r}, not text")
    return as_line(value, place)


def as_line(text: str, place: str) -> str:
    """Return a cell with line breaks as spaces; raises UserError for NUL or a lone surrogate."""
    if "\0" in text or LONE_SURROGATE.search(text):
        raise UserError(f"{place}: contains a NUL character or half a surrogate pair; repair it")
    return _LINE_BREAK.sub(" ", text) if "\n" in text or "\r" in text else text


def as_numbers(columns: Sequence[str]) -> list[int] | None:
    """Return the positions, from 0, of columns given as numbers from 1; None if given by name."""
    if not all(map(file_types.is_column_number, columns)):
        return None
    return [int(column) - 1 for column in columns]


def is_header(line: str, languages: Sequence[str] = ()) -> bool:
    """Return whether all words of a line are names of columns or languages."""
    words = re.findall(r"[^\W\d_]+", line.lower())
    names = _HEADER_WORDS | {language.lower() for language in languages}
    return 0 < len(words) <= 3 and names.issuperset(words) and not line.rstrip().endswith(".")


@contextmanager
def new_file(path: Path, renames: Renames | None = None) -> Iterator[IO[bytes]]:
    """Yield a file, compressed by its ending, that appears, or replaces a link's, once complete.

    With `renames`, it appears with others. Raises RunError if writing fails.
    """
    with (
        files.write_errors(path),
        files.atomic_file(files.resolve_link(path), renames=renames) as raw,
        compressing(raw, path) as file,
    ):
        yield file


@contextmanager
def pair_writer(
    paths: Sequence[Path], columns: Sequence[str] = ("src", "tgt"), renames: Renames | None = None
) -> Iterator[WritePair]:
    """Yield a function that writes a pair: into two files of lines, or into one table.

    The files appear together, or with others of `renames`. `columns` name those of CSV and JSON; a
    tab in a TSV becomes a space. Raises errors as `new_file` does.
    """
    with ExitStack() as stack:
        if renames is None:
            renames = stack.enter_context(files.appearing_together())
        opened = [
            io.TextIOWrapper(stack.enter_context(new_file(path, renames)), "utf-8", newline="")
            for path in paths
        ]
        yield _writer(opened, paths[0], columns)
        for file in opened:
            file.flush()
            file.detach()


def _writer(opened: Sequence[io.TextIOWrapper], path: Path, columns: Sequence[str]) -> WritePair:
    if len(opened) == 2:
        src_file, tgt_file = opened
        return lambda src, tgt: (src_file.write(f"{src}\n"), tgt_file.write(f"{tgt}\n"))
    form = file_types.table_format(path)
    if form == "csv":
        table = csv.writer(opened[0])  # RFC 4180
        table.writerow(columns)
        return lambda *pair: table.writerow(pair)
    if form == "json":
        encoded = json.JSONEncoder(ensure_ascii=False).encode
        return lambda *pair: opened[0].write(f"{encoded(dict(zip(columns, pair, strict=True)))}\n")
    return lambda *pair: opened[0].write("\t".join(x.replace("\t", " ") for x in pair) + "\n")
