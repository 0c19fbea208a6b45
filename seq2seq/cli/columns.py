"""Tables in `-i` and `-r`: TSV, CSV or JSON lines, by the ending, in place of text."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from seq2seq.data.corpus import iter_column
from seq2seq.data.lines import is_blank, iter_lines, lines_of
from seq2seq.data.sentences import has_letters
from seq2seq.data.tables import is_header
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import is_column_number, is_table, table_format

STDIN = "standard input"
_SAMPLE = 100  # cells that show whether a column is text


class TextFile(NamedTuple):
    """A file with one sentence per line, or a column of a table with one per row."""

    path: Path  # - is standard input
    column: str | None  # by name, or by number from 1; None: plain text

    @property
    def is_stdin(self) -> bool:
        """Return whether the text is read from standard input."""
        return is_stdin(self.path)

    @property
    def name(self) -> str:
        """Return the name of the text in messages."""
        return STDIN if self.is_stdin else str(self.path)

    def lines(self) -> Iterator[str]:
        """Yield the sentences; raises UserError as `iter_lines` or the reader of the table does."""
        if self.is_stdin:
            return lines_of(sys.stdin.buffer, STDIN)
        if self.column is None:
            return iter_lines(self.path)
        return _checked(iter_column(self.path, self.column), self.path, self.column)


def _checked(cells: Iterator[str], path: Path, column: str) -> Iterator[str]:
    """Yield the cells of a column; note a header. Raises UserError if the first have no letter."""
    first = list(islice(cells, _SAMPLE))
    filled = [cell for cell in first if not is_blank(cell)]
    if filled and not any(map(has_letters, filled)):
        raise UserError(
            f"{path}: column {column} has numbers or signs, such as {filled[0][:20]!r}, not text; "
            "give --columns with that of the text"
        )
    if filled and is_header(first[0]):
        logger.warning(
            f"{path}:1: {first[0]!r} seems to be a header, and is taken for a line; delete it"
        )
    yield from first
    yield from cells


def add_columns(parser: argparse.ArgumentParser, sides: str = "SRC,TGT") -> None:
    text = (
        "columns of tables (.tsv, .csv, .jsonl), by name or number (default: 1,2; the "
        "language codes if not .tsv)"
    )
    if sides == "SRC":
        text = (
            "column of a table (.tsv, .csv, .jsonl), by name or number (default: 1; the "
            "language code if not .tsv)"
        )
    parser.add_argument("--columns", metavar=sides, help=text)


def is_stdin(path: Path | None) -> bool:
    """Return whether a path is the name of standard input, -."""
    return str(path) == "-"


def check_stdin(command: str, *paths: Path | None) -> None:
    """Raise UserError if standard input is to be more than one of the files, or is closed."""
    count = sum(map(is_stdin, paths))
    if count > 1:
        raise UserError(f"{command}: - is standard input, which can be one of the texts only")
    if count and not sys.stdin.readable():
        raise UserError("standard input is closed; give a file in place of -")


def second_column(command: str, path: Path | None) -> Path:
    """Return the input as the file of the references too: a table has both sides.

    Raises UserError for anything else.
    """
    if path is None or not is_table(path):
        raise UserError(f"{command}: give a reference, -r FILE, or a table with both sides as -i")
    return path


class Columns:
    """Columns that hold the source and the target text in the tables of a call."""

    def __init__(self, command: str, options: argparse.Namespace, sides: int = 2) -> None:
        """Take `--columns` for one side or both, and the runs, whose languages may name columns.

        Raises UserError for columns that cannot be those of a table.
        """
        self._command, self._runs = command, options.model
        self._columns = _parsed(command, options.columns, sides)

    def check(self, *paths: Path | None) -> None:
        """Raise UserError for `--columns` if none of the inputs is a table."""
        if self._columns and not any(path is not None and is_table(path) for path in paths):
            raise UserError(
                f"{self._command} --columns: no input is a table (.tsv, .csv or .jsonl)"
            )

    def source(self, path: Path) -> TextFile:
        """Return a file of source text."""
        return TextFile(path, self._column(path, 0))

    def target(self, path: Path) -> TextFile:
        """Return a file of target text."""
        return TextFile(path, self._column(path, 1))

    def _column(self, path: Path, side: int) -> str | None:
        if not is_table(path):
            return None
        if self._columns:
            return self._columns[side]
        if table_format(path) == "tsv":
            return str(side + 1)
        if not self._runs:
            raise UserError(f"{path}: give --columns SRC,TGT, the names of two columns")
        from seq2seq.inference.loading import languages_of

        return languages_of(Path(self._runs[0]))[side]


def _parsed(command: str, columns: str | None, sides: int) -> Sequence[str]:
    if columns is None:
        return ()
    names = [name.strip() for name in columns.split(",")]
    numbers = [*map(is_column_number, names)]
    if len(names) != sides or not all(names) or len(set(names)) < sides:
        example = "one column, such as english or 2" if sides == 1 else "two columns, such as 2,1"
        raise UserError(f"{command} --columns {columns}: give {example}")
    if any(numbers) and not (all(numbers) and all(int(name[:9]) > 0 for name in names)):
        raise UserError(f"{command} --columns {columns}: give names, or numbers from 1 on")
    return names
