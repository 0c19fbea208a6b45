"""Padded batches of token ids, as the model reads them, and targets of guided alignment."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from seq2seq.data.vocabulary.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    Ids,
    Vocabularies,
    Vocabulary,
    words_of,
)
from seq2seq.text.characters import SPACE

SMALL_BATCH = 8192  # target positions
Links = Sequence[int]  # source word, target word, source word, ...
Texts = tuple[Sequence[str], Sequence[str]]  # source and target


class Batch(NamedTuple):
    """Padded pairs. `tgt_in` starts with BOS; `src` and `tgt_out` end with EOS."""

    src: Tensor  # [B, S]
    src_lengths: Tensor  # [B], including EOS
    tgt_in: Tensor  # [B, T]
    tgt_out: Tensor  # [M], ids to predict, without padding unless `real` is set
    tgt_positions: Tensor  # [M], their positions in a flattened [B * T]
    src_words: Tensor | None = None  # [B, S], word of each source token, for guided alignment
    alignment: Tensor | None = None  # [B, T, W], source words to attend to
    real: Tensor | None = None  # [M], 0 where `tgt_out` is padding, else 1; see `rounded`

    @property
    def tokens(self) -> int:
        """Return the number of target tokens of a batch on the CPU."""
        return len(self.tgt_out) if self.real is None else int(self.real.sum())

    def rounded(self) -> "Batch":
        """Round rows and lengths up with padding: few shapes, and `tgt_out` of all positions.

        Padded rows have a source of EOS alone. The predicted positions [T * B] have time first, as
        decoders lay out memory. Losses and gradients are the same but for rounding.
        """
        (rows, width), src_width = self.tgt_in.shape, self.src.shape[1]
        step, row_step = _rounding(rows, width)
        all_rows, steps, positions = (
            -(-size // multiple) * multiple
            for size, multiple in ((rows, row_step), (width, step), (src_width, step))
        )
        more_rows, more = all_rows - rows, positions - src_width
        src = F.pad(self.src, (0, more, 0, more_rows), value=PAD_ID)
        src[rows:, 0] = EOS_ID
        tgt_out = self.tgt_out.new_full((steps, all_rows), PAD_ID)
        tgt_out[self.tgt_positions % width, self.tgt_positions // width] = self.tgt_out
        order = torch.arange(all_rows * steps).view(all_rows, steps)
        words, alignment = self.src_words, self.alignment
        if words is not None and alignment is not None:
            missing = -alignment.shape[2] % step
            words = F.pad(words, (0, more, 0, more_rows), value=alignment.shape[2] + missing)
            alignment = F.pad(alignment, (0, missing, 0, steps - width, 0, more_rows))
        return Batch(
            src,
            F.pad(self.src_lengths, (0, more_rows), value=1),
            F.pad(self.tgt_in, (0, steps - width, 0, more_rows), value=PAD_ID),
            tgt_out.flatten(),
            order.t().flatten(),
            words,
            alignment,
            (tgt_out.flatten() != PAD_ID).float(),
        )


def _rounding(rows: int, width: int) -> tuple[int, int]:
    """Return multiples for lengths and rows: coarse in small batches.

    Their time on a GPU depends on their length alone: few shapes are worth more padding.
    """
    if rows * width < SMALL_BATCH:
        return 8, 32
    return 4, max(8, 1 << (rows.bit_length() - 6))


def make_batch(
    src: Sequence[Ids],
    tgt: Sequence[Ids],
    src_words: Tensor | None = None,
    alignment: Tensor | None = None,
) -> Batch:
    """Pad pairs of ids into a batch, with the targets of guided alignment, if any."""
    tgt_out = pad([[*ids, EOS_ID] for ids in tgt])
    positions = (tgt_out.flatten() != PAD_ID).nonzero().squeeze(1)
    src_padded, src_lengths = pad_sources(src)
    return Batch(
        src_padded,
        src_lengths,
        pad([[BOS_ID, *ids] for ids in tgt]),
        tgt_out.flatten()[positions],
        positions,
        src_words,
        alignment,
    )


def pad_sources(src: Sequence[Ids], width: int = 0) -> tuple[Tensor, Tensor]:
    """Append EOS to source ids; return them padded [B, S >= width] and their lengths [B]."""
    ended = [[*ids, EOS_ID] for ids in src]
    return pad(ended, width), torch.tensor([len(ids) for ids in ended])


def pad(sequences: Sequence[Ids], width: int = 0) -> Tensor:
    """Pad ids to the longest sequence, or to `width` if that is more [B, T]."""
    longest = max(width, max(map(len, sequences)))
    padded = np.full((len(sequences), longest), PAD_ID, dtype=np.int64)
    for row, ids in zip(padded, sequences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)


def alignment_targets(
    src: Sequence[Ids],
    tgt: Sequence[Ids],
    links: Sequence[Links],
    vocabularies: Vocabularies,
    texts: Texts,
) -> tuple[Tensor, Tensor]:
    """Return the word of each source token [B, S] and the targets [B, T, W].

    S and T include EOS. Row t of a sentence is the distribution over the W source words which token
    t is to attend to: uniform over the words that its own word is linked with (Chen et al. 2016,
    where words are tokens), zero for a word without links and for EOS. EOS and padding of the
    source are in word W, to which no target refers. A pair has no targets if the tokens of a side
    do not follow the words of its text.
    """
    src_words, tgt_words = (
        [text_words(ids, text, vocabulary) for ids, text in zip(side, lines, strict=True)]
        for side, lines, vocabulary in zip((src, tgt), texts, vocabularies[:2], strict=True)
    )
    width = max(
        [1, *(int(words[-1]) + 1 for words in src_words if words is not None and len(words))]
    )
    numbers = np.full((len(src), 1 + max(map(len, src))), width, np.int64)
    targets = np.zeros((len(tgt), 1 + max(map(len, tgt)), width), np.float32)
    for row, pairs in enumerate(links):
        of_src, of_tgt = src_words[row], tgt_words[row]
        if of_src is None or of_tgt is None:
            continue
        numbers[row, : len(of_src)] = of_src
        if len(pairs):
            linked = np.zeros((len(of_tgt), width), np.float32)
            for source, target in np.reshape(pairs, (-1, 2)).tolist():
                linked[of_tgt == target, source : source + 1] = 1
            totals = linked.sum(1, keepdims=True)
            targets[row, : len(linked)] = linked / np.maximum(totals, 1)
    return torch.from_numpy(numbers), torch.from_numpy(targets)


def text_words(ids: Ids, text: str, vocabulary: Vocabulary) -> NDArray[np.int64] | None:
    """Return the number of each token's word, from 0; None if the model's rules change words."""
    numbers = word_numbers(ids, vocabulary)
    count = int(numbers[-1]) + 1 if len(numbers) else 0
    return numbers if count == len(words_of(text)) else None


def word_numbers(ids: Ids, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return for each token of a text the number of its word of tokens, from 0.

    A token that is only a space is part of the next word, or of the last one.
    """
    starts, spaces = _boundaries(vocabulary)[:, np.array(ids, np.int64)]
    if spaces.any():
        starts[1:] &= ~spaces[:-1]
        starts[1 + np.flatnonzero(~spaces).max(initial=-1) :] = False
    starts[:1] = True
    numbers: NDArray[np.int64] = np.cumsum(starts) - 1
    return numbers


@lru_cache(maxsize=4)
def _boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return whether each token starts a word, and whether it is only a space [2, V]."""
    tokens = vocabulary.tokens(range(len(vocabulary)))
    starts = [not vocabulary.has_byte_fallback or token.startswith(SPACE) for token in tokens]
    return np.array([starts, [not token.strip(SPACE) for token in tokens]])
