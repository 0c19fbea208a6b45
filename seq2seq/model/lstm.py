"""LSTM (Hochreiter and Schmidhuber 1997; forget gates of Gers et al. 2000): a layer and a stack."""

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.fused.lstm import LSTMUnroll, activate
from seq2seq.model.layers import tanh


class LSTMLayer(nn.Module):
    """LSTM layer: `c' = s(f) c + s(i) tanh(g)`, `h' = s(o) tanh(c')` with s the logistic function.

    The gates are `(o, i, f, g) = W x + U h + b`. `step` is the definition. `forward` computes a
    sequence and its gradients several times faster, `step_into` a step without gradients. The
    papers' units have other initial weights: here they are uniform in `+-1/sqrt(H)`, and the bias
    of the forget gate is 1.
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
            self.bias[2 * hidden_size : 3 * hidden_size] = 1  # forget gates start open

    def gates(self, inputs: Tensor) -> Tensor:
        """Return the contribution `W x + b` of inputs [..., input_size] to the gates: [..., 4H]."""
        return F.linear(inputs, self.input_weight, self.bias)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell [N, H], given input gates [N, 4H] and the last state."""
        gates = (gates + F.linear(hidden, self.hidden_weight)).to(cell.dtype)
        o, i, f, g = gates.chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * tanh(g)
        return o.sigmoid() * tanh(cell), cell

    def step_into(
        self, new_hidden: Tensor, new_cell: Tensor, gates: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute `step` into given tensors: no autograd graph, batch-invariant on CPU."""
        sums = gates + F.linear(hidden, self.hidden_weight)
        activate(sums.to(cell.dtype), cell, new_hidden, new_cell)
        return new_hidden, new_cell

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return all hidden states and cells [B, T, H] of inputs [B, T, *]."""
        gates = self.gates(inputs.transpose(0, 1).contiguous())  # [T, B, 4H]
        with torch.autocast(gates.device.type, enabled=False):
            hiddens, cells = LSTMUnroll.apply(  # type: ignore[no-untyped-call]
                gates, self.hidden_weight, hidden, cell
            )
        return hiddens.transpose(0, 1), cells.transpose(0, 1)


class LSTMStack(nn.ModuleList):
    """LSTM layers of one hidden size, lowest first.

    With `residual` the output of each layer but the lowest is its hidden state plus the output of
    the layer below, `x^l = h^l + x^{l-1}` (Wu et al. 2016, eq. 6), which it reads under dropout.
    """

    def __init__(
        self, input_sizes: Iterable[int], hidden_size: int, residual: bool = False
    ) -> None:
        super().__init__(LSTMLayer(input_size, hidden_size) for input_size in input_sizes)
        self.residual = residual

    def __iter__(self) -> Iterator[LSTMLayer]:
        return cast(Iterator[LSTMLayer], super().__iter__())

    @property
    def bottom(self) -> LSTMLayer:
        """Return the lowest layer, which reads the inputs."""
        return next(iter(self))
