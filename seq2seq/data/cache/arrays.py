"""Training text and its token ids as flat arrays in a cache entry: streamed to disk, then mapped.

Each side has a file of values (`text` or `ids`) and files of the `ends` and `lengths` of its lines.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from seq2seq.config.schema import ParallelFiles
from seq2seq.data.cache.entries import Entry, Facts
from seq2seq.data.corpus import ParallelText, has_text, iter_pairs, no_usable_pair, source_name
from seq2seq.data.packed_sequences import Chunk, Ends, Lengths, PackedIds, PackedLines
from seq2seq.runtime.console import printable

SIDES = ("src", "tgt")
Number = TypeVar("Number", bound=np.generic)
_BLOCK_PAIRS = 10_000  # written at a time


def copy_text(files: ParallelFiles, folder: Path) -> Facts:
    """Copy the pairs with text on both sides; return the counts of pairs by kind.

    Raises UserError as `iter_pairs` does, and if no pair has text on both sides.
    """
    facts = {"pairs": 0, "blank": 0, "same": 0}
    name, pairs = source_name(files), iter_pairs(files)
    with (
        _Writer(folder, "src", "text") as src_writer,
        _Writer(folder, "tgt", "text") as tgt_writer,
        tqdm(desc=printable(f"reading {name}"), unit=" pairs", leave=False, disable=None) as bar,
    ):
        while block := list(islice(pairs, _BLOCK_PAIRS)):
            kept = [pair for pair in block if has_text(*pair)]
            facts["pairs"] += len(kept)
            facts["blank"] += len(block) - len(kept)
            facts["same"] += sum(src == tgt for src, tgt in kept)
            src_writer.write(*_joined([src for src, _ in kept]))
            tgt_writer.write(*_joined([tgt for _, tgt in kept]))
            bar.update(len(block))
    if not facts["pairs"]:
        raise no_usable_pair(name, facts["blank"])
    return facts


def map_text(folder: Path, name: str) -> ParallelText:
    """Map the text of an entry."""
    src, tgt = (_map_lines(folder, folder, side) for side in SIDES)
    return ParallelText(src, tgt, name)


def write_ids(folder: Path, text: Path, chunks: Iterable[Chunk], vocabulary_size: int) -> Facts:
    """Write the ids of a cached text and the positions of its lines; return the counts of pairs.

    The text of the pairs kept is not copied: `text_ends` and `text_lengths` point into its entry.
    """
    wide = vocabulary_size > 1 << 16
    kept = seen = 0
    lines = [_positions(text, side) for side in SIDES]
    names = "ids", "text_ends", "text_lengths"
    with _Writer(folder, "src", *names) as src_writer, _Writer(folder, "tgt", *names) as tgt_writer:
        writers = src_writer, tgt_writer
        for pairs, rows, *sides in chunks:
            for writer, side, (ends, lengths) in zip(writers, sides, lines, strict=True):
                ids = side.ids if wide else side.ids.astype(np.uint16)
                writer.write(ids, side.lengths, ends[rows], lengths[rows])
            kept, seen = kept + len(rows), seen + pairs
    return {"pairs": kept, "too_long": seen - kept, "wide": wide}


def map_ids(entry: Entry, text: Path) -> tuple[PackedLines, PackedLines, PackedIds, PackedIds]:
    """Map the lines (source, target) and ids (source, target) of an entry of a cached text."""
    kind: type[np.uint32 | np.uint16] = np.uint32 if entry.facts["wide"] else np.uint16
    src, tgt = (_map_lines(text, entry.folder, side, "text_") for side in SIDES)
    src_ids, tgt_ids = (
        PackedIds(_mapped(entry.folder / f"{side}.ids", kind), *_positions(entry.folder, side))
        for side in SIDES
    )
    return src, tgt, src_ids, tgt_ids


def _map_lines(text: Path, folder: Path, side: str, prefix: str = "") -> PackedLines:
    """Map lines of a cached text, whose positions are in `folder`."""
    return PackedLines(_mapped(text / f"{side}.text", np.uint8), *_positions(folder, side, prefix))


def _positions(folder: Path, side: str, prefix: str = "") -> tuple[Ends, Lengths]:
    return (
        _mapped(folder / f"{side}.{prefix}ends", np.int64),
        _mapped(folder / f"{side}.{prefix}lengths", np.uint32),
    )


class _Writer:
    """Files of one side of an entry: values, ends and lengths, and arrays parallel to those."""

    def __init__(self, folder: Path, side: str, values: str, *others: str) -> None:
        self._end, self._stack = 0, ExitStack()  # which closes all files, even if one fails
        self._files = [
            self._stack.enter_context((folder / f"{side}.{name}").open("xb"))
            for name in (values, "ends", "lengths", *others)
        ]

    def write(self, values: NDArray[Any], lengths: Lengths, *others: NDArray[Any]) -> None:
        """Append lines of the given lengths, whose values are concatenated."""
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        self._end += len(values)
        for file, array in zip(self._files, (values, ends, lengths, *others), strict=True):
            file.write(array.tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _joined(lines: list[str]) -> tuple[NDArray[np.uint8], Lengths]:
    encoded = [line.encode() for line in lines]
    lengths = np.array([len(line) for line in encoded], np.uint32)
    return np.frombuffer(b"".join(encoded), np.uint8), lengths


def _mapped(path: Path, kind: type[Number]) -> NDArray[Number]:
    """Map a file as an array, which uses no process memory."""
    if not path.stat().st_size:
        return np.empty(0, kind)  # an empty file cannot be mapped
    return np.memmap(path, kind, mode="r").view(np.ndarray)
