"""Write parallel text in the format and with the compression that the names of files end in."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from seq2seq.data.compression import compressing
from seq2seq.data.formats.cells import as_numbers
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.extras import not_installed
from seq2seq.runtime.file_types import table_format
from seq2seq.runtime.files import (
    Renames,
    appearing_together,
    atomic_file,
    resolve_link,
    write_errors,
)

WritePair = Callable[[str, str], None]
_MARK = "\ufeff"  # at the start of a file, a byte-order mark, which reading removes
_ROWS = 10_000  # rows of Parquet written together


@contextmanager
def new_file(path: Path, later: Renames | None = None) -> Iterator[IO[bytes]]:
    """Yield a file, compressed by its ending, that appears at its path once it is complete.

    With `later`, it appears with others. A symbolic link is followed. Raises RunError if writing
    fails, and UserError for a compression whose package is missing.
    """
    target = resolve_link(path)
    with (
        write_errors(path),
        atomic_file(target, later=later) as raw,
        compressing(raw, path) as file,
    ):
        yield file


@contextmanager
def pair_writer(
    paths: Sequence[Path],
    columns: Sequence[str] = ("src", "tgt"),
    later: Renames | None = None,
) -> Iterator[WritePair]:
    """Yield a function that writes a pair: into two files of lines, or into one table.

    The files appear together, or with others of `later` (see `appearing_together`).
    `columns` are the names in the header of CSV, the keys of JSON lines and the columns of Parquet,
    or the numbers of the columns of a CSV without a header.
    Raises errors as `new_file` does, and UserError for text that the format cannot hold.
    """
    with ExitStack() as stack:
        if later is None:
            later = stack.enter_context(appearing_together())
        if len(paths) == 1 and table_format(paths[0]) == "parquet":
            yield stack.enter_context(_parquet_writer(paths[0], columns, later))
            return
        files = [
            io.TextIOWrapper(stack.enter_context(new_file(path, later)), "utf-8", newline="")
            for path in paths
        ]
        yield _writer([_Lines(file) for file in files], paths, columns)
        for file in files:
            file.flush()
            file.detach()


class _Lines:
    """Text of a file from which `iter_lines` reads exactly the lines written."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        self._file, self._empty = file, True

    def write(self, text: str) -> None:
        """Write text, at the start after a byte-order mark if it begins with one of its own."""
        if self._empty and text:
            self._empty = False
            text = _MARK + text if text.startswith(_MARK) else text
        self._file.write(text)

    def write_line(self, line: str) -> None:
        """Write a line; one that ends in CR ends in CRLF, of which reading removes one CR."""
        self.write(f"{line}\r\n" if line.endswith("\r") else f"{line}\n")


def _writer(files: Sequence[_Lines], paths: Sequence[Path], columns: Sequence[str]) -> WritePair:
    if len(files) == 2:
        return _line_writer(*files)
    (file,), form = files, table_format(paths[0])
    if form == "csv":
        return _csv_writer(file, columns)
    if form == "json":
        names = tuple(columns)

        def write(src: str, tgt: str) -> None:
            fields = dict(zip(names, (src, tgt), strict=True))
            file.write_line(json.dumps(fields, ensure_ascii=False))

        return write
    return _tsv_writer(file, paths[0])


def _csv_writer(file: _Lines, columns: Sequence[str]) -> WritePair:
    table = csv.writer(file)  # RFC 4180, with CRLF: a single CR is quoted
    numbers = as_numbers(columns)
    if numbers is None:
        table.writerow(columns)
        return lambda src, tgt: table.writerow((src, tgt))
    cells = [""] * (max(numbers) + 1)

    def write(src: str, tgt: str) -> None:
        for number, text in zip(numbers, (src, tgt), strict=True):
            cells[number] = text
        table.writerow(cells)

    return write


def _line_writer(src_file: _Lines, tgt_file: _Lines) -> WritePair:
    def write(src: str, tgt: str) -> None:
        src_file.write_line(src)
        tgt_file.write_line(tgt)

    return write


def _tsv_writer(file: _Lines, path: Path) -> WritePair:
    def write(src: str, tgt: str) -> None:
        if "\t" in src or "\t" in tgt:
            raise UserError(
                f"{path}: a sentence contains a tab ({src[:40]!r}), which TSV cannot hold. Write "
                "two files, .csv or .jsonl"
            )
        file.write_line(f"{src}\t{tgt}")

    return write


@contextmanager
def _parquet_writer(path: Path, columns: Sequence[str], later: Renames) -> Iterator[WritePair]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise not_installed(f"{path}: Parquet needs pyarrow", "formats") from None
    schema = pyarrow.schema([(name, pyarrow.string()) for name in columns])
    rows: list[tuple[str, str]] = []

    def flush(table: "pyarrow.parquet.ParquetWriter") -> None:
        if rows:
            table.write_table(pyarrow.table(list(zip(*rows, strict=True)), schema=schema))
            rows.clear()

    with new_file(path, later) as file, pyarrow.parquet.ParquetWriter(file, schema) as table:

        def write(src: str, tgt: str) -> None:
            rows.append((src, tgt))
            if len(rows) == _ROWS:
                flush(table)

        yield write
        flush(table)
