"""The LSTM (Hochreiter and Schmidhuber 1997, with forget gates): one step, and a whole sequence."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.fused.lstm import LSTMGradients, LSTMSteps, SavedForBackward, activate
from seq2seq.model.layers import tanh


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
        if not torch.is_grad_enabled():
            return self._step_into(
                torch.empty_like(cell), torch.empty_like(cell), gates, hidden, cell
            )
        return lstm_cell(gates + F.linear(hidden, self.hidden_weight), cell)

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [B, T, input_size], first states [B, H] -> every hidden and cell [B, T, H]."""
        gates = self.gates(inputs.transpose(0, 1).contiguous())  # [T, B, 4H]
        if not torch.is_grad_enabled():
            return self.run(gates, len(gates), hidden, cell)
        with torch.autocast(gates.device.type, enabled=False):
            hiddens, cells = LSTMUnroll.apply(  # type: ignore[no-untyped-call]
                gates, self.hidden_weight, hidden, cell
            )
        return hiddens.transpose(0, 1), cells.transpose(0, 1)

    def run(
        self, gates: Iterable[Tensor], length: int, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `forward`, with no thought of a backward pass, of a sequence of this length T.

        It ends with the gates, which may be fewer: what inputs add to them, [B, 4H] a step. From
        there on all is zero.
        """
        hiddens, cells, t = *cell.new_empty(2, length, *cell.shape), -1
        for t, inputs in enumerate(gates):
            hidden, cell = self._step_into(hiddens[t], cells[t], inputs, hidden, cell)
        for part in (hiddens, cells):
            part[t + 1 :].zero_()
        return hiddens.transpose(0, 1), cells.transpose(0, 1)

    def _step_into(
        self, new_hidden: Tensor, new_cell: Tensor, gates: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `step`, without a graph, and written where the first two lie."""
        sums = gates + F.linear(hidden, self.hidden_weight)
        activate(sums.to(cell.dtype), cell, new_hidden, new_cell)
        return new_hidden, new_cell


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
