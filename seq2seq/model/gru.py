"""Gated hidden unit of Cho et al. (2014) in the form of Bahdanau et al. (2015)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.layers import linear, sigmoid_, tanh, tanh_into
from seq2seq.model.recurrent import RecurrentLayer, uniform_weight


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

    def step_into(
        self,
        new_hidden: Tensor,
        new_cell: Tensor,
        gates: Tensor,
        hidden: Tensor,
        cell: Tensor,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        size = self.hidden_size
        sums = (gates[:, : 2 * size] + F.linear(hidden, self.hidden_weight)).to(hidden.dtype)
        r, z = sigmoid_(sums).chunk(2, dim=-1)
        candidate = gates[:, 2 * size :] + F.linear(r * hidden, self.candidate_weight)
        tanh_into(candidate.to(hidden.dtype), new_hidden).mul_(z)
        new_hidden.add_(z.neg_().add_(1).mul_(hidden))
        return new_hidden, new_cell
