"""The ids of a text in an entry of the cache: written chunk by chunk, then mapped."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from seq2seq.data.batching import EncodedPairs
from seq2seq.data.cache.arrays import SIDES, mapped
from seq2seq.data.cache.entries import Entry, Facts
from seq2seq.data.cache.worker import Chunk, Numbers
from seq2seq.data.packed_sequences import Ends, PackedIds, PackedLines


def write_pairs(
    folder: Path, text: Path, chunks: Iterable[tuple[int, int, Chunk]], pieces: int
) -> Facts:
    """Write the chunks of the ranges (start, end) of a cached text; returns what was counted."""
    wide = pieces > 1 << 16
    writers = [_Writer(folder, text, side, wide) for side in SIDES]
    kept = seen = 0
    with ExitStack() as stack:
        for writer in writers:
            stack.callback(writer.close)
        for start, end, chunk in chunks:
            rows = start + chunk.rows.astype(np.int64)
            writers[0].write(rows, chunk.src_lengths, chunk.src_ids)
            writers[1].write(rows, chunk.tgt_lengths, chunk.tgt_ids)
            kept, seen = kept + len(rows), seen + end - start
    return {"pairs": kept, "too_long": seen - kept, "wide": wide}


def map_pairs(entry: Entry, text: Path) -> EncodedPairs:
    """The pairs of an entry, mapped, over the cached text."""
    wide = entry.facts["wide"]

    def lines(side: str) -> PackedLines:
        ends = mapped(entry.folder / f"{side}.text_ends", np.int64)
        lengths = mapped(entry.folder / f"{side}.text_lengths", np.uint32)
        return PackedLines(mapped(text / f"{side}.text", np.uint8), ends, lengths)

    def ids(side: str) -> PackedIds:
        path = entry.folder / f"{side}.ids"
        values = mapped(path, np.uint32) if wide else mapped(path, np.uint16)
        ends = mapped(entry.folder / f"{side}.ends", np.int64)
        lengths = mapped(entry.folder / f"{side}.lengths", np.uint32)
        return PackedIds(values, ends, lengths)

    src, tgt = SIDES
    return EncodedPairs(lines(src), lines(tgt), ids(src), ids(tgt), entry.facts["too_long"])


class _Writer:
    """Writes the ids of one side, where they end, and where their text does."""

    def __init__(self, folder: Path, text: Path, side: str, wide: bool) -> None:
        self._wide, self._end = wide, 0
        self._text_ends: Ends = mapped(text / f"{side}.ends", np.int64)
        self._text_lengths: Numbers = mapped(text / f"{side}.lengths", np.uint32)
        names = ("ids", "ends", "lengths", "text_ends", "text_lengths")
        self._files: list[IO[bytes]] = [(folder / f"{side}.{name}").open("xb") for name in names]

    def write(self, rows: Ends, lengths: Numbers, ids: Numbers) -> None:
        """Append the ids of some rows of the text."""
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        self._end += len(ids)
        content = (
            (ids if self._wide else ids.astype(np.uint16)).tobytes(),
            ends.tobytes(),
            lengths.tobytes(),
            self._text_ends[rows].tobytes(),
            self._text_lengths[rows].tobytes(),
        )
        for file, part in zip(self._files, content, strict=True):
            file.write(part)

    def close(self) -> None:
        """Write what is left in buffers."""
        with ExitStack() as stack:  # closes all of them, whatever fails
            for file in self._files:
                stack.callback(file.close)
