"""The layers of a decoder inside an unrolled loop: a step up through them, and the way back.

The lowest reads what its loop gives it, each above it the hidden state of the one below, under
dropout. Time-major shapes, as in decoders.py.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from torch import Tensor

from seq2seq.model.fused.lstm import LSTMGradients, LSTMSteps, SavedForBackward


class LayerInputs(NamedTuple):
    """What a layer above the lowest needs, in the order in which autograd is given it."""

    weight: Tensor  # [4H, 2H], of the hidden state below and of its own before
    bias: Tensor  # [4H]
    hidden: Tensor  # [B, H], the first
    cell: Tensor  # [B, H], the first
    mask: Tensor | None  # [T, B, H], the dropout of what comes from below; None: nothing is dropped


class UnrolledLayers:
    """The way up."""

    def __init__(self, lowest: LSTMSteps, upper: Sequence[Tensor | None]) -> None:
        """The lowest layer, and what the others need as one flat sequence."""
        width = len(LayerInputs._fields)
        parts = (upper[start : start + width] for start in range(0, len(upper), width))
        self.lowest = lowest
        self.uppers = [_UpperSteps(LayerInputs(*each), lowest) for each in parts]  # type: ignore[arg-type]
        self.top = self.uppers[-1] if self.uppers else lowest

    def forward(self, t: int, gates: Tensor) -> Tensor:
        """The top's hidden state [B, H] after step t, from what adds to the lowest's gates."""
        hidden = self.lowest.forward(t, gates)
        for upper in self.uppers:
            hidden = upper.step_layers(t, hidden)
        return hidden

    def taken(self) -> list[Tensor | None]:
        """What the way back needs, as one flat sequence for autograd to save."""
        uppers = ((*upper.taken(), upper.mask) for upper in self.uppers)
        return [*self.lowest.taken(), *chain.from_iterable(uppers)]


class UnrolledGradients:
    """The way back through `UnrolledLayers`."""

    def __init__(self, taken: Sequence[Any]) -> None:
        """Of what `UnrolledLayers.taken` gave."""
        width = len(SavedForBackward._fields)
        lowest, above = taken[:width], taken[width:]
        self.lowest = LSTMGradients(SavedForBackward(*lowest))
        parts = (above[start : start + width + 1] for start in range(0, len(above), width + 1))
        self.uppers = [_UpperGradients(SavedForBackward(*each), mask) for *each, mask in parts]
        self.top = self.uppers[-1] if self.uppers else self.lowest

    def backward(self, t: int, grad_top: Tensor) -> Tensor:
        """From the gradient of the top's hidden state after step t to what came into the lowest."""
        for upper in reversed(self.uppers):
            grad_top = upper.backward_layers(t, grad_top)
        return self.lowest.backward(t, grad_top)

    def grad_uppers(self) -> Iterator[Tensor | None]:
        """The gradients of all that autograd was given of the layers above the lowest."""
        for upper in self.uppers:
            yield from upper.grad_given()


class _UpperSteps(LSTMSteps):
    def __init__(self, given: LayerInputs, lowest: LSTMSteps) -> None:
        steps, dtype = len(lowest.cells), lowest.weight.dtype
        super().__init__(steps, given.weight.to(dtype), given.hidden, given.cell)
        self.bias, self.mask = given.bias.to(dtype), given.mask

    def step_layers(self, t: int, below: Tensor) -> Tensor:
        came_in = below if self.mask is None else below * self.mask[t]
        self.inputs[t, :, : below.shape[1]] = came_in
        return self.forward(t, self.bias)


class _UpperGradients(LSTMGradients):
    def __init__(self, taken: SavedForBackward, mask: Tensor | None) -> None:
        super().__init__(taken)
        self.mask = mask

    def backward_layers(self, t: int, grad_hidden: Tensor) -> Tensor:
        below = self.backward(t, grad_hidden)
        return below if self.mask is None else below * self.mask[t]

    def grad_given(self) -> LayerInputs:
        grad_bias = self.grad_gates.sum((0, 1), dtype=self.grad_cell.dtype)
        return LayerInputs(self.grad_weight(), grad_bias, self.grad_hidden, self.grad_cell, None)
