"""Variable-length sequences in one flat array: token ids, or lines of text.

Arrays mapped from files use no process memory: the system keeps the pages in use in its cache.
"""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.uint32]
Ends = NDArray[np.int64]


class PackedIds(Sequence[list[int]]):
    """Sequences of token ids: sequence i is the `lengths[i]` values before `ends[i]`."""

    def __init__(self, values: NDArray[np.unsignedinteger], ends: Ends, lengths: Lengths) -> None:
        self._values, self._ends, self.lengths = values, ends, lengths

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, i: int) -> list[int]: ...

    @overload
    def __getitem__(self, i: slice) -> list[list[int]]: ...

    def __getitem__(self, i: int | slice) -> list[int] | list[list[int]]:
        if isinstance(i, slice):
            return [self[n] for n in range(*i.indices(len(self)))]
        end = int(self._ends[i])
        ids: list[int] = self._values[end - int(self.lengths[i]) : end].tolist()
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


def pack_ids(sequences: Sequence[list[int]]) -> PackedIds:
    """Pack sequences of ids in memory."""
    lengths = np.array([len(ids) for ids in sequences], dtype=np.uint32)
    values = np.fromiter((i for ids in sequences for i in ids), np.uint32, int(lengths.sum()))
    return PackedIds(values, np.cumsum(lengths, dtype=np.int64), lengths)
