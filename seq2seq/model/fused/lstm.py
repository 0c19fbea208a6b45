"""Manual forward and backward passes of LSTM layers over time, without an autograd graph.

Products run in the dtype of the weight, states in that of the cell; the gradient of a weight is one
product over all steps, after the loop. Time-major shapes as in decoders.py.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.model.layers import sigmoid_, tanh, tanh_into


class SavedForBackward(NamedTuple):
    """Activations of a layer saved by autograd for the backward pass, which frees them."""

    weight: Tensor  # [4H, I + H]
    cell: Tensor  # [B, H], initial
    inputs: Tensor  # [T, B, I + H]: inputs and previous hidden states
    activations: Tensor  # [T, B, 4H]: gates after their nonlinearities
    cells: Tensor  # [T, B, H]


class LSTMSteps:
    """Forward pass of one layer; its caller writes the I inputs of step t to `inputs[t]`."""

    def __init__(self, steps: int, weight: Tensor, hidden: Tensor, cell: Tensor) -> None:
        """Start from a weight [4H, I + H] for `[inputs; hidden]` and an initial state [B, H]."""
        batch, size = cell.shape
        self.weight, self.cell = weight, cell
        self.cells = cell.new_empty(steps, batch, size)
        self.hiddens = torch.empty_like(self.cells)
        self.activations = cell.new_empty(steps, batch, 4 * size)
        self.inputs = weight.new_empty(steps, batch, weight.shape[1])
        self.previous_hidden = self.inputs[:, :, weight.shape[1] - size :]
        self.previous_hidden[0] = hidden

    def forward(self, t: int, gates: Tensor) -> Tensor:
        """Run step t on gates [B, 4H] or a bias [4H], plus `W inputs[t]`; return hidden [B, H]."""
        activations, terms = self.activations[t], (gates, self.inputs[t], self.weight.t())
        if gates.dtype == activations.dtype:
            torch.addmm(*terms, out=activations)
        else:
            activations.copy_(torch.addmm(*terms))
        previous_cell = self.cells[t - 1] if t else self.cell
        activate(activations, previous_cell, self.hiddens[t], self.cells[t])
        self.previous_hidden[t + 1 : t + 2] = self.hiddens[t]  # empty at the end
        return self.hiddens[t]

    def saved(self) -> SavedForBackward:
        """Return the tensors for autograd to save."""
        return SavedForBackward(self.weight, self.cell, self.inputs, self.activations, self.cells)


class LSTMGradients:
    """Backward pass of one layer, from the last step to the first.

    `grad_hidden` and `grad_cell` [B, H] are the gradients of the state after the step that comes
    next; its caller may add to them.
    """

    def __init__(self, saved: SavedForBackward) -> None:
        self.saved = saved
        self.previous_hidden = saved.inputs[:, :, saved.inputs.shape[2] - saved.cell.shape[1] :]
        self.derivatives = CellDerivatives(saved.activations, saved.cells, saved.cell)
        self.grad_gates = torch.empty_like(saved.activations, dtype=saved.weight.dtype)
        self.grad_hidden = torch.zeros_like(saved.cell)
        self.grad_cell = torch.zeros_like(saved.cell)

    def backward(self, t: int, grad_hidden: Tensor) -> Tensor:
        """Return the gradient of step t's inputs [B, I], given that of its hidden state [B, H]."""
        weight, dtype = self.saved.weight, self.grad_cell.dtype
        self.grad_cell = self.derivatives.backward(
            t, grad_hidden + self.grad_hidden, self.grad_cell, self.grad_gates[t]
        )
        grad_inputs = (self.grad_gates[t] @ weight).to(dtype)
        input_size = weight.shape[1] - self.grad_cell.shape[1]
        self.grad_hidden = grad_inputs[:, input_size:]
        return grad_inputs[:, :input_size]

    def grad_weight(self) -> Tensor:
        """Return the gradient of the weight [4H, I + H], after the first step."""
        product = self.grad_gates.flatten(0, 1).t() @ self.saved.inputs.flatten(0, 1)
        return product.to(self.grad_cell.dtype)


