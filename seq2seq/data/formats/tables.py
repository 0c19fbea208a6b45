"""Tables as text: TSV without quotes, CSV, whose cells may be quoted, and JSON lines."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.data.formats.cells import as_line, as_numbers, format_hint, missing_column, position
from seq2seq.data.line_counts import MAX_COUNTED_LINES
from seq2seq.data.lines import iter_lines, iter_text
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

DELIMITERS = ",;\t|"  # in order of preference
NESTED = "translation"  # object of translations by language, as in Hugging Face's datasets
_PLAIN = ". If the file is no table, give it another ending than .tsv"
_NO_HEADER = ", or by number, such as 1 and 2, if it has no header"


def iter_tsv(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield two cells of each line: the first two, or columns by number, or by name in line 1.

    Raises UserError as `iter_lines` does, for a line with too few columns and a missing name.
    """
    lines = iter_lines(path)
    if columns is None:
        return _first_two(path, lines)
    numbers, skipped = as_numbers(columns), 0
    if numbers is None:
        names = next(lines).split("\t")
        numbers, skipped = [_position(path, names, column) for column in columns], 1
    return _chosen(path, lines, numbers, 1 + skipped)


def iter_csv(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield two cells of each record, by number, or by name in the header.

    Cells are quoted as in RFC 4180; a line break within a cell becomes a space. The delimiter is a
    comma, semicolon, tab or bar: the first one that divides the first record into the columns.
    Raises UserError as `iter_text` does, for malformed quotes, a missing column and a record with
    another number of cells than the first.
    """
    lines = _with_ends(path)
    start = _first_record(path, lines)
    delimiter, names = _delimiter(path, start, columns)
    numbers = as_numbers(columns)
    reader = csv.reader(chain(start, lines), delimiter=delimiter, strict=True)
    if numbers is None:
        next(reader)
        numbers = [position(path, names, column) for column in columns]
    src, tgt = numbers
    while (record := _next_record(path, reader)) is not None:
        if not record:  # a blank line
            continue
        place = f"{path}:{reader.line_num}"
        if len(record) != len(names):
            raise UserError(
                f"{place}: the record has {_count(len(record), 'cell')}, the first one "
                f"{len(names)}. Quote a cell that contains {delimiter!r}"
            )
        yield as_line(record[src], place), as_line(record[tgt], place)


def iter_json_lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the values of two keys of each line's object, or of the object in its `translation`.

    A line break within a value becomes a space, null becomes blank text, and blank lines are
    skipped. Raises UserError as `iter_lines` does, for a line that is no object, a missing key and
    a value that is no text.
    """
    src, tgt = columns
    for number, line in enumerate(iter_lines(path), start=1):
        if line.strip():
            place = f"{path}:{number}"
            fields = _fields(line, place)
            yield _text(fields, src, path, place), _text(fields, tgt, path, place)


def _first_two(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        src, tab, target = line.partition("\t")
        if not tab:
            further = sum("\t" not in later for later in islice(lines, MAX_COUNTED_LINES))
            least = "at least " * (next(lines, None) is not None)
            more = f" (the first of {least}{further + 1} such lines)" if further else ""
            raise UserError(
                f"{path}:{number}: the line has no tab{more}. "
                f"Each line must be: source, a tab, target{format_hint(line, '.tsv') or '.'}"
            )
        yield src, target.partition("\t")[0]


def _chosen(
    path: Path, lines: Iterator[str], numbers: Sequence[int], first: int
) -> Iterator[tuple[str, str]]:
    src, tgt = numbers
    for number, line in enumerate(lines, start=first):
        cells = line.split("\t")
        if len(cells) <= max(numbers):
            raise UserError(
                f"{path}:{number}: the line has {_count(len(cells), 'column')}; column "
                f"{max(numbers) + 1} is to be read{_PLAIN if len(cells) == 1 else ''}"
            )
        yield cells[src], cells[tgt]


def _position(path: Path, names: Sequence[str], name: str) -> int:
    if name not in names:
        other_format = format_hint("\t".join(names), ".tsv")
        raise missing_column(path, name, names, _NO_HEADER, other_format)
    return position(path, names, name)


def _with_ends(path: Path) -> Iterator[str]:
    for text in iter_text(path):
        yield from io.StringIO(text, newline="\n")


def _first_record(path: Path, lines: Iterator[str]) -> list[str]:
    """Return the lines of the first record: up to the first line end outside of quotes."""
    start, quotes, size = [], 0, 0
    for line in lines:
        start.append(line)
        quotes, size = quotes + line.count('"'), size + len(line)
        if quotes % 2 == 0:
            break
        if size > csv.field_size_limit():
            raise _open_quote(path, 1)
    return start


def _delimiter(path: Path, start: list[str], columns: Sequence[str]) -> tuple[str, list[str]]:
    """Return the delimiter and the cells of the first record."""
    numbers, cells = as_numbers(columns), {}
    for delimiter in DELIMITERS:
        try:
            record = next(csv.reader(start, delimiter=delimiter, strict=True), [])
        except csv.Error:  # with this delimiter, a quote is misplaced
            continue
        cells[delimiter] = record
        if len(record) > max(numbers) if numbers else set(columns) <= set(record):
            return delimiter, record
    longest = max(cells.values(), key=len, default=[])
    if numbers:
        raise UserError(
            f"{path}:1: has {_count(len(longest), 'column')}; column {max(numbers) + 1} is to be "
            "read"
        )
    missing = next((column for column in columns if column not in longest), columns[0])
    other_format = format_hint("".join(start), ".csv")
    raise missing_column(path, missing, longest, _NO_HEADER, other_format)


def _next_record(path: Path, reader: "CsvReader") -> list[str] | None:
    first = reader.line_num + 1
    try:
        return next(reader, None)
    except csv.Error as error:
        if "field limit" in str(error) or "unexpected end" in str(error):
            raise _open_quote(path, first) from None
        raise UserError(
            f"{path}:{reader.line_num}: malformed CSV ({error}). Double the quotes within a "
            "quoted cell"
        ) from None


def _open_quote(path: Path, number: int) -> UserError:
    return UserError(
        f"{path}:{number}: a quoted cell that begins here does not end within "
        f"{csv.field_size_limit():,} characters or the file. Close its quote"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _fields(line: str, place: str) -> dict[str, object]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        hint = ". Each line must be an object" + _array_hint(line, place)
        hint += format_hint(line, ".jsonl") if place.endswith(":1") else ""
        raise UserError(f"{place}: invalid JSON ({error}){hint}") from None
    except RecursionError:
        raise UserError(f"{place}: invalid JSON (nested too deeply)") from None
    if not isinstance(fields, dict):
        hint = _array_hint(line, place)
        raise UserError(f"{place}: each line must be a JSON object{hint}")
    return fields


def _array_hint(line: str, place: str) -> str:
    if not (line.lstrip().startswith("[") and place.endswith(":1")):
        return ""
    return ", not part of an array. Convert the file: jq -c '.[]' FILE > NEW.jsonl"


def _text(fields: dict[str, object], name: str, path: Path, place: str) -> str:
    nested = fields.get(NESTED)
    for values in (fields, nested):
        if isinstance(values, dict) and name in values:
            value = values[name]
            break
    else:
        names = list(nested) if isinstance(nested, dict) else list(fields)
        message = str(missing_column(path, name, names))
        raise UserError(message.replace(f"{path}:1: has no column", f"{place}: has no key", 1))
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = {dict: "an object", list: "a list", bool: "true or false"}.get(type(value))
        raise UserError(f"{place}: the value of {name!r} is {kind or 'a number'}, not text")
    return as_line(value, place)
