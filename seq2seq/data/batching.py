"""Ids into batches: length buckets, a token budget, padding.

The order is a pure function of (seed, epoch).
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.packed_sequences import PackedIds, pack_ids
from seq2seq.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, Vocabularies

Ids = list[int]
Rows = NDArray[np.int64]
Length = TypeVar("Length", int, Rows)

SRC_STEP, TGT_STEP, ROW_STEP = 4, 2, 8  # padded lengths and rows of a batch are multiples of these
SRC_SHARE = 1.25  # of the budget of target tokens: what a padded source may take
BLOCK_PAIRS = 1 << 18  # pairs that are shuffled together
_LONGEST = (1 << 32) - 1  # pieces of a source


class Batch(NamedTuple):
    """Padded pairs. START = BOS begins `tgt_in`, END = EOS ends `src` and `tgt_out`."""

    src: Tensor  # [B, S]
    src_lengths: Tensor  # [B], END counted
    tgt_in: Tensor  # [B, T]
    tgt_out: Tensor  # [M], the ids to predict, padding left out
    tgt_positions: Tensor  # [M], where they stand in a flattened [B * T]

    def to(self, device: torch.device) -> Self:
        """The batch, made on the CPU, on a device, which is not waited for."""
        pinned = device.type == "cuda"  # what is not may be waited for
        parts = (part.pin_memory() if pinned else part for part in self)
        return type(self)(*(part.to(device, non_blocking=True) for part in parts))


class EncodedPairs(NamedTuple):
    """A parallel text as ids, END not counted, and its text for drawing other segmentations."""

    src_texts: Sequence[str]
    tgt_texts: Sequence[str]
    src: PackedIds
    tgt: PackedIds
    too_long: int  # pairs left out

    def __len__(self) -> int:
        return len(self.src)


def encode_pairs(
    src_texts: Sequence[str],
    tgt_texts: Sequence[str],
    vocabularies: Vocabularies,
    max_length: int | None,
) -> EncodedPairs:
    """Ids of every pair of which neither side is longer than `max_length` pieces."""
    src, tgt = vocabularies.src.encode(src_texts), vocabularies.tgt.encode(tgt_texts)
    rows = [
        i
        for i in range(len(src))
        if max_length is None or max(len(src[i]), len(tgt[i])) <= max_length
    ]
    return EncodedPairs(
        [src_texts[i] for i in rows],
        [tgt_texts[i] for i in rows],
        pack_ids([src[i] for i in rows]),
        pack_ids([tgt[i] for i in rows]),
        len(src) - len(rows),
    )


def sampled_pairs(
    pairs: EncodedPairs, rows: Rows, vocabularies: Vocabularies, max_length: int, seed: int
) -> tuple[list[Ids], list[Ids]]:
    """Ids of the pairs `rows` under random segmentations, a pure function of (pairs, rows, seed).

    A pair that a draw makes longer than `max_length` keeps its usual segmentation.
    """
    src = vocabularies.src.sample([pairs.src_texts[i] for i in rows], seed)
    tgt = vocabularies.tgt.sample([pairs.tgt_texts[i] for i in rows], seed + 1)
    for n, i in enumerate(rows):
        if max(len(src[n]), len(tgt[n])) > max_length:
            src[n], tgt[n] = pairs.src[i], pairs.tgt[i]
    return src, tgt


def length_ratio(pairs: EncodedPairs, quantile: float) -> float:
    """A quantile of target length over source length, END counted, as numpy's of all pairs."""
    counts: dict[float, int] = {}
    for start in range(0, len(pairs), BLOCK_PAIRS):
        src, tgt = (
            side.lengths[start : start + BLOCK_PAIRS].astype(np.int64) + 1
            for side in (pairs.src, pairs.tgt)
        )
        for ratio, count in zip(*np.unique(tgt / src, return_counts=True), strict=True):
            counts[float(ratio)] = counts.get(float(ratio), 0) + int(count)
    ratios = np.array(sorted(counts))
    ends = np.cumsum([counts[ratio] for ratio in ratios.tolist()])
    place = quantile * (len(pairs) - 1)
    below, above = ratios[np.searchsorted(ends, [int(place), math.ceil(place)], side="right")]
    share = place - int(place)
    difference = above - below  # numpy interpolates from the nearer end
    return float(below + difference * share if share < 0.5 else above - difference * (1 - share))


