"""Tables as text: TSV, in which quotes have no meaning, and CSV, whose cells may be quoted."""

import csv
import io
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
