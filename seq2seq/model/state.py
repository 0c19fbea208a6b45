"""What search and training pass to a step: inputs, state, memory; and what it yields."""

from typing import NamedTuple, Self

from torch import Tensor


class Inputs(NamedTuple):
    """What decoders read of target positions: [N, *] of one, [B, T, *] of whole targets."""

    embedded: Tensor  # [..., E]
    gates: Tensor  # [..., 4H], what that adds to the gates of the lowest layer


class Memory(NamedTuple):
    """What attention may read, one row a sentence."""

    keys: Tensor  # [B, S, A], what is scored; [B, S, 0] where nothing is
    values: Tensor  # [B, S, C], what is averaged
    pad_mask: Tensor  # [B, S], True = padding

    def select(self, sentences: Tensor) -> Self:
        """The rows `sentences` alone."""
        return type(self)(*(_selected(part, sentences) for part in self))

    def put(self, sentences: Tensor, other: Self, taken: Tensor | slice) -> None:
        """Write the rows `taken` of another memory over the rows `sentences`."""
        _put(self, sentences, other, taken)


class DecoderState(NamedTuple):
    """What a decoder carries from step to step, one row a hypothesis."""

    hidden: Tensor  # [N, L, H]
    cell: Tensor  # [N, L, H]
    input_feed: (
        Tensor  # [N, R]: the last attentional vector where the decoder feeds it, else [N, 0]
    )
    coverage: Tensor | None = None  # [N, S], the sum of all attention_weights, where it is read
    position: Tensor | None = None  # [N], target positions behind it, where they are read

    def select(self, rows: Tensor) -> Self:
        """The hypotheses `rows`, which may repeat."""
        coverage = None if self.coverage is None else self.coverage[rows]
        position = None if self.position is None else self.position[rows]
        return type(self)(
            self.hidden[rows], self.cell[rows], self.input_feed[rows], coverage, position
        )

    def put(self, rows: Tensor, other: Self, taken: Tensor | slice) -> None:
        """Write the rows `taken` of another state, which may repeat, over the rows `rows`."""
        _put(self, rows, other, taken)


def _selected(part: Tensor, rows: Tensor) -> Tensor:
    """`part[rows]`, with the same dimension last in memory, which products hang on.

    Where that is not the last one, torch's own way takes seven times as long.
    """
    turned = part.dim() == 3 and part.stride(1) < part.stride(2)
    return part.mT.index_select(0, rows).mT if turned else part.index_select(0, rows)


def _put(
    parts: tuple[Tensor | None, ...],
    rows: Tensor,
    others: tuple[Tensor | None, ...],
    taken: Tensor | slice,
) -> None:
    for part, other in zip(parts, others, strict=True):
        if part is not None and other is not None:
            part[rows] = other[taken]


class Step(NamedTuple):
    """What one step yields for N rows."""

    outputs: Tensor  # [N, R], to be projected to the vocabulary
    state: DecoderState
    attention_weights: Tensor | None  # [N, S]
