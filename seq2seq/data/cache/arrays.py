"""Training text in an entry of the cache: a plain copy of its usable pairs, to be mapped.

Every check on raw text is made while it is copied, and again never until a file changes; what was
counted stands in the entry's facts.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from seq2seq.data.cache.entries import Facts
from seq2seq.data.corpus import ParallelText, read_pairs, usable
from seq2seq.data.packed_sequences import PackedLines
from seq2seq.runtime.errors import UserError

SIDES = ("src", "tgt")
Number = TypeVar("Number", bound=np.generic)
_BYTES = 1 << 22  # read at a time
_PAIRS = 10_000  # written at a time
_BOM = b"\xef\xbb\xbf"


class Files(NamedTuple):
    """The files of a parallel text: one for each side, or one with a column for each."""

    src: Path | None
    tgt: Path | None
    tsv: Path | None

    def named(self) -> dict[str, Path]:
        """Those that there are, by their keys."""
        return {key: path for key, path in self._asdict().items() if path is not None}

    def __str__(self) -> str:
        return " and ".join(map(str, self.named().values()))


class _Irregular(Exception):
    """Something is wrong with the text; `read_pairs` says what."""


def copy_text(files: Files, folder: Path) -> Facts:
    """Copy the usable pairs into a folder; returns what was counted.

    Raises UserError as `read_pairs` and `usable` do.
    """
    facts = {"pairs": 0, "blank": 0, "same": 0}
    with suppress(_Irregular, UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
        writers = [_Writer(folder, side) for side in SIDES]
        with ExitStack() as stack:
            for writer in writers:
                stack.callback(writer.close)
            bar = stack.enter_context(
                tqdm(desc=f"reading {files}", unit=" pairs", leave=False, disable=None)
            )
            for src, tgt in _pairs(files):
                bar.update()
                if not (src.strip() and tgt.strip()):
                    facts["blank"] += 1
                    continue
                facts["pairs"] += 1
                facts["same"] += src == tgt
                writers[0].write(src)
                writers[1].write(tgt)
        if facts["pairs"]:
            return facts
    usable(read_pairs(**files._asdict()))
    raise UserError(f"{files}: changed while being read; try again")


def map_text(folder: Path, source_name: str) -> ParallelText:
    """The text of an entry, mapped."""
    src, tgt = (
        PackedLines(
            mapped(folder / f"{side}.text", np.uint8),
            mapped(folder / f"{side}.ends", np.int64),
            mapped(folder / f"{side}.lengths", np.uint32),
        )
        for side in SIDES
    )
    return ParallelText(src, tgt, source_name)


def mapped(path: Path, kind: type[Number]) -> NDArray[Number]:
    """A file as an array that takes no memory of the process."""
    if not path.stat().st_size:
        return np.empty(0, kind)  # nothing cannot be mapped
    return np.memmap(path, kind, mode="r").view(np.ndarray)


class _Writer:
    """Writes the lines of one side, and where they end."""

    def __init__(self, folder: Path, side: str) -> None:
        self._files = [(folder / f"{side}.{end}").open("xb") for end in ("text", "ends", "lengths")]
        self._lines: list[bytes] = []
        self._end = 0

    def write(self, line: str) -> None:
        self._lines.append(line.encode())
        if len(self._lines) == _PAIRS:
            self._flush()

    def close(self) -> None:
        with ExitStack() as stack:  # closes all of them, whatever fails
            for file in self._files:
                stack.callback(file.close)
            self._flush()

    def _flush(self) -> None:
        lengths = np.array([len(line) for line in self._lines], np.uint32)
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        content = b"".join(self._lines), ends.tobytes(), lengths.tobytes()
        for file, part in zip(self._files, content, strict=True):
            file.write(part)
        self._end = int(ends[-1]) if len(ends) else self._end
        self._lines.clear()


def _pairs(files: Files) -> Iterator[tuple[str, str]]:
    """The pairs, as `read_pairs` reads them; raises _Irregular and others where it refuses."""
    if files.tsv is not None:
        for line in _lines(files.tsv):
            src, *rest = line.split("\t", 2)
            if not rest:
                raise _Irregular
            yield src, rest[0]
        return
    assert files.src is not None, "give src and tgt, or tsv"
    assert files.tgt is not None, "give src and tgt, or tsv"
    try:
        yield from zip(_lines(files.src), _lines(files.tgt), strict=True)
    except ValueError as error:  # lines left on one side; or UnicodeDecodeError
        raise _Irregular from error


def _lines(path: Path) -> Iterator[str]:
    with _opened(path) as file:
        data = b"".join(file.readlines(_BYTES)).removeprefix(_BOM)
        while data:
            if b"\0" in data:
                raise _Irregular
            lines = data.decode("utf-8").split("\n")
            if not lines[-1]:
                del lines[-1]
            for line in lines:
                yield line.removesuffix("\r")
            data = b"".join(file.readlines(_BYTES))


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
