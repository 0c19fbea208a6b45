"""Windows of pairs of similar length, from which the batches of an epoch are drawn at random.

Batches of pairs sorted by length have the least padding, but hardly change from epoch to epoch. A
window therefore holds the pairs of several batches. There are two layouts of windows over the same
pairs, used in turn: one narrow in target length and wide in source length, the other the reverse.
Few pairs share a window in both layouts, so windows of a few batches suffice for few batch-mates
to meet again in the next epoch.

Lengths include EOS and are positive int64 arrays [N].
"""

from bisect import bisect_left
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

ROW_STEP = 8  # batch sizes are multiples of it if possible: fewer shapes need fewer kernels
SRC_SHARE = 1.25  # maximum padded source tokens of a batch, relative to the target token budget
MAX_MET_AGAIN = 0.048  # share of batch-mates met again in the next epoch
MAX_PADDED = 1.08  # padded tokens, relative to batches of sorted pairs
MAX_BATCHES = 1.25  # number of batches, relative to batches of sorted pairs
VERSION = 1  # incremented when the same pairs are divided into another number of batches
_SCALES = 1.07 ** np.arange(-16, 56)  # window sizes to try, relative to the mean in `layouts`
_SORTED_STEPS = 4, 2  # multiples to which sorting rounds source and target lengths
_MIN_BATCHES = 1  # per window
_GROUP_WINDOWS = 3  # per group of equal or neighbouring lengths on the narrow side
_MAX_COUNTED = 1 << 20  # combinations of lengths that are counted in an array


class BatchDivision(NamedTuple):
    """Division of a corpus into windows and batches, the same for all of its epochs."""

    scale: float  # as `choose_scale` returns it
    batches: list[int]  # number in each block of pairs that are shuffled together


# By batch_tokens, and True if the batches are sorted.
Divisions: TypeAlias = MutableMapping[tuple[int, bool], BatchDivision]


class Layout(NamedTuple):
    """A division of pairs into windows."""

    rows: Rows  # [N], window by window
    window: Rows  # [N], of each of `rows`
    batch_ends: Rows  # in `rows`, ascending; a batch fits the budget whichever rows it draws

    def draw(self, generator: "np.random.Generator") -> list[Rows]:
        """Return the rows of each batch, drawn at random within each window."""
        order = np.argsort(self.window + generator.random(len(self.rows)), kind="stable")
        rows = self.rows[order]
        ends = self.batch_ends.tolist()
        return [rows[start:end] for start, end in pairwise([0, *ends])]


class Layouts(NamedTuple):
    """Both layouts of the same pairs."""

    by_tgt: Layout  # narrow in target length
    by_src: Layout  # narrow in source length

    @property
    def batches(self) -> int:
        """The number of batches of an epoch: that of the layout with more of them."""
        return max(len(layout.batch_ends) for layout in self)

    def draw(self, number: int, generator: "np.random.Generator") -> list[Rows]:
        """Return the batches of an epoch in random order; `number` chooses the layout by parity.

        If the layout has fewer batches than the other, some of the largest are halved.
        """
        batches = self[number % 2].draw(generator)
        while shortfall := self.batches - len(batches):
            batches.sort(key=len, reverse=True)
            halves = [half for batch in batches[:shortfall] for half in np.array_split(batch, 2)]
            batches = [half for half in halves if len(half)] + batches[shortfall:]
        return [batches[i] for i in generator.permutation(len(batches))]


def layouts(src: Rows, tgt: Rows, batch_tokens: int, scale: float) -> Layouts:
    """Divide pairs of source and target lengths into windows, in both ways.

    A window holds at least two batches, and about `scale` times the geometric mean of the pairs of
    a batch and of the pairs that have the same two lengths.
    """
    fit = _rows_that_fit(src, tgt, batch_tokens)
    equal = _equal_pairs(src, tgt)
    shares = 1 / np.maximum(_MIN_BATCHES * fit, scale * np.sqrt(fit * equal))
    divided = []
    for narrow, wide in ((tgt, src), (src, tgt)):
        rows = _arranged(narrow, wide, shares)
        divided.append(_layout(rows, src[rows], tgt[rows], shares[rows], batch_tokens))
    return Layouts(*divided)


