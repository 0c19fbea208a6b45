"""Ids into batches: length buckets, a token budget, padding.

The order is a pure function of (seed, epoch).
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.vocabulary import BOS_ID, EOS_ID, PAD_ID, Vocabularies

Ids = list[int]
Rows = NDArray[np.int64]
Length = TypeVar("Length", int, Rows)

SRC_STEP, TGT_STEP, ROW_STEP = 4, 2, 8  # padded lengths and rows of a batch are multiples of these


class Batch(NamedTuple):
    """Padded pairs. START = BOS begins `tgt_in`, END = EOS ends `src` and `tgt_out`."""

    src: Tensor  # [B, S]
    src_lengths: Tensor  # [B], END counted
    tgt_in: Tensor  # [B, T]
    tgt_out: Tensor  # [M], the ids to predict, padding left out
    tgt_positions: Tensor  # [M], where they stand in a flattened [B * T]

    def to(self, device: torch.device) -> Self:
        """The batch on a device."""
        return type(self)(*(part.to(device, non_blocking=True) for part in self))


class EncodedPairs(NamedTuple):
    """A parallel text as ids, END not counted, and its text for drawing other segmentations."""

    src_texts: list[str]
    tgt_texts: list[str]
    src: list[Ids]
    tgt: list[Ids]
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
        [src[i] for i in rows],
        [tgt[i] for i in rows],
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


def epoch_order(pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int | None) -> list[Rows]:
    """The rows of each batch, in the order of training; epoch None: by length, unshuffled.

    Pairs of like length meet in a batch, which is full where another row would make its padded
    target, END counted, longer than `batch_tokens` (or its padded source twice that). A pair
    longer than the budget is a batch of its own.
    """
    src = np.array([len(ids) + 1 for ids in pairs.src])
    tgt = np.array([len(ids) + 1 for ids in pairs.tgt])
    generator = np.random.Generator(np.random.PCG64([seed, 0 if epoch is None else epoch + 1]))
    rows = np.arange(len(src)) if epoch is None else generator.permutation(len(src))
    rows = rows[np.lexsort((src[rows], tgt[rows]))]
    batches = list(_cut(rows, _rounded(src, SRC_STEP), _rounded(tgt, TGT_STEP), batch_tokens))
    if epoch is not None:
        batches = [batches[i] for i in generator.permutation(len(batches))]
    return batches


def _rounded(length: Length, step: int) -> Length:
    """The multiple of `step` that a length is padded to."""
    return -(-length // step) * step


def _cut(rows: Rows, src: Rows, tgt: Rows, batch_tokens: int) -> Iterator[Rows]:
    """Batches of multiples of 8 rows where there are as many: fewer sizes, fewer new kernels."""
    start = end = longest_src = 0
    while start < len(rows):
        while end < len(rows):
            count, longest_src = end + 1 - start, max(longest_src, src[rows[end]])
            full = count * tgt[rows[end]] > batch_tokens or count * longest_src > 2 * batch_tokens
            if full and count > 1:
                break
            end += 1
        if end < len(rows) and end - start > ROW_STEP:
            end -= (end - start) % ROW_STEP
        yield rows[start:end]
        start, longest_src = end, 0


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


def seed_of(*parts: int) -> int:
    """A seed that is a pure function of what it is for: (seed, step, piece)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