def activate(gates: Tensor, previous_cell: Tensor, hidden: Tensor, cell: Tensor) -> None:
    """Turn gates [B, 4H] into activations in place and write the next hidden and cell [B, H]."""
    size = cell.shape[-1]
    sigmoid_(gates[:, : 3 * size])
    tanh_into(gates[:, 3 * size :], gates[:, 3 * size :])
    o, i, f, g = gates.chunk(4, dim=-1)
    torch.mul(f, previous_cell, out=cell).addcmul_(i, g)
    tanh_into(cell, hidden).mul_(o)


class CellDerivatives:
    """Derivatives of the cells of all steps, computed at once and applied step by step."""

    def __init__(self, activations: Tensor, cells: Tensor, initial_cell: Tensor) -> None:
        o, i, f, g = activations.chunk(4, dim=-1)  # [T, B, H]
        self.forget = f
        tanh_cells = tanh(cells)
        hiddens = tanh_cells * o
        self.output = torch.addcmul(hiddens, hiddens, o, value=-1)  # tanh(c) o (1 - o)
        self.cell = torch.addcmul(o, hiddens, tanh_cells, value=-1)  # o (1 - tanh(c)^2)
        self.input_forget_candidate = activations.new_empty(*cells.shape[:2], 3, cells.shape[2])
        by_i, by_f, by_g = self.input_forget_candidate.unbind(2)
        torch.mul(g, i, out=by_i)
        torch.addcmul(i, by_i, g, value=-1, out=by_g)  # i (1 - g^2)
        by_i.addcmul_(by_i, i, value=-1)  # g i (1 - i)
        torch.mul(initial_cell, f[0], out=by_f[0])
        torch.mul(cells[:-1], f[1:], out=by_f[1:])
        by_f.addcmul_(by_f, f, value=-1)  # c_{t-1} f (1 - f)

    def backward(
        self, t: int, grad_hidden: Tensor, grad_cell: Tensor, grad_gates: Tensor
    ) -> Tensor:
        """Write the gradient of step t's gates [B, 4H]; return that of the previous cell [B, H]."""
        grad_cell = torch.addcmul(grad_cell, grad_hidden, self.cell[t])
        size = grad_cell.shape[-1]
        torch.mul(grad_hidden, self.output[t], out=grad_gates[:, :size])
        others = grad_gates[:, size:].unflatten(-1, (3, size))
        torch.mul(grad_cell[:, None], self.input_forget_candidate[t], out=others)
        return grad_cell * self.forget[t]


Backward = Callable[..., tuple[Tensor | None, ...]]


def without_autocast(backward: Backward) -> Backward:
    """Decorate a backward pass that chooses its own dtypes, even when called under autocast."""

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return wrapped