def choose_scale(src: Rows, tgt: Rows, batch_tokens: int) -> float:
    """Return the smallest scale by which at most MAX_MET_AGAIN of the batch-mates meet again.

    If the batches are too few for that, return the largest for which their number and their padded
    tokens are at most MAX_BATCHES and MAX_PADDED times those of batches of sorted pairs.
    """
    scales: list[float] = _SCALES.tolist()
    if not len(src):
        return scales[0]
    by_length = sorted_batches(src, tgt, batch_tokens)
    most_padded = MAX_PADDED * padded_tokens(by_length, src, tgt)

    def epochs(scale: float) -> list[list[Rows]]:
        divided = layouts(src, tgt, batch_tokens, scale)
        return [divided.draw(n, np.random.Generator(np.random.PCG64(n))) for n in range(3)]

    def is_mixed(scale: float) -> bool:
        return max(met_again(*batches) for batches in pairwise(epochs(scale))) <= MAX_MET_AGAIN

    def is_costly(scale: float) -> bool:
        even, odd, _ = epochs(scale)
        if len(even) > MAX_BATCHES * len(by_length):
            return True
        return padded_tokens(even, src, tgt) + padded_tokens(odd, src, tgt) > 2 * most_padded

    mixed, costly = (bisect_left(scales, True, key=holds) for holds in (is_mixed, is_costly))
    return scales[min(mixed, max(0, costly - 1))]


def met_again(earlier_batches: Sequence[Rows], later_batches: Sequence[Rows]) -> float:
    """Return the share of its batch-mates that a pair has met in the epoch before, the mean of all.

    The larger of the means over pairs and over batch-mates.
    """
    old, new = (np.empty(sum(map(len, later_batches)), np.int64) for _ in range(2))
    for number, batches in ((old, earlier_batches), (new, later_batches)):
        number[np.concatenate(batches)] = np.repeat(np.arange(len(batches)), [*map(len, batches)])
    mates = np.array([*map(len, later_batches)])[new] - 1
    _, meeting, counts = np.unique((old << 32) + new, return_inverse=True, return_counts=True)
    again = counts[meeting] - 1
    means = (again / np.maximum(mates, 1)).mean(), again.sum() / max(1, mates.sum())
    return float(max(means))


def padded_tokens(batches: Sequence[Rows], src: Rows, tgt: Rows) -> int:
    """Return the tokens of both sides of all batches, padding included."""
    sizes = np.array([*map(len, batches)])
    rows = np.concatenate(batches)
    starts = np.cumsum(sizes) - sizes
    longest = (np.maximum.reduceat(side[rows], starts) for side in (src, tgt))
    return int((sizes * sum(longest)).sum())


