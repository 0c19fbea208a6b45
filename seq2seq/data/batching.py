"""Training batches: pairs of token ids, grouped by length under a token budget.

The order of an epoch is a pure function of (seed, epoch).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.data import length_windows
from seq2seq.data.corpus_weights import Share, ends_of, shares, used_in_epoch
from seq2seq.data.length_windows import BatchDivision, Divisions, Rows
from seq2seq.data.packed_sequences import Items, PackedIds, encode_chunk
from seq2seq.data.vocabulary.vocabulary import Ids, Vocabularies
from seq2seq.text import copied_words
from seq2seq.text.sample import sample_rows

BLOCK_PAIRS = 1 << 18  # pairs shuffled together
MAX_RATIOS = 1 << 20  # pairs of which the ratio of lengths is taken, from all of the text


class EncodedPairs(NamedTuple):
    """Parallel text as token ids without EOS, with the text for subword regularization."""

    src_texts: Sequence[str]
    tgt_texts: Sequence[str]
    src: PackedIds
    tgt: PackedIds
    too_long: int  # pairs dropped
    shares: tuple[Share, ...] = ()  # corpora, if an epoch does not use all pairs
    links: Sequence[Ids] | None = None  # word alignments: source word, target word, ...
    divisions: Divisions | None = None  # into batches, as far as known; None: do not keep them

    def __len__(self) -> int:
        return len(self.src)


def encode_pairs(  # noqa: PLR0913
    src_texts: Sequence[str],
    tgt_texts: Sequence[str],
    vocabularies: Vocabularies,
    max_length: int | None,
    sizes: Sequence[int] = (),
    weights: Sequence[float] = (),
) -> EncodedPairs:
    """Encode pairs of at most `max_length` tokens a side, of corpora of `sizes` and `weights`."""
    pairs, rows, src, tgt = encode_chunk(src_texts, tgt_texts, vocabularies, max_length)
    src_kept, tgt_kept = ([side[i] for i in rows.tolist()] for side in (src_texts, tgt_texts))
    parts = shares(ends_of(rows, sizes), weights) if len(sizes) > 1 else ()
    return EncodedPairs(src_kept, tgt_kept, src, tgt, pairs - len(rows), parts, divisions={})


def sampled_pairs(  # noqa: PLR0913
    pairs: EncodedPairs,
    rows: Rows,
    vocabularies: Vocabularies,
    max_length: int,
    seed: int,
    alike: bool = False,
    inventor: copied_words.NameInventor | None = None,
) -> tuple[list[Ids], list[Ids]]:
    """Return the ids of `rows` under random segmentations, functions of text, row and seed.

    A pair whose sample exceeds `max_length` keeps its text and usual segmentation. With `alike`, a
    word has the same tokens on both sides. An inventor replaces names before.
    """
    numbers = rows.tolist()
    src_texts: Sequence[str] = [pairs.src_texts[i] for i in numbers]
    tgt_texts: Sequence[str] = [pairs.tgt_texts[i] for i in numbers]
    if inventor is not None:
        src_texts, tgt_texts = inventor.invent(src_texts, tgt_texts, seed + 2, numbers)
    src_texts, tgt_texts = vocabularies.mask_pairs(src_texts, tgt_texts)
    if vocabularies.src.sampling == 0:
        src, tgt = vocabularies.src.encode(src_texts), vocabularies.tgt.encode(tgt_texts)
    elif alike:
        src, tgt = vocabularies.src.sample_pairs(src_texts, tgt_texts, seed, numbers)
    else:
        src = vocabularies.src.sample(src_texts, seed, numbers)
        tgt = vocabularies.tgt.sample(tgt_texts, seed + 1, numbers)
    for n, i in enumerate(numbers):
        if max(len(src[n]), len(tgt[n])) > max_length:
            src[n], tgt[n] = pairs.src[i], pairs.tgt[i]
    return src, tgt


def length_ratio(pairs: EncodedPairs, quantile: float) -> float:
    """Return a quantile of target length over source length, including EOS, of MAX_RATIOS pairs."""
    rows = np.array(sample_rows(len(pairs), MAX_RATIOS), np.int64)
    src, tgt = (side.lengths[rows].astype(np.int64) + 1 for side in (pairs.src, pairs.tgt))
    return float(np.quantile(tgt / src, quantile))


class EpochOrder(Items[Rows]):
    """The rows of each batch of an epoch, in training order; for epoch None by length, unshuffled.

    A batch contains pairs of similar length, drawn at random from one of the `length_windows`. Its
    padded target, including EOS, has at most `batch_tokens`, its padded source SRC_SHARE times as
    many. A pair that exceeds the budget forms a batch of its own.

    Memory does not grow with the corpus: it is divided into interleaved blocks of at most
    BLOCK_PAIRS, of which one is shuffled at a time. All epochs have the same number of batches,
    unless corpora are sampled by weight.
    """

    def __init__(
        self, pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int | None
    ) -> None:
        self._pairs, self._budget, self._seed, self._epoch = pairs, batch_tokens, seed, epoch
        self._sides = pairs.src, pairs.tgt
        self._blocks = -(-len(pairs) // BLOCK_PAIRS)
        divisions, key = pairs.divisions, (batch_tokens, epoch is None)
        if divisions is None or (epoch is not None and pairs.shares):
            self._scale, counts = self._divide()
        else:  # known, or divided and kept
            if key not in divisions or len(divisions[key].batches) != self._blocks:
                divisions[key] = self._divide()
            self._scale, counts = divisions[key]
        self._starts = np.cumsum([0, *counts])
        self._current = -1  # the block whose batches are kept
        self._batches: list[Rows] = []

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _item(self, i: int) -> Rows:
        block = int(np.searchsorted(self._starts, i, side="right")) - 1
        if block != self._current:
            self._current, self._batches = block, self._batches_of(block)
        return self._batches[i - int(self._starts[block])]

    def _batches_of(self, block: int) -> list[Rows]:
        lengths, positions = self._lengths(block), self._used_positions(block)
        if self._epoch is None:
            batches = length_windows.sorted_batches(*lengths, self._budget)
        else:
            # PCG64 reads missing numbers as 0: block 0 is shuffled like a corpus of a single block.
            numbers = [self._seed, self._epoch + 1, block]
            generator = np.random.Generator(np.random.PCG64(numbers))
            windows = length_windows.layouts(*lengths, self._budget, self._scale)
            batches = windows.draw(self._epoch + block, generator)
        rows = (batch if positions is None else positions[batch] for batch in batches)
        return [block + batch * self._blocks for batch in rows]

    def _divide(self) -> BatchDivision:
        """Choose the scale of the windows and count the batches of each block."""
        counts, scale = list[int](), 0.0
        for block in range(self._blocks):
            lengths = self._lengths(block)
            if self._epoch is None:
                counts.append(len(length_windows.sorted_batches(*lengths, self._budget)))
                continue
            if block == 0:  # a sample of the corpus
                scale = length_windows.choose_scale(*lengths, self._budget)
            has_pairs = len(lengths[0]) > 0
            counts.append(
                length_windows.layouts(*lengths, self._budget, scale).batches if has_pairs else 0
            )
        return BatchDivision(scale, counts)

    def _lengths(self, block: int) -> tuple[Rows, Rows]:
        """Return the source and target lengths of a block's pairs in use, including EOS."""
        src, tgt = (
            side.lengths[block :: self._blocks].astype(np.int64) + 1 for side in self._sides
        )
        positions = self._used_positions(block)
        return (src, tgt) if positions is None else (src[positions], tgt[positions])

    def _used_positions(self, block: int) -> Rows | None:
        """Return the positions in a block of the pairs that this epoch uses; None for all."""
        if self._epoch is None or not self._pairs.shares:
            return None
        rows = np.arange(block, len(self._pairs), self._blocks)
        return np.flatnonzero(used_in_epoch(rows, self._pairs.shares, self._seed, self._epoch))
