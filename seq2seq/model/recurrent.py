"""Recurrent layers: what all cells share, the cells, and a stack of layers."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.fused.lstm import LSTMUnroll, run_library_lstm
from seq2seq.model.layers import linear, tanh


class RecurrentLayer(nn.Module):
    """Base of the recurrent layers, whose cells define `step`.

    The state is the hidden state [N, H] and, in an LSTM, the cell [N, H]; other layers have cells
    of size 0, [N, 0].
    """

    gate_count: ClassVar[int]  # rows of H in the weights of the inputs
    has_cell: ClassVar[bool]
    is_fused: ClassVar[bool] = False  # the fused decoder passes compute these steps
    weight_names: ClassVar[tuple[str, ...]] = ("input_weight", "hidden_weight")
    hidden_weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.gate_size = self.gate_count * hidden_size
        self.cell_size = hidden_size if self.has_cell else 0
        self.input_weight = uniform_weight(self.gate_size, input_size, hidden_size)

    def gates(self, inputs: Tensor) -> Tensor:
        """Return the contribution of inputs [..., input_size] to the gates: [..., gate_size]."""
        raise NotImplementedError

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell, given input gates [N, gate_size] and the state."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return all hidden states [B, T, H] and cells [B, T, *] of inputs [B, T, *]."""
        hiddens = []
        cells = []
        for gates in self.gates(inputs).unbind(1):
            hidden, cell = self.step(gates, hidden, cell)
            hiddens.append(hidden)
            cells.append(cell)
        return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)

    def run(
        self, inputs: Tensor, state: tuple[Tensor, Tensor], pad_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return all hidden states [B, T, H] and the cell [B, *] after the last real position.

        `pad_mask` [B, T] has padding last; None: no padding. Hidden states there are arbitrary.
        """
        hiddens, cells = self(inputs, *state)
        if pad_mask is None:
            return hiddens, cells[:, -1]
        return hiddens, last_of(cells, (~pad_mask).sum(dim=1))

    def zero_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return a hidden state [B, H] and a cell [B, *] of zeros."""
        new_zeros = self.bias.new_zeros
        return new_zeros(batch, self.hidden_size), new_zeros(batch, self.cell_size)


def last_of(states: Tensor, lengths: Tensor) -> Tensor:
    """Gather the state at the last real position of each row: [B, S, D] -> [B, D]."""
    return states[torch.arange(states.shape[0], device=states.device), lengths - 1]


def uniform_weight(rows: int, columns: int, hidden_size: int) -> nn.Parameter:
    """Return a weight drawn uniformly from `+-1/sqrt(H)`."""
    bound = hidden_size**-0.5
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound))


class LSTMLayer(RecurrentLayer):
    """LSTM layer: `c' = s(f) c + s(i) tanh(g)`, `h' = s(o) tanh(c')` with s the logistic function.

    The gates are `(o, i, f, g) = W x + U h + b`. `step` is the definition. `forward` computes a
    sequence and its gradients several times faster, as does `run`, where only the last cell is
    needed, which on CUDA is cuDNN's. The papers' units have other initial weights: here they are
    uniform in `+-1/sqrt(H)`, and the bias of the forget gate is 1.
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

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.input_norm(self.gates(inputs.transpose(0, 1)).to(cell.dtype))  # [T, B, 4H]
        hiddens = []
        cells = []
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
        product = F.linear(hidden, self.hidden_weight).to(normed.dtype)
        sums: Tensor = normed + self.hidden_norm(product) + self.bias
        cell, o = next_cell(sums, cell, self.hidden_size)
        return o * tanh(self.cell_norm(cell)), cell


class GRULayer(RecurrentLayer):
    """Gated hidden unit: Bahdanau et al. (2015), section A.1.1.

    `h' = (1 - z) h + z h~` with the update gate `z = s(W_z x + U_z h + b_z)`, the reset gate
    `r = s(W_r x + U_r h + b_r)` and `h~ = tanh(W x + U [r h] + b)`, s being the logistic function.
    The paper leaves biases out of its equations. `torch.nn.GRU` is another unit: it multiplies by
    the reset gate after the product, `r (U h + b_U)`, and its z is this `1 - z`.

    Matrices of hidden states are orthogonal at first, as in the paper (section B.1); those of
    inputs, normal there with a deviation of 0.01, are uniform in `+-1/sqrt(H)`. Steps are stacked:
    there is no fused pass.
    """

    gate_count = 3  # r, z, candidate
    has_cell = False
    weight_names = ("input_weight", "hidden_weight", "candidate_weight")

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.hidden_weight = uniform_weight(2 * hidden_size, hidden_size, hidden_size)  # U_r, U_z
        self.candidate_weight = uniform_weight(hidden_size, hidden_size, hidden_size)  # U
        self.bias = nn.Parameter(torch.zeros(self.gate_size))
        if not self.bias.is_meta:
            for weight in (*self.hidden_weight.detach().chunk(2), self.candidate_weight):
                nn.init.orthogonal_(weight)

    def gates(self, inputs: Tensor) -> Tensor:
        """Return the contributions `W x + b` of inputs [..., input_size] to r, z, h~: [..., 3H]."""
        return linear(inputs, self.input_weight, self.bias)

    def step(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden state [N, H] and the empty cell, given input gates [N, 3H]."""
        size = self.hidden_size
        sums = gates[:, : 2 * size] + F.linear(hidden, self.hidden_weight)
        r, z = sums.to(hidden.dtype).sigmoid().split(size, dim=-1)
        candidate = gates[:, 2 * size :] + F.linear(r * hidden, self.candidate_weight)
        return (1 - z) * hidden + z * tanh(candidate.to(hidden.dtype)), cell


class RecurrentStack(nn.ModuleList):
    """Recurrent layers of one class and one hidden size, lowest first.

    With `residual` the output of each layer but the lowest is its hidden state plus the output of
    the layer below, `x^l = h^l + x^{l-1}` (Wu et al. 2016, eq. 6), which it reads under dropout.
    """

    def __init__(
        self,
        layer_class: type[RecurrentLayer],
        input_sizes: Iterable[int],
        hidden_size: int,
        residual: bool = False,
    ) -> None:
        super().__init__(layer_class(input_size, hidden_size) for input_size in input_sizes)
        self.residual = residual

    def __iter__(self) -> Iterator[RecurrentLayer]:
        return cast(Iterator[RecurrentLayer], super().__iter__())

    @property
    def bottom(self) -> RecurrentLayer:
        """Return the lowest layer, which reads the inputs."""
        return next(iter(self))
