"""Write parallel text in the format and with the compression that the names of files end in."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from seq2seq.data.compression import compressing
from seq2seq.data.tables import as_numbers
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import table_format
from seq2seq.runtime.files import (
    Renames,
    appearing_together,
    atomic_file,
    resolve_link,
    write_errors,
)

WritePair = Callable[[str, str], None]


@contextmanager
def new_file(path: Path, later: Renames | None = None) -> Iterator[IO[bytes]]:
    """Yield a file, compressed by its ending, that appears at its path once it is complete.

    With `later`, it appears with others. A symbolic link is followed. Raises RunError if writing
    fails.
    """
    with (
        write_errors(path),
        atomic_file(resolve_link(path), later=later) as raw,
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
    `columns` are the names in the header of CSV and the keys of JSON lines, or the numbers of the
    columns of a CSV without a header.
    Raises errors as `new_file` does, and UserError for text that the format cannot hold.
    """
    with ExitStack() as stack:
        if later is None:
            later = stack.enter_context(appearing_together())
        files = [
            io.TextIOWrapper(stack.enter_context(new_file(path, later)), "utf-8", newline="")
            for path in paths
        ]
        yield _writer(files, paths[0], columns)
        for file in files:
            file.flush()
            file.detach()


def _writer(files: Sequence[io.TextIOWrapper], path: Path, columns: Sequence[str]) -> WritePair:
    if len(files) == 2:
        return _line_writer(*files)
    form = table_format(path)
    if form == "csv":
        return _csv_writer(files[0], columns)
    return _json_writer(files[0], columns) if form == "json" else _tsv_writer(files[0], path)


def _line_writer(src_file: IO[str], tgt_file: IO[str]) -> WritePair:
    def write(src: str, tgt: str) -> None:
        src_file.write(f"{src}\n")
        tgt_file.write(f"{tgt}\n")

    return write


def _csv_writer(file: IO[str], columns: Sequence[str]) -> WritePair:
    table, numbers = csv.writer(file), as_numbers(columns)  # RFC 4180
    if numbers is None:
        table.writerow(columns)
    src_place, tgt_place = numbers or (0, 1)

    def write(src: str, tgt: str) -> None:
        cells = [""] * (max(src_place, tgt_place) + 1)
        cells[src_place], cells[tgt_place] = src, tgt
        table.writerow(cells)

    return write


def _json_writer(file: IO[str], columns: Sequence[str]) -> WritePair:
    def write(src: str, tgt: str) -> None:
        fields = dict(zip(columns, (src, tgt), strict=True))
        file.write(json.dumps(fields, ensure_ascii=False) + "\n")

    return write


def _tsv_writer(file: IO[str], path: Path) -> WritePair:
    def write(src: str, tgt: str) -> None:
        if "\t" in src or "\t" in tgt:
            raise UserError(
                f"{path}: a sentence contains a tab ({src[:40]!r}), which TSV cannot hold. "
                "Write two files, .csv or .jsonl"
            )
        file.write(f"{src}\t{tgt}\n")

    return write
