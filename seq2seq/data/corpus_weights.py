"""Weights of corpora: how much of each an epoch uses, and which of its pairs."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.length_windows import Rows

_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: multiples are spread evenly
_UNIT = 2.0**-64


class Share(NamedTuple):
    """Consecutive rows of one corpus: the row after the last, and the fraction used per epoch."""

    end: int
    fraction: float  # above 0, at most 1


def ends_of(rows: Rows, sizes: Sequence[int]) -> list[int]:
    """Return how many of the sorted rows lie in each corpus of `sizes` pairs and those before."""
    places = range(len(rows))
    return [bisect_left(places, end, key=lambda n: int(rows[n])) for end in accumulate(sizes)]


def shares(ends: Sequence[int], weights: Sequence[float]) -> tuple[Share, ...]:
    """Return the share of each corpus, in proportion to its weight; empty if all pairs are used."""
    if len(set(weights)) == 1:
        return ()
    largest = max(weights)
    return tuple(Share(end, weight / largest) for end, weight in zip(ends, weights, strict=True))


def used_in_epoch(rows: Rows, parts: Sequence[Share], seed: int, epoch: int) -> NDArray[np.bool_]:
    """Return which rows an epoch uses.

    After n epochs, a row of fraction f was used floor(n f) or ceil(n f) times. It is used in epoch
    e if floor((e + 1) f + p) exceeds floor(e f + p), with a phase p in [0, 1) that depends on row
    and seed alone. The phases of consecutive rows are spread evenly, so that every epoch uses
    nearly the same number of rows of a corpus.
    """
    fractions = np.array([part.fraction for part in parts])
    ends = np.array([part.end for part in parts])
    fraction = fractions[np.searchsorted(ends, rows, side="right")]
    (start,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    phase = (rows.astype(np.uint64) * np.uint64(_GOLDEN) + start).astype(np.float64) * _UNIT
    uses_before, uses_after = (np.floor(fraction * number + phase) for number in (epoch, epoch + 1))
    used: NDArray[np.bool_] = (uses_after > uses_before) | (fraction >= 1)
    return used
