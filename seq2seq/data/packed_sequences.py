"""Variable-length sequences in flat arrays: lines of text, and the token ids they encode to.

The arrays are in memory, or files mapped into it: the system keeps what is in use in its cache, and
the process takes no memory for them.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.vocabulary.vocabulary import Vocabularies

Lengths = NDArray[np.uint32]
Ends = NDArray[np.int64]
Item = TypeVar("Item", covariant=True)


class Items(Sequence[Item]):
    """Sequence whose slices are lists of its items."""

    @overload
    def __getitem__(self, i: int) -> Item: ...

    @overload
    def __getitem__(self, i: slice) -> list[Item]: ...

    def __getitem__(self, i: int | slice) -> Item | list[Item]:
        count = len(self)
        if isinstance(i, slice):
            return self._several(range(count)[i])
        place = int(i) if i >= 0 else int(i) + count  # Python's integers are faster than numpy's
        if not 0 <= place < count:
            raise IndexError(i)
        return self._item(place)

    def _item(self, i: int) -> Item:
        raise NotImplementedError

    def _several(self, places: range) -> list[Item]:
        return [self._item(i) for i in places]


class PackedIds(Items[list[int]]):
    """Sequences of token ids, one behind the other: sequence i is what is before `ends[i]`."""

    def __init__(self, ids: NDArray[Any], ends: Ends, lengths: Lengths) -> None:
        self.ids = ids
        self.ends = ends
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.ends)

    def _item(self, i: int) -> list[int]:
        start, end = _bounds(self.ends, i)
        ids: list[int] = self.ids[start:end].tolist()
        return ids


class PackedLines(Items[str]):
    """Lines of UTF-8 text, one behind the other: line i is what is before `ends[i]`."""

    def __init__(self, text: NDArray[np.uint8], ends: Ends) -> None:
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def _item(self, i: int) -> str:
        start, end = _bounds(self._ends, i)
        return str(self._text[start:end].data, "utf-8")

    def _several(self, places: range) -> list[str]:
        """Return lines; consecutive ones are read at once."""
        if places.step != 1 or not places:
            return super()._several(places)
        start, _ = _bounds(self._ends, places[0])
        ends = [start, *self._ends[places[0] : places[-1] + 1].tolist()]
        text = self._text[start : ends[-1]].data
        return [str(text[a - start : b - start], "utf-8") for a, b in pairwise(ends)]


class Selected(Items[Item]):
    """The items at some rows of a sequence."""

    def __init__(self, items: Sequence[Item], rows: NDArray[np.int64]) -> None:
        self._items = items
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def _item(self, i: int) -> Item:
        return self._items[int(self.rows[i])]


def _bounds(ends: Ends, i: int) -> tuple[int, int]:
    """Return the positions between which sequence i is."""
    return int(ends[i - 1]) if i else 0, int(ends[i])


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
    sides = vocabularies.encode_pairs(src, tgt)
    longest = map(max, *(map(len, ids) for ids in sides))
    rows = [i for i, size in enumerate(longest) if max_length is None or size <= max_length]
    src_ids, tgt_ids = (pack_ids([ids[i] for i in rows]) for ids in sides)
    return Chunk(len(src), start + np.array(rows, np.int64), src_ids, tgt_ids)


def pack_ids(sequences: Sequence[list[int]]) -> PackedIds:
    """Pack sequences of ids in memory."""
    lengths = np.array([len(ids) for ids in sequences], dtype=np.uint32)
    ids = np.fromiter((i for ids in sequences for i in ids), np.uint32, int(lengths.sum()))
    return PackedIds(ids, np.cumsum(lengths, dtype=np.int64), lengths)
