"""Encoder output; inputs, memory, state and result of a decoder step; result of all steps."""

from typing import NamedTuple, Self

import torch
from torch import Tensor


class EncoderOutput(NamedTuple):
    """Encoder outputs and final states of a batch of sources."""

    outputs: Tensor  # [B, S, H], zero at padding
    hidden: Tensor  # [B, L, H], final states: forward half, then backward half
    cell: Tensor  # [B, L, H]; [B, L, 0] in layers without cells
    pad_mask: Tensor  # [B, S], True = padding
    src: Tensor | None = None  # [B, S], the source ids


class Inputs(NamedTuple):
    """Inputs of one target position, [N, *], or of a target sequence, [B, T, *]."""

    embedded: Tensor  # [..., E]
    gates: Tensor  # [..., 4H] (GRU: 3H), gates of the lowest layer from embedding and bias


class SourcePositions(NamedTuple):
    """Source tokens that may be copied, one row per sentence or hypothesis."""

    src: Tensor  # [N, S], ids
    first: Tensor  # [N, S], first position of the same id, as `first_positions`
    scores: Tensor  # [N, S, 2], of each position for the gate and for the continuation


class Memory(NamedTuple):
    """Encoder outputs that attention reads, one row per sentence; empty without attention."""

    keys: Tensor  # [B, S, A], scored
    values: Tensor  # [B, S, C], averaged
    pad_mask: Tensor  # [B, S], True = padding
    src: Tensor | None = None  # [B, S], ids that may be copied; None without copying
    first: Tensor | None = None  # [B, S], as in `SourcePositions`
    position_scores: Tensor | None = None  # [B, S, 2], likewise

    def select(self, sentences: Tensor) -> Self:
        """Return the rows `sentences`."""
        return type(self)._make(None if part is None else _select(part, sentences) for part in self)

    def positions(self, count: int) -> SourcePositions:
        """Return the tokens that each of N = B * K hypotheses may copy."""
        parts = [self.src, self.first, self.position_scores]
        tensors = [part for part in parts if part is not None]
        assert len(tensors) == len(parts), "set where tokens are copied"
        beam_size = count // tensors[0].shape[0]
        sentences = torch.arange(count, device=self.keys.device) // beam_size
        return SourcePositions(*(part.index_select(0, sentences) for part in tensors))

    def put(self, sentences: Tensor, new: Self, from_sentences: Tensor | slice) -> None:
        """Overwrite the rows `sentences` by rows of another memory."""
        _put(self, sentences, new, from_sentences)


class DecoderState(NamedTuple):
    """Decoder state carried from step to step, one row per hypothesis."""

    hidden: Tensor  # [N, L, H]
    cell: Tensor  # [N, L, H]; [N, L, 0] in layers without cells
    input_feed: Tensor  # [N, R], the last attentional vector; [N, 0] without input feeding
    coverage: Tensor | None = None  # [N, S], sum of the attention weights so far
    position: Tensor | None = None  # [N], target position, for windows
    copied: Tensor | None = None  # [N, S], copy distribution of the last step; None without copying

    def select(self, rows: Tensor) -> Self:
        """Return the hypotheses `rows`, which may repeat."""
        return type(self)._make(
            None if part is None else part.index_select(0, rows) for part in self
        )

    def put(self, rows: Tensor, new: Self, from_rows: Tensor | slice) -> None:
        """Overwrite the hypotheses `rows` by those of another state, which may repeat."""
        _put(self, rows, new, from_rows)


class Step(NamedTuple):
    """Result of one decoder step for N hypotheses."""

    outputs: Tensor  # [N, R], to be projected to the vocabulary
    state: DecoderState
    attention_weights: Tensor | None  # [N, S], the mean over heads
    head_weights: Tensor | None = None  # [N, M, S] of M heads; None of a score with one head


class Unrolled(NamedTuple):
    """Result of all target positions under teacher forcing."""

    outputs: Tensor  # [B, T, R], to be projected to the vocabulary
    attention_weights: Tensor | None  # [B, T, S]
    continued: Tensor | None = None  # [B, T, S], as `Copying.continuations`; None without copying
    positions: SourcePositions | None = None  # [B, S]


def _select(part: Tensor, rows: Tensor) -> Tensor:
    """Return `part[rows]` in the same memory layout, on which the speed of products depends.

    Selecting the rows of a transposed tensor directly takes seven times as long.
    """
    transposed = part.dim() == 3 and part.stride(1) < part.stride(2)
    return part.mT.index_select(0, rows).mT if transposed else part.index_select(0, rows)


def _put(
    parts: tuple[Tensor | None, ...],
    rows: Tensor,
    sources: tuple[Tensor | None, ...],
    from_rows: Tensor | slice,
) -> None:
    for part, new in zip(parts, sources, strict=True):
        if part is not None and new is not None:
            part[rows] = new[from_rows]
