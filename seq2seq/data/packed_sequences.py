"""Variable-length sequences in flat arrays: lines of text, and the token ids they encode to.

Arrays mapped from files use no process memory: the system keeps the pages in use in its cache.
"""

from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.vocabulary import Vocabularies

Lengths = NDArray[np.uint32]
Ends = NDArray[np.int64]


class PackedIds(Sequence[list[int]]):
    """Sequences of token ids: sequence i is the `lengths[i]` ids before `ends[i]`."""

    def __init__(self, ids: NDArray[np.unsignedinteger], ends: Ends, lengths: Lengths) -> None:
        self.ids, self.ends, self.lengths = ids, ends, lengths

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, i: int) -> list[int]: ...

    @overload
    def __getitem__(self, i: slice) -> list[list[int]]: ...

    def __getitem__(self, i: int | slice) -> list[int] | list[list[int]]:
        if isinstance(i, slice):
            return [self[n] for n in range(*i.indices(len(self)))]
        end = int(self.ends[i])
        ids: list[int] = self.ids[end - int(self.lengths[i]) : end].tolist()
        return ids


class PackedLines(Sequence[str]):
    """Lines of UTF-8 text: line i is the `lengths[i]` bytes before `ends[i]`."""

    def __init__(self, text: NDArray[np.uint8], ends: Ends, lengths: Lengths) -> None:
        self._text, self._ends, self._lengths = memoryview(text), ends, lengths  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, i: int) -> str: ...

    @overload
    def __getitem__(self, i: slice) -> list[str]: ...

    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[n] for n in range(*i.indices(len(self)))]
        end = int(self._ends[i])
        return str(self._text[end - int(self._lengths[i]) : end], "utf-8")


class Chunk(NamedTuple):
    """Token ids of consecutive pairs, except those with a side that is too long."""

    pairs: int  # pairs encoded, including those too long
    rows: Ends  # positions of the pairs kept, in the text
    src: PackedIds
    tgt: PackedIds


def encode_chunk(
    src: Sequence[str],
    tgt: Sequence[str],
    vocabularies: Vocabularies,
    max_length: int | None,
    start: int = 0,
) -> Chunk:
    """Encode pairs that start at a row of the text; drop those of more than `max_length` tokens."""
    src_ids, tgt_ids = vocabularies.src.encode(src), vocabularies.tgt.encode(tgt)
    kept = [
        i
        for i in range(len(src))
        if max_length is None or max(len(src_ids[i]), len(tgt_ids[i])) <= max_length
    ]
    return Chunk(
        len(src),
        start + np.array(kept, np.int64),
        pack_ids([src_ids[i] for i in kept]),
        pack_ids([tgt_ids[i] for i in kept]),
    )


def pack_ids(sequences: Sequence[list[int]]) -> PackedIds:
    """Pack sequences of ids in memory."""
    lengths = np.array([len(ids) for ids in sequences], dtype=np.uint32)
    ids = np.fromiter((i for ids in sequences for i in ids), np.uint32, int(lengths.sum()))
    return PackedIds(ids, np.cumsum(lengths, dtype=np.int64), lengths)
