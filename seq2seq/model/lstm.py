"""LSTM layers (Hochreiter and Schmidhuber 1997; forget gates of Gers et al. 2000)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.fused.library_lstm import run_library_lstm
from seq2seq.model.fused.lstm import LSTMUnroll, activate
from seq2seq.model.layers import activate_gates_, linear, tanh, tanh_into
from seq2seq.model.recurrent import RecurrentLayer, uniform_weight


class LSTMLayer(RecurrentLayer):
    """LSTM layer: `c' = s(f) c + s(i) tanh(g)`, `h' = s(o) tanh(c')` with s the logistic function.

    The gates are `(o, i, f, g) = W x + U h + b`. `step` is the definition. `forward` computes a
    sequence and its gradients several times faster, as does `run`, where only the last cell is
    needed, which on CUDA is cuDNN's; `step_into` computes a step without gradients. The
    papers' units have other initial weights: here they are uniform in `+-1/sqrt(H)`, and the bias
    of the forget gate is 1.
    """

    gate_count = 4
    has_cell = True
    is_fused = True

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.hidden_weight = uniform_weight(self.gate_size, hidden_size, hidden_size)
        self.bias = nn.Parameter(torch.zeros(self.gate_size))
        with torch.no_grad():
            self.bias[2 * hidden_size : 3 * hidden_size] = 1  # forget gates start open

    def gates(self, inputs: Tensor) -> Tensor:
        """Return the contribution `W x + b` of inputs [..., input_size] to the gates: [..., 4H]."""
        return linear(inputs, self.input_weight, self.bias)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell [N, H], given input gates [N, 4H] and the state."""
        gates = (gates + F.linear(hidden, self.hidden_weight)).to(cell.dtype)
        cell, o = next_cell(gates, cell, self.hidden_size)
        return o * tanh(cell), cell

    def step_into(
        self, new_hidden: Tensor, new_cell: Tensor, gates: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
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

    def run(
        self, inputs: Tensor, state: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if not use_library(inputs):
            return super().run(inputs, state, pad_mask)
        weights = self.input_weight, self.hidden_weight, self.bias
        return run_library_lstm(weights, inputs, state, pad_mask)


def next_cell(gates: Tensor, cell: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return `c' = s(f) c + s(i) tanh(g)` and `s(o)`, for gates (o, i, f, g) [N, 4H] of size H."""
    sigmoids, g = gates.split([3 * size, size], dim=-1)
    o, i, f = sigmoids.sigmoid().split(size, dim=-1)
    return f * cell + i * tanh(g), o


def use_library(inputs: Tensor) -> bool:
    """Return True on CUDA, where a step by itself costs about 30 kernels."""
    return inputs.is_cuda


class NormedLSTMLayer(LSTMLayer):
    """LSTM layer with layer normalisation (Ba et al. 2016, eq. 20 to 22).

    `(o, i, f, g) = LN(W x; a_1) + LN(U h; a_2) + b`, `c' = s(f) c + s(i) tanh(g)`,
    `h' = s(o) tanh(LN(c'; a_3, b_3))` with `LN(v; a, b) = a (v - mean v) / sqrt(var v + 1e-5) + b`,
    over all 4H gates at once. The paper's shifts of the first two are part of the bias b. Sockeye 1
    has the same cell; Marian's does not normalise c'. Steps are stacked: there is no fused pass.
    """

    is_fused = False

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.input_norm = nn.LayerNorm(self.gate_size, bias=False)
        self.hidden_norm = nn.LayerNorm(self.gate_size, bias=False)
        self.cell_norm = nn.LayerNorm(hidden_size)

    def gates(self, inputs: Tensor) -> Tensor:
        """Return the contribution `W x` of inputs [..., input_size] to the gates: [..., 4H]."""
        return linear(inputs, self.input_weight)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return self._step(self.input_norm(gates.to(cell.dtype)), hidden, cell)

    def step_into(
        self, new_hidden: Tensor, new_cell: Tensor, gates: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        sums = self._sums(self.input_norm(gates.to(cell.dtype)), hidden)
        activate_gates_(sums, self.hidden_size)
        o, i, f, g = sums.chunk(4, dim=-1)
        torch.mul(f, cell, out=new_cell).addcmul_(i, g)
        tanh_into(self.cell_norm(new_cell), new_hidden).mul_(o)
        return new_hidden, new_cell

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.input_norm(self.gates(inputs.transpose(0, 1)).to(cell.dtype))  # [T, B, 4H]
        hiddens, cells = [], []
        for gates in normed:
            hidden, cell = self._step(gates, hidden, cell)
            hiddens.append(hidden)
            cells.append(cell)
        return torch.stack(hiddens).transpose(0, 1), torch.stack(cells).transpose(0, 1)

    def run(
        self, inputs: Tensor, state: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return RecurrentLayer.run(self, inputs, state, pad_mask)

    def _step(self, normed: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell [N, H], given normalised input gates [N, 4H]."""
        cell, o = next_cell(self._sums(normed, hidden), cell, self.hidden_size)
        return o * tanh(self.cell_norm(cell)), cell

    def _sums(self, normed: Tensor, hidden: Tensor) -> Tensor:
        product = F.linear(hidden, self.hidden_weight).to(normed.dtype)
        sums: Tensor = normed + self.hidden_norm(product) + self.bias
        return sums
