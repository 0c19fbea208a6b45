"""Recurrent layers: what all cells share, and a stack of layers."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, cast

import torch
from torch import Tensor, nn


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

    def step_into(
        self, new_hidden: Tensor, new_cell: Tensor, gates: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute `step` into given tensors: no autograd graph, batch-invariant on CPU."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return all hidden states [B, T, H] and cells [B, T, *] of inputs [B, T, *]."""
        hiddens, cells = [], []
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
