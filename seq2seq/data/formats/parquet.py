"""Parquet files, read in batches of rows by pyarrow, which an extra installs."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from seq2seq.data.compression import damage_errors, is_compressed, open_content, opening_errors
from seq2seq.data.formats.cells import as_line, missing_column
from seq2seq.data.formats.tables import NESTED
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.extras import not_installed

_BATCH_ROWS = 10_000


def iter_parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield two columns of text, of the table or of its struct column `translation`.

    A line break within a cell becomes a space, and null becomes blank text. Raises UserError if
    pyarrow is missing, the file is damaged, or a column is missing or no text.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise not_installed(f"{path}: Parquet needs pyarrow", "formats") from None
    number = 0
    with ExitStack() as stack:
        file = stack.enter_context(open_content(path))
        try:
            if is_compressed(path) or not path.is_file():
                file = _on_disk(file, path, stack)
            table = pyarrow.parquet.ParquetFile(file)
            places = [_place(path, table.schema_arrow, name) for name in columns]
            for batch in table.iter_batches(_BATCH_ROWS, columns=[".".join(p) for p in places]):
                for row in zip(*(_cells(batch, place) for place in places), strict=True):
                    number += 1
                    src, tgt = (as_line(cell or "", f"{path}: row {number}") for cell in row)
                    yield src, tgt
        except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{path}: is not a Parquet file, or damaged ({reason})") from None


def _on_disk(file: IO[bytes], path: Path, stack: ExitStack) -> IO[bytes]:
    """Copy a compressed file or a pipe into a temporary file, since the end is read first."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115, closed with the stack
    stack.enter_context(copy)
    with opening_errors(path), damage_errors(path):
        shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


def _place(path: Path, schema: Any, name: str) -> tuple[str, ...]:
    """Return where a column is: its name, below `translation` if need be."""
    names: list[str] = list(schema.names)
    place: tuple[str, ...] = (name,)
    if names.count(name) > 1:
        raise UserError(
            f"{path}: {names.count(name)} columns are named {name!r}; rename all but one"
        )
    if name in names:
        kind = schema.field(name).type
    else:
        nested = schema.field(NESTED).type if NESTED in names else None
        inner = [field.name for field in nested] if nested is not None and nested.num_fields else []
        if name not in inner:
            raise missing_column(path, name, inner or names)
        assert nested is not None, "has fields"
        kind, place = nested.field(name).type, (NESTED, name)
    if str(kind) not in ("string", "large_string", "string_view"):
        raise UserError(f"{path}: the column {name!r} is {kind}, not text")
    return place


def _cells(batch: Any, place: tuple[str, ...]) -> list[str | None]:
    column = batch.column(place[0])
    for name in place[1:]:
        column = column.field(name)
    cells: list[str | None] = column.to_pylist()
    return cells
