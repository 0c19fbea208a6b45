"""The steps of LSTM layers inside a loop, with no graph, and the way back through them.

Shared by the loops over time in model/lstm.py and decoders.py. Time-major shapes. Products run in
the weight's dtype, states in that of the cell; a weight's gradient is one product after the loop.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.model.layers import sigmoid_, tanh, tanh_into


class SavedForBackward(NamedTuple):
    """What the way back needs of a layer's steps, saved by autograd, which frees it."""

    weight: Tensor  # [4H, I + H]
    cell: Tensor  # [B, H], the first
    inputs: Tensor  # [T, B, I + H]: what came in, and the hidden state before
    activations: Tensor  # [T, B, 4H]
    cells: Tensor  # [T, B, H]


class LSTMSteps:
    """One layer's steps: whoever turns the loop fills `inputs[t]`, but for the own state."""

    def __init__(self, steps: int, weight: Tensor, hidden: Tensor, cell: Tensor) -> None:
        """A weight [4H, I + H] of what comes in and of the layer's own state [B, H]."""
        batch, size = cell.shape
        self.weight, self.cell = weight, cell
        self.cells = cell.new_empty(steps, batch, size)
        self.hiddens = torch.empty_like(self.cells)
        self.activations = cell.new_empty(steps, batch, 4 * size)
        self.inputs = weight.new_empty(steps, batch, weight.shape[1])  # [what comes in; h_{t-1}]
        self.previous_hidden = self.inputs[
            :, :, weight.shape[1] - size :
        ]  # the hidden before each step
        self.previous_hidden[0] = hidden

    def forward(self, t: int, gates: Tensor) -> Tensor:
        """Gates [B, 4H], or a bias [4H], to which the inputs' are added -> hidden [B, H]."""
        activations, terms = self.activations[t], (gates, self.inputs[t], self.weight.t())
        if gates.dtype == activations.dtype:
            torch.addmm(*terms, out=activations)
        else:
            activations.copy_(torch.addmm(*terms))
        before = self.cells[t - 1] if t else self.cell
        activate(activations, before, self.hiddens[t], self.cells[t])
        self.previous_hidden[t + 1 : t + 2] = self.hiddens[t]  # nothing after the last
        return self.hiddens[t]

    def taken(self) -> SavedForBackward:
        """What the way back needs."""
        return SavedForBackward(self.weight, self.cell, self.inputs, self.activations, self.cells)


class LSTMGradients:
    """The way back through `LSTMSteps`, from the last to the first."""

    def __init__(self, taken: SavedForBackward) -> None:
        self.taken = taken
        self.previous_hidden = taken.inputs[:, :, taken.inputs.shape[2] - taken.cell.shape[1] :]
        self.slopes = CellSlopes(taken.activations, taken.cells, taken.cell)
        self.grad_gates = torch.empty_like(taken.activations, dtype=taken.weight.dtype)
        # Of the state after the step that is next, which the caller may add to: [B, H]
        self.grad_hidden, self.grad_cell = (
            torch.zeros_like(taken.cell),
            torch.zeros_like(taken.cell),
        )

    def backward(self, t: int, grad_hidden: Tensor) -> Tensor:
        """From the gradient of step t's hidden [B, H] to that of what came in [B, I]."""
        weight, dtype = self.taken.weight, self.grad_cell.dtype
        self.grad_cell = self.slopes.backward(
            t, grad_hidden + self.grad_hidden, self.grad_cell, self.grad_gates[t]
        )
        grad_inputs = (self.grad_gates[t] @ weight).to(dtype)
        came_in = weight.shape[1] - self.grad_cell.shape[1]
        self.grad_hidden = grad_inputs[:, came_in:]
        return grad_inputs[:, :came_in]

    def grad_weight(self) -> Tensor:
        """The gradient of the weight [4H, I + H], once all steps are taken back."""
        product = self.grad_gates.flatten(0, 1).t() @ self.taken.inputs.flatten(0, 1)
        return product.to(self.grad_cell.dtype)


def activate(gates: Tensor, before: Tensor, hidden: Tensor, cell: Tensor) -> None:
    """The cell without a graph: gates [B, 4H] become activations; writes hidden and cell [B, H]."""
    size = cell.shape[-1]
    sigmoid_(gates[:, : 3 * size])
    tanh_into(gates[:, 3 * size :], gates[:, 3 * size :])
    o, i, f, g = gates.chunk(4, dim=-1)
    torch.mul(f, before, out=cell).addcmul_(i, g)
    tanh_into(cell, hidden).mul_(o)


class CellSlopes:
    """The derivatives of every step's cell, taken at once, then used backward step by step."""

    def __init__(self, activations: Tensor, cells: Tensor, first_cell: Tensor) -> None:
        o, i, f, g = activations.chunk(4, dim=-1)  # [T, B, H]
        self.forget = f
        shown = tanh(cells)
        hiddens = shown * o
        self.output = torch.addcmul(hiddens, hiddens, o, value=-1)  # tanh(c) o (1 - o)
        self.cell = torch.addcmul(o, hiddens, shown, value=-1)  # o (1 - tanh(c)^2)
        self.rest = activations.new_empty(*cells.shape[:2], 3, cells.shape[2])
        by_i, by_f, by_g = self.rest.unbind(2)
        torch.mul(g, i, out=by_i)
        torch.addcmul(i, by_i, g, value=-1, out=by_g)  # i (1 - g^2)
        by_i.addcmul_(by_i, i, value=-1)  # g i (1 - i)
        torch.mul(first_cell, f[0], out=by_f[0])
        torch.mul(cells[:-1], f[1:], out=by_f[1:])
        by_f.addcmul_(by_f, f, value=-1)  # c' f (1 - f), c' the cell before

    def backward(
        self, t: int, grad_hidden: Tensor, grad_cell: Tensor, grad_gates: Tensor
    ) -> Tensor:
        """Write step t's gate gradients [B, 4H]; return what flows to the cell before it [B, H]."""
        grad_cell = torch.addcmul(grad_cell, grad_hidden, self.cell[t])
        size = grad_cell.shape[-1]
        torch.mul(grad_hidden, self.output[t], out=grad_gates[:, :size])
        torch.mul(
            grad_cell[:, None], self.rest[t], out=grad_gates[:, size:].unflatten(-1, (3, size))
        )
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
    """LSTM layer over a sequence; the weight's gradient is one product after the loop.

    Time-major: gates [T, B, 4H], weight [4H, H], hidden and cell [B, H] -> all hidden states and
    cells, [T, B, H] each. Products run in the gates' dtype, states in that of the cell. Values and
    gradients equal those of stacked steps.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        layer = LSTMSteps(len(gates), weight.to(gates.dtype), hidden, cell)
        for t in range(len(gates)):
            layer.forward(t, gates[t])
        ctx.save_for_backward(*layer.taken())
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
