"""Padded batches of token ids, as the model reads them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID, Ids

SMALL_BATCH = 8192  # target positions


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
        rows, width = self.tgt_in.shape
        src_width = self.src.shape[1]
        step, row_step = _rounding(rows, width)
        all_rows, steps, positions = (
            -(-size // multiple) * multiple
            for size, multiple in ((rows, row_step), (width, step), (src_width, step))
        )
        more_rows = all_rows - rows
        extra_positions = positions - src_width
        src = F.pad(self.src, (0, extra_positions, 0, more_rows), value=PAD_ID)
        src[rows:, 0] = EOS_ID
        tgt_out = self.tgt_out.new_full((steps, all_rows), PAD_ID)
        tgt_out[self.tgt_positions % width, self.tgt_positions // width] = self.tgt_out
        order = torch.arange(all_rows * steps).view(all_rows, steps)
        words = self.src_words
        alignment = self.alignment
        if words is not None and alignment is not None:
            padding = -alignment.shape[2] % step
            words = F.pad(
                words, (0, extra_positions, 0, more_rows), value=alignment.shape[2] + padding
            )
            alignment = F.pad(alignment, (0, padding, 0, steps - width, 0, more_rows))
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