class LSTMUnroll(torch.autograd.Function):
    """LSTM layer over a sequence as one autograd node.

    Time-major: gates [T, B, 4H], weight [4H, H], hidden and cell [B, H] -> all hidden states and
    cells, [T, B, H] each. Values and gradients equal those of stacked steps.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        layer = LSTMSteps(len(gates), weight.to(gates.dtype), hidden, cell)
        for t in range(len(gates)):
            layer.forward(t, gates[t])
        ctx.save_for_backward(*layer.saved())
        return layer.hiddens, layer.cells

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        grad_hiddens, grad_cells = grads
        layer = LSTMGradients(SavedForBackward(*ctx.saved_tensors))
        for t in reversed(range(len(grad_cells))):
            layer.grad_cell = layer.grad_cell + grad_cells[t]
            layer.backward(t, grad_hiddens[t])
        return layer.grad_gates, layer.grad_weight(), layer.grad_hidden, layer.grad_cell


class LayerInputs(NamedTuple):
    """Tensors of a layer above the lowest, in the order in which autograd receives them."""

    weight: Tensor  # [4H, 2H], for the hidden state below and the layer's own previous one
    bias: Tensor  # [4H]
    hidden: Tensor  # [B, H], initial
    cell: Tensor  # [B, H], initial
    mask: Tensor | None  # [T, B, H], dropout of the hidden state below; None: no dropout


class LSTMStackSteps:
    """Forward pass of a stack; each layer above the lowest reads the one below, under dropout."""

    def __init__(self, lowest: LSTMSteps, upper: Sequence[Tensor | None]) -> None:
        """Stack layers on the lowest, given their `LayerInputs` as one flat sequence."""
        width = len(LayerInputs._fields)
        parts = (upper[start : start + width] for start in range(0, len(upper), width))
        self.lowest = lowest
        self.upper = [_UpperSteps(LayerInputs(*each), lowest) for each in parts]  # type: ignore[arg-type]
        self.top = self.upper[-1] if self.upper else lowest

    def forward(self, t: int, gates: Tensor) -> Tensor:
        """Run step t through all layers, the lowest on gates [B, 4H]; return the top's hidden."""
        hidden = self.lowest.forward(t, gates)
        for layer in self.upper:
            hidden = layer.read(t, hidden)
        return hidden

    def saved(self) -> list[Tensor | None]:
        """Return the tensors for autograd to save as one flat sequence."""
        upper = ((*layer.saved(), layer.mask) for layer in self.upper)
        return [*self.lowest.saved(), *chain.from_iterable(upper)]


class LSTMStackGradients:
    """Backward pass of a stack, given what `LSTMStackSteps.saved` returned."""

    def __init__(self, saved: Sequence[Any]) -> None:
        width = len(SavedForBackward._fields)
        lowest, upper = saved[:width], saved[width:]
        self.lowest = LSTMGradients(SavedForBackward(*lowest))
        parts = (upper[start : start + width + 1] for start in range(0, len(upper), width + 1))
        self.upper = [_UpperGradients(SavedForBackward(*each), mask) for *each, mask in parts]
        self.top = self.upper[-1] if self.upper else self.lowest

    def backward(self, t: int, grad_hidden: Tensor) -> Tensor:
        """Return the gradient of the lowest layer's inputs at step t, given the top hidden's."""
        for layer in reversed(self.upper):
            grad_hidden = layer.backward_read(t, grad_hidden)
        return self.lowest.backward(t, grad_hidden)

    def upper_gradients(self) -> Iterator[Tensor | None]:
        """Yield the gradients of the `LayerInputs` above the lowest layer, flat."""
        for layer in self.upper:
            yield from layer.input_gradients()


class _UpperSteps(LSTMSteps):
    def __init__(self, given: LayerInputs, lowest: LSTMSteps) -> None:
        steps, dtype = len(lowest.cells), lowest.weight.dtype
        super().__init__(steps, given.weight.to(dtype), given.hidden, given.cell)
        self.bias, self.mask = given.bias.to(dtype), given.mask

    def read(self, t: int, below: Tensor) -> Tensor:
        dropped = below if self.mask is None else below * self.mask[t]
        self.inputs[t, :, : below.shape[1]] = dropped
        return self.forward(t, self.bias)


class _UpperGradients(LSTMGradients):
    def __init__(self, saved: SavedForBackward, mask: Tensor | None) -> None:
        super().__init__(saved)
        self.mask = mask

    def backward_read(self, t: int, grad_hidden: Tensor) -> Tensor:
        below = self.backward(t, grad_hidden)
        return below if self.mask is None else below * self.mask[t]

    def input_gradients(self) -> LayerInputs:
        grad_bias = self.grad_gates.sum((0, 1), dtype=self.grad_cell.dtype)
        return LayerInputs(self.grad_weight(), grad_bias, self.grad_hidden, self.grad_cell, None)
