"""The layers above the lowest inside an unrolled loop: a step up through them, and the way back.

Each reads the hidden state of the one below, under dropout. As in recurrence.py: time-major shapes,
products in their own dtype, and a weight's gradient is one product after the loop.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.model.dropout import Dropout
from seq2seq.model.lstm import CellSlopes, LSTMStack, activate


class Upper(NamedTuple):
    """What one of them needs, in the order in which autograd is given it."""

    weight: Tensor  # [4H, 2H], of the hidden state below and of its own before
    bias: Tensor  # [4H]
    hidden: Tensor  # [B, H], the first
    cell: Tensor  # [B, H], the first
    mask: Tensor | None  # [T, B, H], the dropout of what comes from below; None: nothing is dropped


def upper_of(
    layers: LSTMStack, hidden: Tensor, cell: Tensor, steps: int, dropout: Dropout
) -> list[Upper]:
    """All but the lowest, for first states [B, L, H]; draws the dropout of so many steps."""
    drops = dropout.training and dropout.p > 0
    return [
        Upper(
            torch.cat([layer.input_weight, layer.hidden_weight], dim=1),
            layer.bias,
            hidden[:, level],
            cell[:, level],
            dropout(torch.ones_like(hidden[:, level]).expand(steps, -1, -1)) if drops else None,
        )
        for level, layer in enumerate(layers)
        if level
    ]


class UpperSteps:
    """The way up; keeps of each step what the way back needs."""

    def __init__(self, steps: int, flat: Sequence[Tensor | None], product_dtype: torch.dtype):
        width = len(Upper._fields)
        parts = (flat[start : start + width] for start in range(0, len(flat), width))
        self.layers = [_Steps(steps, Upper(*each), product_dtype) for each in parts]  # type: ignore[arg-type]

    def forward(self, t: int, hidden: Tensor) -> Tensor:
        """The top's hidden state [B, H] after step t, from that of the lowest layer."""
        for layer in self.layers:
            hidden = layer.forward(t, hidden)
        return hidden

    def befores(self, lowest: Tensor) -> Tensor:
        """The top's hidden state before each step, in the products' dtype: [T, B, H].

        A view, filled as steps are taken; `lowest`, the same of the lowest layer, if that is all.
        """
        return self.layers[-1].own_inputs if self.layers else lowest

    def top(self, lowest: Tensor) -> Tensor:
        """The top's hidden state after every step, [T, B, H], once all are taken.

        Lets go of them: the way back needs none, and what a node gives out it must not hold.
        """
        hiddens = [lowest, *(layer.hiddens for layer in self.layers)]
        for layer in self.layers:
            del layer.hiddens
        return hiddens[-1]


class UpperGradients:
    """The way back through `UpperSteps`."""

    def __init__(self, upper: UpperSteps) -> None:
        self.layers = [_Gradients(layer) for layer in upper.layers]

    def backward(self, t: int, grad_top: Tensor) -> Tensor:
        """From the gradient of the top's hidden state [B, H] after step t to the lowest layer's."""
        for layer in reversed(self.layers):
            grad_top = layer.backward(t, grad_top)
        return grad_top

    def into_first(self, grad_top: Tensor, grad_lowest: Tensor) -> Tensor:
        """Add to the gradient of the top's first hidden state; returns that of the lowest."""
        if not self.layers:
            return grad_lowest + grad_top
        self.layers[-1].hidden = self.layers[-1].hidden + grad_top
        return grad_lowest

    def finish(self) -> Iterator[Tensor | None]:
        """The gradients of all that autograd was given."""
        for layer in self.layers:
            yield from layer.finish()


class _Steps:
    def __init__(self, steps: int, given: Upper, product_dtype: torch.dtype) -> None:
        self.weight, self.bias = given.weight.to(product_dtype), given.bias.to(product_dtype)
        self.cell, self.mask = given.cell, given.mask
        batch, size = given.cell.shape
        self.cells = given.cell.new_empty(steps, batch, size)
        self.hiddens = torch.empty_like(self.cells)
        self.activations = given.cell.new_empty(steps, batch, 4 * size)
        self.inputs = self.weight.new_empty(steps, batch, 2 * size)  # [from below; h_{t-1}]
        self.own_inputs = self.inputs[:, :, size:]
        self.own_inputs[0] = given.hidden

    def forward(self, t: int, below: Tensor) -> Tensor:
        self.inputs[t, :, : below.shape[1]] = below if self.mask is None else below * self.mask[t]
        self.activations[t] = torch.addmm(self.bias, self.inputs[t], self.weight.t())
        before = self.cells[t - 1] if t else self.cell
        activate(self.activations[t], before, self.hiddens[t], self.cells[t])
        self.own_inputs[t + 1 : t + 2] = self.hiddens[t]  # nothing after the last
        return self.hiddens[t]


class _Gradients:
    def __init__(self, layer: _Steps) -> None:
        self.layer = layer
        self.slopes = CellSlopes(layer.activations, layer.cells, layer.cell)
        self.gates = torch.empty_like(layer.activations, dtype=layer.weight.dtype)
        self.hidden, self.cell = torch.zeros_like(layer.cell), torch.zeros_like(layer.cell)

    def backward(self, t: int, grad_hidden: Tensor) -> Tensor:
        """What flows to the layer below [B, H]; what flows to the step before is kept."""
        layer, size = self.layer, grad_hidden.shape[1]
        self.cell = self.slopes.backward(t, grad_hidden + self.hidden, self.cell, self.gates[t])
        grad_inputs = (self.gates[t] @ layer.weight).to(self.cell.dtype)
        self.hidden = grad_inputs[:, size:]
        below = grad_inputs[:, :size]
        return below if layer.mask is None else below * layer.mask[t]

    def finish(self) -> Upper:
        gates, dtype = self.gates.flatten(0, 1), self.cell.dtype
        weight = (gates.t() @ self.layer.inputs.flatten(0, 1)).to(dtype)
        return Upper(weight, gates.sum(0, dtype=dtype), self.hidden, self.cell, None)
