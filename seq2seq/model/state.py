"""Encoder output; inputs, memory, state and result of a decoder step."""

from typing import NamedTuple, Self

from torch import Tensor


class EncoderOutput(NamedTuple):
    """Encoder outputs and final states of a batch of sources."""

    outputs: Tensor  # [B, S, H], zero at padding
    hidden: Tensor  # [B, L, H], final states: forward half, then backward half
    cell: Tensor  # [B, L, H]
    pad_mask: Tensor  # [B, S], True = padding


class Inputs(NamedTuple):
    """Inputs of one target position, [N, *], or of a target sequence, [B, T, *]."""

    embedded: Tensor  # [..., E]
    gates: Tensor  # [..., 4H], gates of the lowest layer from the embedding and the bias


class Memory(NamedTuple):
    """Encoder outputs that attention reads, one row per sentence; empty without attention."""

    keys: Tensor  # [B, S, A], scored
    values: Tensor  # [B, S, C], averaged
    pad_mask: Tensor  # [B, S], True = padding

    def select(self, sentences: Tensor) -> Self:
        """Return the rows `sentences`."""
        return type(self)._make(_select(part, sentences) for part in self)

    def put(self, sentences: Tensor, other: Self, other_sentences: Tensor | slice) -> None:
        """Overwrite the rows `sentences` by rows of another memory."""
        _put(self, sentences, other, other_sentences)


class DecoderState(NamedTuple):
    """Decoder state carried from step to step, one row per hypothesis."""

    hidden: Tensor  # [N, L, H]
    cell: Tensor  # [N, L, H]
    input_feed: Tensor  # [N, R], the last attentional vector; [N, 0] without input feeding
    coverage: Tensor | None = None  # [N, S], sum of the attention weights so far
    position: Tensor | None = None  # [N], target position, for windows

    def select(self, rows: Tensor) -> Self:
        """Return the hypotheses `rows`, which may repeat."""
        return type(self)._make(None if part is None else part[rows] for part in self)

    def put(self, rows: Tensor, other: Self, other_rows: Tensor | slice) -> None:
        """Overwrite the hypotheses `rows` by those of another state, which may repeat."""
        _put(self, rows, other, other_rows)


class Step(NamedTuple):
    """Result of one decoder step for N hypotheses."""

    outputs: Tensor  # [N, R], to be projected to the vocabulary
    state: DecoderState
    attention_weights: Tensor | None  # [N, S]


def _select(part: Tensor, rows: Tensor) -> Tensor:
    """Return `part[rows]` in the same memory layout, on which the speed of products depends.

    Selecting the rows of a transposed tensor directly takes seven times as long.
    """
    transposed = part.dim() == 3 and part.stride(1) < part.stride(2)
    return part.mT.index_select(0, rows).mT if transposed else part.index_select(0, rows)


def _put(
    parts: tuple[Tensor | None, ...],
    rows: Tensor,
    others: tuple[Tensor | None, ...],
    other_rows: Tensor | slice,
) -> None:
    for part, other in zip(parts, others, strict=True):
        if part is not None and other is not None:
            part[rows] = other[other_rows]
