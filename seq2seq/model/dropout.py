"""Dropout (Srivastava et al. 2014) whose masks cost little on a CPU."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

_LEVELS = 256  # a random byte an element


class Dropout(nn.Dropout):
    """In training, zero each element with probability `p` and scale the rest up: the mean stays.

    On a CPU one random byte decides, so the rate there is the nearest multiple of 1/256 below 1:
    torch's own masks cost more than the products around them.
    """

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...

    def forward(self, input: Tensor) -> Tensor:
        dropped = min(round(self.p * _LEVELS), _LEVELS - 1)
        if not self.training or dropped == 0 or input.device.type != "cpu":
            return super().forward(input)
        kept = (_random_bytes(input.numel()) >= dropped).to(input.dtype)
        return input * kept.mul_(_LEVELS / (_LEVELS - dropped)).view(input.shape)


def _random_bytes(count: int) -> Tensor:
    """`count` bytes from torch's generator: [count], uint8."""
    words = torch.empty(-(-count // 8), dtype=torch.int64)
    return words.random_(-(2**63), None).view(torch.uint8)[:count]
