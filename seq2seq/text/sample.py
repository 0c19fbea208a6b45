"""A sample of a long text, spread over all of it."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def sample_rows(count: int, size: int) -> Sequence[int]:
    """Return at most `size` of `count` rows, ascending and spread over all of them.

    If these are not all, there is one row in each of `size` equal parts, at a random place, the
    same in each call. Rows at equal distances could miss most of a text whose order repeats, such
    as one in which two corpora alternate.
    """
    if count <= size:
        return range(count)
    import numpy as np

    starts = np.arange(size + 1, dtype=np.int64) * count // size
    random = (np.random.PCG64(0).random_raw(size) >> 11) * 2.0**-53  # in [0, 1)
    rows: list[int] = (starts[:-1] + (random * np.diff(starts)).astype(np.int64)).tolist()
    return rows


def sample_of(items: Sequence[T], size: int) -> Sequence[T]:
    """Return the items in the rows of `sample_rows`: all of them if there are at most `size`."""
    return items if len(items) <= size else [items[row] for row in sample_rows(len(items), size)]
