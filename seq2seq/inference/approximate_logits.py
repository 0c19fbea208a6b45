"""Logits by products of eight bits, with how far they may be off: enough to find the largest."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.inference.int8 import multiplier, rounded

_HALF_ULP = 2.0**-24  # of a float32, relative: half a unit in the last place
_MORE = 1.001  # for the sums of the bound itself


class ApproximateLogits(NamedTuple):
    """Logits of N rows that are known roughly, and exactly where they are asked for."""

    logits: Tensor  # [N, V]
    off: Tensor  # [N]: no logit of a row is farther than this from the exact one
    outputs: Tensor  # [N, R]
    weight: Tensor  # [V, R]
    bias: Tensor  # [V]

    def exact(self, rows: Tensor, pieces: Tensor) -> Tensor:
        """The logits of these rows [M] and pieces [M]: [M], each the same in any company."""
        products = self.outputs[rows] * self.weight[pieces]
        return products.sum(-1) + self.bias[pieces]


class ApproximateProjection:
    """A projection [V, R] whose inputs and weights are both rounded to eight bits.

    With rounded `x + d` and `w + e`, `|(x + d)(w + e) - x w| <= |d| |w + e| + |x| |e|` after Cauchy
    and Schwarz, where `|d|` is at most half a step in each of R entries.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight.detach(), bias.detach()
        integers, scale = rounded(self.weight)
        self.multiply = multiplier(integers, scale.squeeze(1))
        values = integers * scale
        self.largest = _longest(values)
        self.error = _longest(self.weight - values)
        self.bias_error = 4 * _HALF_ULP * float(self.bias.abs().max())

    def __call__(self, outputs: Tensor) -> ApproximateLogits:
        """Outputs [N, R] -> logits [N, V]."""
        integers, step = rounded(outputs)
        sums = self.multiply(integers)
        logits = torch.addcmul(self.bias, sums, step, out=sums)
        width = outputs.shape[1]
        in_float32 = (
            (width + 8) * _HALF_ULP * (self.largest + self.error)
        )  # of sums, ours and exact
        off = step.squeeze(1) * (0.5 * math.sqrt(width) * self.largest)
        off += torch.linalg.vector_norm(outputs, dim=1) * (self.error + in_float32)
        off = off.mul_(_MORE).add_(self.bias_error)
        return ApproximateLogits(logits, off, outputs, self.weight, self.bias)


def _longest(rows: Tensor) -> float:
    """The norm of the longest row."""
    return float(torch.linalg.vector_norm(rows, dim=1).max())
