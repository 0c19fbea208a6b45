"""Weights of eight bits for search on a CPU: whole numbers multiply several times as fast."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.inference.inference_model import InferenceWeight, replace_weights
from seq2seq.runtime.device import shortest_time

STEPS = 127  # from zero to the largest entry
_FEWEST_ROWS, _FEWEST_COLUMNS = 8, 32  # of inputs; of fewer, oneDNN multiplies in a plain loop
_ZERO = 128  # what stands for zero where numbers have no sign
_MUCH_SLOWER = 10  # times as long as torch's other way: without fast instructions, hundreds
Multiply = Callable[[Tensor], Tensor]  # int8 [N, in] -> products times the scale, [N, out]


class Int8Weight(InferenceWeight):
    """A weight [out, in] as whole numbers and a scale a row.

    Each row of inputs is rounded to steps of its own largest entry. Products of whole numbers are
    exact, so that what a row yields does not depend on how many there are.
    """

    def __init__(self, weight: Tensor) -> None:
        integers, scale = rounded(weight)
        self.multiply = multiplier(integers, scale.squeeze(1))

    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        integers, scale = rounded(inputs.flatten(0, -2))
        sums = self.multiply(integers)
        scaled = sums.mul_(scale) if bias is None else torch.addcmul(bias, sums, scale, out=sums)
        return scaled.view(*inputs.shape[:-1], -1)


def rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [N, M] -> whole numbers of at most STEPS, int8 [N, M], and the size of a step [N, 1]."""
    largest = values.abs().amax(1, keepdim=True)
    scale = largest.clamp_(min=torch.finfo(values.dtype).tiny * STEPS).div_(STEPS)
    return (values / scale).round_().to(torch.int8), scale


def multiplier(integers: Tensor, scale: Tensor) -> Multiply:
    """By a weight int8 [out, in], times a scale [out]: oneDNN's way unless it is much slower."""
    return (_packed if _packs() else _plain)(integers, scale)


def _plain(integers: Tensor, scale: Tensor) -> Multiply:
    missing = int(integers.shape[1] == 1)  # torch misreads a single column
    weight = F.pad(integers, (0, missing)).t()

    def multiply(inputs: Tensor) -> Tensor:
        products = torch._int_mm(F.pad(inputs, (0, missing)), weight)
        return products.to(scale.dtype).mul_(scale)

    return multiply


def _packed(integers: Tensor, scale: Tensor) -> Multiply:
    """A weight that oneDNN has laid out for itself once, and scaled as it is multiplied by.

    Inputs go in without a sign, moved by _ZERO: only that way do all processors with fast products
    of eight bits have them. What is too small for those is filled up.
    """
    columns = max(0, _FEWEST_COLUMNS - integers.shape[1])
    weight = torch.ops.onednn.qlinear_prepack(F.pad(integers, (0, columns)), None)
    weight_terms = weight, scale, torch.zeros_like(scale, dtype=torch.int32), None

    def multiply(inputs: Tensor) -> Tensor:
        rows = len(inputs)
        missing = max(0, _FEWEST_ROWS - rows)
        if missing or columns:
            inputs = F.pad(inputs, (0, columns, 0, missing))
        unsigned = inputs.contiguous().view(torch.uint8) ^ _ZERO  # the sign's bit: as much more
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, _ZERO, *weight_terms, 1.0, 0, scale.dtype, "none", [], ""
        )
        return products[:rows]

    return multiply


@cache
def _packs() -> bool:
    """Whether oneDNN's way is there, exact, and no loop without fast instructions."""
    try:
        return _is_exact(_packed) and _seconds(_packed) < _MUCH_SLOWER * _seconds(_plain)
    except (AttributeError, NotImplementedError, RuntimeError):  # made for others, or otherwise
        return False


def _seconds(way: Callable[[Tensor, Tensor], Multiply]) -> float:
    multiply = way(torch.ones(256, 256, dtype=torch.int8), torch.ones(256))
    inputs = torch.ones(64, 256, dtype=torch.int8)
    return shortest_time(lambda: multiply(inputs))


def int8_is_exact() -> bool:
    """Whether this processor multiplies int8 without overflow; some have too narrow sums."""
    return _packs() or _is_exact(_plain)


def _is_exact(multiplier: Callable[[Tensor, Tensor], Multiply]) -> bool:
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randint(-STEPS, STEPS + 1, (2, 64, 256), generator=generator)
    left[0], right[0] = STEPS, STEPS
    left[1], right[1] = STEPS, -STEPS
    scale = torch.linspace(1, 2, len(right))
    products = multiplier(right.to(torch.int8), scale)(left.to(torch.int8))
    return torch.equal(products, (left @ right.t()).to(scale.dtype) * scale)


def to_int8(model: nn.Module) -> None:
    """Round all its weights, for inference."""
    replace_weights(model, Int8Weight)