def sorted_batches(src: Rows, tgt: Rows, batch_tokens: int) -> list[Rows]:
    """Return the rows of batches of pairs sorted by target length, then by source length.

    Lengths count as multiples of _SORTED_STEPS. Source lengths ascend and descend alternately, so
    that they stay similar where a batch continues with longer targets. A batch is full when another
    pair would exceed its budget.
    """
    src_step, tgt_step = _SORTED_STEPS
    steps = -(-tgt // tgt_step)
    rows = _sorted_rows(steps, src)
    src_padded = -(-src[rows] // src_step) * src_step
    ends = _batch_ends(src_padded, tgt_step * steps[rows], batch_tokens)
    return [rows[start:end] for start, end in pairwise([0, *ends])]


def _arranged(narrow: Rows, wide: Rows, shares: Floats) -> Rows:
    """Return the rows sorted by groups of `narrow`, and by `wide` in each.

    A group holds neighbouring lengths for _GROUP_WINDOWS windows, of which pairs fill `shares`.
    """
    window_shares = np.bincount(narrow, shares)
    filled_before = np.cumsum(window_shares) - window_shares
    group = (filled_before / _GROUP_WINDOWS).astype(np.int64)[narrow]
    return _sorted_rows(group, wide)


def _layout(rows: Rows, src: Rows, tgt: Rows, shares: Floats, batch_tokens: int) -> Layout:
    """Cut arranged rows into windows where the shares sum to 1; lengths and shares as arranged."""
    window = np.empty_like(rows)
    batch_ends = []
    start = 0
    for number, (end, size) in enumerate(_cuts(src, tgt, np.cumsum(shares), batch_tokens)):
        window[start:end] = number
        batch_ends.append(np.minimum(np.arange(start + size, end + size, size), end))
        start = end
    return Layout(rows, window, np.concatenate(batch_ends))


def _cuts(
    src: Rows, tgt: Rows, cumulative_shares: Floats, batch_tokens: int
) -> Iterator[tuple[int, int]]:
    """Yield the end of each window and the rows of its batches, which are full in all but the last.

    `cumulative_shares` is the cumulative share of a window.
    """
    start = 0
    start_share = 0.0
    count = len(src)
    while start < count:
        end = min(count, max(start + 1, int(np.searchsorted(cumulative_shares, start_share + 1))))
        if cumulative_shares[-1] - cumulative_shares[end - 1] < 0.5:
            end = count
        longest = src[start:end].max(keepdims=True), tgt[start:end].max(keepdims=True)
        size = int(_rows_that_fit(*longest, batch_tokens)[0])
        if end < count and end - start > size:
            end -= (end - start) % size
        yield end, size
        start = end
        start_share = float(cumulative_shares[end - 1])


def _rows_that_fit(src: Rows, tgt: Rows, batch_tokens: int) -> Rows:
    """Return how many pairs of given lengths fit a batch, at least one."""
    fit = np.minimum(batch_tokens // tgt, (SRC_SHARE * batch_tokens / src).astype(np.int64))
    return np.maximum(1, np.where(fit > ROW_STEP, fit - fit % ROW_STEP, fit))


def _equal_pairs(src: Rows, tgt: Rows) -> Rows:
    """Return for each pair how many have its two lengths."""
    cells = tgt * (int(src.max(initial=0)) + 1) + src
    if cells.max(initial=0) < _MAX_COUNTED:
        counts = np.bincount(cells)
    else:
        _, cells, counts = np.unique(cells, return_inverse=True, return_counts=True)
    equal: Rows = counts[cells]
    return equal


def _sorted_rows(group: Rows, lengths: Rows) -> Rows:
    """Return the rows sorted by group; in each, by ascending and descending length alternately."""
    width = int(lengths.max(initial=0)) + 1
    keys = group * width + np.where(group % 2 == 0, lengths, width - 1 - lengths)
    small = np.min_scalar_type(int(keys.max(initial=0)))  # numpy sorts 16 bits in linear time
    return np.argsort(keys.astype(small), kind="stable")


def _batch_ends(src: Rows, tgt: Rows, batch_tokens: int) -> Iterator[int]:
    """Yield the ends of batches of pairs sorted by target: multiples of ROW_STEP if possible."""
    start = 0
    while start < len(tgt):
        max_pairs = max(1, batch_tokens // int(tgt[start]))
        counts = np.arange(1, len(tgt[start : start + max_pairs]) + 1)
        longest = np.maximum.accumulate(src[start : start + max_pairs])
        fits = counts * tgt[start : start + max_pairs] <= batch_tokens
        fits &= counts * longest <= SRC_SHARE * batch_tokens
        count = len(fits) if fits.all() else max(1, int(np.argmin(fits)))
        if start + count < len(tgt) and count > ROW_STEP:
            count -= count % ROW_STEP
        start += count
        yield start
