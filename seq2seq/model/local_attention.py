"""Windows of local attention, which attends to a few source positions (Luong et al. 2015).

A source of S words, end-of-sentence included and padding excluded, has positions 0 to S - 1. The
paper does not define the window of a target position beyond them: here it stays at the last word.
The paper has windows in Luong's decoder alone; here every decoder with attention may have them.
"""

from typing import Protocol

import torch
from torch import Tensor, nn


class Window(Protocol):
    """Function that weights the source positions around the one aligned to a query."""

    def __call__(self, query: Tensor, position: Tensor, pad_mask: Tensor) -> Tensor:
        """Return window weights [B, K, S]: factors of the attention weights, 0 to mask them.

        Takes queries [B, K, Q], their target positions [B, K] from 0 and pad_mask [B, S]. Every
        window contains a real position.
        """


class MonotonicWindow(nn.Module):
    """`p_t = t`, window `[p_t - D, p_t + D]`: Luong et al. (2015), section 3.2, "local-m"."""

    def __init__(self, half_width: int) -> None:
        super().__init__()
        self.half_width = half_width

    def forward(self, query: Tensor, position: Tensor, pad_mask: Tensor) -> Tensor:
        dtype = torch.promote_types(query.dtype, torch.float32)
        last = _lengths(pad_mask) - 1
        distances = _distances(position.minimum(last), pad_mask)  # [B, K, S]
        return (distances <= self.half_width).to(dtype)


class PredictiveWindow(nn.Module):
    """`p_t = S sigmoid(v_p . tanh(W_p q))`: Luong et al. (2015), section 3.2, "local-p".

    Within `[p_t - D, p_t + D]` the attention weight of s is multiplied by
    `exp(-(s - p_t)^2 / (2 sigma^2))`, sigma = D / 2, and so the weights of a step sum to at most 1.
    """

    def __init__(self, query_size: int, half_width: int) -> None:
        super().__init__()
        self.half_width = half_width
        self.query_projection = nn.Linear(query_size, query_size, bias=False)
        self.energy = nn.Linear(query_size, 1, bias=False)

    def forward(self, query: Tensor, position: Tensor, pad_mask: Tensor) -> Tensor:  # noqa: ARG002
        dtype = torch.promote_types(query.dtype, torch.float32)
        hidden = torch.tanh(self.query_projection(query))  # [B, K, Q]
        # A sum and tanh instead of a matrix-vector product and a sigmoid, which are not
        # batch-invariant.
        energy = (hidden * self.energy.weight[0]).sum(-1).to(dtype)  # [B, K]
        centre = _lengths(pad_mask) * (1 + torch.tanh(energy / 2)) / 2
        distances = _distances(centre, pad_mask)  # [B, K, S]
        gaussian = torch.exp(-(distances**2) / (2 * (self.half_width / 2) ** 2))
        return gaussian.masked_fill(distances > self.half_width, 0)


def _lengths(pad_mask: Tensor) -> Tensor:
    """Return the source lengths without padding: [B, 1]."""
    return (~pad_mask).sum(dim=1, keepdim=True)


def _distances(centre: Tensor, pad_mask: Tensor) -> Tensor:
    """Return the distance of every source position from centres [B, K]: [B, K, S]."""
    positions = torch.arange(pad_mask.shape[1], device=pad_mask.device)
    return (positions - centre[..., None]).abs()
