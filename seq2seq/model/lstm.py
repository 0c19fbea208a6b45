"""The LSTM (Hochreiter and Schmidhuber 1997, with forget gates): one step, and a whole sequence."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.nonlinear import tanh, tanh_into


class LSTMLayer(nn.Module):
    """One layer: `c' = s(f) c + s(i) tanh(g)` and `h' = s(o) tanh(c')`, s the logistic function.

    The gates are `(o, i, f, g) = W x + U h + b`. `step` is the definition; `forward` runs a whole
    sequence, gradients included, several times faster.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        bound = hidden_size**-0.5
        self.input_weight = nn.Parameter(
            torch.empty(4 * hidden_size, input_size).uniform_(-bound, bound)
        )
        self.hidden_weight = nn.Parameter(
            torch.empty(4 * hidden_size, hidden_size).uniform_(-bound, bound)
        )
        self.bias = nn.Parameter(torch.zeros(4 * hidden_size))
        with torch.no_grad():
            self.bias[2 * hidden_size : 3 * hidden_size] = 1  # remember first, learn to forget

    def gates(self, inputs: Tensor) -> Tensor:
        """What the inputs [..., input_size] add to the gates: [..., 4H]."""
        return F.linear(inputs, self.input_weight, self.bias)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Input gates [N, 4H], hidden [N, H], cell [N, H] -> the next hidden and cell."""
        gates = gates + F.linear(hidden, self.hidden_weight)
        if torch.is_grad_enabled():
            return lstm_cell(gates, cell)
        hidden, after = torch.empty_like(cell), torch.empty_like(cell)
        activate(gates.to(cell.dtype), cell, hidden, after)
        return hidden, after

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [B, T, input_size], first states [B, H] -> every hidden and cell [B, T, H]."""
        if not torch.is_grad_enabled():
            return self._stacked(self.gates(inputs), hidden, cell)
        gates = self.gates(inputs.transpose(0, 1))  # [T, B, 4H]
        with torch.autocast(gates.device.type, enabled=False):
            hiddens, cells = LSTMUnroll.apply(  # type: ignore[no-untyped-call]
                gates, self.hidden_weight, hidden, cell
            )
        return hiddens.transpose(0, 1), cells.transpose(0, 1)

    def _stacked(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Step after step, with no thought of a backward pass: gates [B, T, 4H]."""
        hiddens, cells = [], []
        for inputs in gates.unbind(1):
            hidden, cell = self.step(inputs, hidden, cell)
            hiddens.append(hidden)
            cells.append(cell)
        return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)


class LSTMStack(nn.ModuleList):
    """Layers of one size, lowest first; a ModuleList that knows what it holds."""

    def __init__(self, input_sizes: Iterable[int], hidden_size: int) -> None:
        super().__init__(LSTMLayer(input_size, hidden_size) for input_size in input_sizes)

    def __iter__(self) -> Iterator[LSTMLayer]:
        return cast(Iterator[LSTMLayer], super().__iter__())

    @property
    def bottom(self) -> LSTMLayer:
        """The layer that reads the inputs."""
        return next(iter(self))


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Gates [N, 4H] before their non-linearities and cell [N, H] -> the next hidden and cell."""
    o, i, f, g = gates.to(cell.dtype).chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * tanh(g)
    return o.sigmoid() * tanh(cell), cell


Backward = Callable[..., tuple[Tensor | None, ...]]


def without_autocast(backward: Backward) -> Backward:
    """A backward pass that picks its own dtypes, also where it is called inside autocast."""

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grads[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return wrapped


class LSTMUnroll(torch.autograd.Function):
    """A sequence with a backward pass of its own: one product for the weight's whole gradient.

    Time-major: gates [T, B, 4H], weight [4H, H], hidden and cell [B, H] -> every hidden and cell,
    [T, B, H] each. Products run in the gates' dtype, states in that of the cell. Equal to stacked
    steps, values and gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        weight = weight.to(gates.dtype)
        cells = cell.new_empty(len(gates), *cell.shape)
        hiddens = torch.empty_like(cells)
        activations = cell.new_empty(gates.shape)
        inputs = gates.new_empty(cells.shape)  # the hidden that each step's product sees
        inputs[0] = hidden
        before = cell
        for t in range(len(gates)):
            if t:
                inputs[t] = hiddens[t - 1]
            activations[t] = torch.addmm(gates[t], inputs[t], weight.t())
            activate(activations[t], before, hiddens[t], cells[t])
            before = cells[t]
        ctx.save_for_backward(inputs, weight, cell, activations, cells)
        return hiddens, cells

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        grad_hiddens, grad_cells = grads
        inputs, weight, cell, activations, cells = ctx.saved_tensors
        slopes = CellSlopes(activations, cells, cell)
        grad_gates = torch.empty_like(activations, dtype=weight.dtype)
        grad_hidden, grad_cell = torch.zeros_like(cell), torch.zeros_like(cell)
        for t in reversed(range(len(cells))):
            grad_cell = slopes.backward(
                t, grad_hiddens[t] + grad_hidden, grad_cells[t] + grad_cell, grad_gates[t]
            )
            grad_hidden = (grad_gates[t] @ weight).to(cell.dtype)
        grad_weight = grad_gates.flatten(0, 1).t() @ inputs.flatten(0, 1)
        return grad_gates, grad_weight.to(cell.dtype), grad_hidden, grad_cell


def activate(gates: Tensor, before: Tensor, hidden: Tensor, cell: Tensor) -> None:
    """The cell without a graph: gates [B, 4H] become activations; writes hidden and cell [B, H]."""
    size = cell.shape[-1]
    gates[:, : 3 * size].sigmoid_()
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