class EpochOrder(Sequence[Rows]):
    """The rows of each batch of an epoch, a part of the corpus at a time.

    Memory does not grow with the corpus: every n-th pair is in the same block of BLOCK_PAIRS, and
    one part is held at a time. Every epoch has as many batches.
    """

    def __init__(
        self, pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int | None
    ) -> None:
        self._pairs, self._budget, self._seed, self._epoch = pairs, batch_tokens, seed, epoch
        self._parts = -(-len(pairs) // BLOCK_PAIRS)
        counts = [len(self._bounds(np.sort(self._keys(part)))) - 1 for part in range(self._parts)]
        self._starts = np.cumsum([0, *counts])
        self._held = -1
        self._batches: list[Rows] = []

    def __len__(self) -> int:
        return int(self._starts[-1])

    @overload
    def __getitem__(self, n: int) -> Rows: ...

    @overload
    def __getitem__(self, n: slice) -> list[Rows]: ...

    def __getitem__(self, n: int | slice) -> Rows | list[Rows]:
        if isinstance(n, slice):
            return [self[i] for i in range(*n.indices(len(self)))]
        n = range(len(self))[n]  # from the end, where negative; IndexError
        part = int(np.searchsorted(self._starts, n, side="right")) - 1
        if part != self._held:
            self._held, self._batches = part, self._of(part)
        return self._batches[n - int(self._starts[part])]

    def _of(self, part: int) -> list[Rows]:
        """The batches of a part, in the order of training."""
        keys, epoch = self._keys(part), self._epoch
        # PCG64 takes a missing number for 0: the first part is what one part alone would be.
        number = 0 if epoch is None else epoch + 1
        generator = np.random.Generator(np.random.PCG64([self._seed, number, part]))
        rows = np.arange(len(keys)) if epoch is None else generator.permutation(len(keys))
        rows = rows[np.argsort(keys[rows], kind="stable")]
        bounds = self._bounds(keys[rows])
        rows = part + rows * self._parts
        batches = [rows[start:end] for start, end in pairwise(bounds)]
        if epoch is not None:
            batches = [batches[i] for i in generator.permutation(len(batches))]
        return batches

    def _keys(self, part: int) -> Rows:
        """What the pairs of a part are sorted by: padded target length, then source length.

        Source lengths rise and fall in turn, so that where a batch goes on with longer targets its
        sources stay alike.
        """
        sides = self._pairs.src, self._pairs.tgt
        src, tgt = (side.lengths[part :: self._parts].astype(np.int64) + 1 for side in sides)
        steps = _rounded(tgt, TGT_STEP) // TGT_STEP
        keys: Rows = (steps << 32) + _turned(src, steps)
        return keys

    def _bounds(self, keys: Rows) -> list[int]:
        """Where the batches of sorted pairs begin, and where the last one ends."""
        steps = keys >> 32
        src = _rounded(_turned(keys & _LONGEST, steps), SRC_STEP)
        return [0, *_cut(src, TGT_STEP * steps, self._budget)]


def epoch_order(
    pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int | None
) -> Sequence[Rows]:
    """The rows of each batch, in the order of training; epoch None: by length, unshuffled.

    Pairs of like length meet in a batch, which is full where another row would make its padded
    target, END counted, longer than `batch_tokens`, or its padded source longer than a quarter
    more. A pair longer than the budget is a batch of its own.
    """
    return EpochOrder(pairs, batch_tokens, seed, epoch)


def _rounded(length: Length, step: int) -> Length:
    """The multiple of `step` that a length is padded to."""
    return -(-length // step) * step


def _turned(src: Rows, steps: Rows) -> Rows:
    """Source lengths, counted down where the number of target steps is odd; its own inverse."""
    return np.where(steps % 2 == 0, src, _LONGEST - src)


def _cut(src: Rows, tgt: Rows, batch_tokens: int) -> Iterator[int]:
    """Where batches of pairs sorted by padded target length end, by padded lengths of both sides.

    They have multiples of 8 rows where there are as many: fewer sizes, fewer new kernels.
    """
    start = 0
    while start < len(tgt):
        most = max(1, batch_tokens // int(tgt[start]))
        counts = np.arange(1, len(tgt[start : start + most]) + 1)
        longest = np.maximum.accumulate(src[start : start + most])
        fits = counts * tgt[start : start + most] <= batch_tokens
        fits &= counts * longest <= SRC_SHARE * batch_tokens
        count = len(fits) if fits.all() else max(1, int(np.argmin(fits)))
        if start + count < len(tgt) and count > ROW_STEP:
            count -= count % ROW_STEP
        start += count
        yield start


def make_batch(src: Sequence[Ids], tgt: Sequence[Ids]) -> Batch:
    """Pad pairs of ids into a Batch.

    Lengths are rounded up, so that few shapes occur: matrix kernels are made anew for each new one.
    """
    src_width = _rounded(max(map(len, src)) + 1, SRC_STEP)
    tgt_width = _rounded(max(map(len, tgt)) + 1, TGT_STEP)
    tgt_out = pad([[*ids, EOS_ID] for ids in tgt], tgt_width)
    positions = (tgt_out.flatten() != PAD_ID).nonzero().squeeze(1)
    src_padded, src_lengths = pad_sources(src, src_width)
    return Batch(
        src_padded,
        src_lengths,
        pad([[BOS_ID, *ids] for ids in tgt], tgt_width),
        tgt_out.flatten()[positions],
        positions,
    )


def pad_sources(src: Sequence[Ids], width: int = 0) -> tuple[Tensor, Tensor]:
    """Source ids, each ended by END, padded to [B, S] (at least `width`), and their lengths [B]."""
    ended = [[*ids, EOS_ID] for ids in src]
    return pad(ended, width), torch.tensor([len(ids) for ids in ended])


def pad(sequences: Sequence[Ids], width: int = 0) -> Tensor:
    """Ids of unequal length -> [B, longest (at least `width`)], filled with PAD."""
    longest = max(width, max(map(len, sequences)))
    padded = np.full((len(sequences), longest), PAD_ID, dtype=np.int64)
    for row, ids in zip(padded, sequences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)


def derive_seed(*parts: int) -> int:
    """A seed that is a pure function of what it is for: (seed, step, piece)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
