"""Windows: local attention, which looks at a few source positions about one (Luong et al. 2015).

A source of S words, END counted and padding not, has the positions 0 .. S - 1. Where the paper says
nothing, this is said here: the window of a target longer than its source stays at the last word.
"""

from typing import Protocol

import torch
from torch import Tensor, nn


class Window(Protocol):
    """Which source positions a query may look at, and how much of their weight these keep."""

    def __call__(self, query: Tensor, position: Tensor, pad_mask: Tensor) -> Tensor:
        """Query [B, K, Q], its target position [B, K] from 0, pad_mask [B, S] -> reach [B, K, S].

        A reach of 0 is out of sight; every query has a real position in reach.
        """
        ...


class MonotonicWindow(nn.Module):
    """`p_t = t`, window `[p_t - D, p_t + D]`: Luong et al. (2015), section 3.2, "local-m"."""

    def __init__(self, half_width: int) -> None:
        super().__init__()
        self.half_width = half_width

    def forward(self, query: Tensor, position: Tensor, pad_mask: Tensor) -> Tensor:
        dtype = torch.promote_types(query.dtype, torch.float32)
        last = _lengths(pad_mask) - 1
        return (_distances(position.minimum(last), pad_mask) <= self.half_width).to(dtype)


class PredictiveWindow(nn.Module):
    """`p_t = S sigmoid(v_p . tanh(W_p q))`: Luong et al. (2015), section 3.2, "local-p".

    Within `[p_t - D, p_t + D]` the weight of s is multiplied by `exp(-(s - p_t)^2 / (2 sigma^2))`,
    sigma = D / 2, so that the weights of a step add up to 1 at most.
    """

    def __init__(self, query_size: int, half_width: int) -> None:
        super().__init__()
        self.half_width = half_width
        self.query_projection = nn.Linear(query_size, query_size, bias=False)
        self.energy = nn.Linear(query_size, 1, bias=False)

    def forward(self, query: Tensor, position: Tensor, pad_mask: Tensor) -> Tensor:  # noqa: ARG002
        dtype = torch.promote_types(query.dtype, torch.float32)
        # A sum and tanh in place of a product with one column and the logistic function: the bits
        # of those hang on how many queries there are.
        hidden = torch.tanh(self.query_projection(query))
        energy = (hidden * self.energy.weight[0]).sum(-1).to(dtype)  # [B, K]
        centre = _lengths(pad_mask) * (1 + torch.tanh(energy / 2)) / 2
        distances = _distances(centre, pad_mask)  # [B, K, S]
        gaussian = torch.exp(-(distances**2) / (2 * (self.half_width / 2) ** 2))
        return gaussian.masked_fill(distances > self.half_width, 0)


def _lengths(pad_mask: Tensor) -> Tensor:
    """Real source lengths: [B, 1]."""
    return (~pad_mask).sum(dim=1, keepdim=True)


def _distances(centre: Tensor, pad_mask: Tensor) -> Tensor:
    """From the centres [B, K] to every source position: [B, K, S]."""
    positions = torch.arange(pad_mask.shape[1], device=pad_mask.device)
    return (positions - centre[..., None]).abs()
