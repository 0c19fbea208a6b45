"""Weights laid out once as oneDNN multiplies by them, which it would else do at every product."""

from functools import cache

import torch
from torch import Tensor, nn

from seq2seq.inference.inference_weights import InferenceWeight, replace_weights

_ROWS = 64  # of the inputs that the layout is made for; fewer or more do as well
_TOLERANCE = 1e-5  # relative error that a float32 product may have


class PackedWeight(InferenceWeight):
    """A float32 weight in oneDNN's own layout."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)

    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self.weight, bias, "none", [], ""
        )
        return product


def pack(model: nn.Module) -> None:
    """Pack all its weights, where float32 products are oneDNN's in any case (`choose_device`).

    Elsewhere, as on processors with AMX, this would be another arithmetic.
    """
    if torch.get_float32_matmul_precision() == "medium" and _packs():
        replace_weights(model, PackedWeight)


@cache
def _packs() -> bool:
    """Whether this torch can, and multiplies as exactly."""
    left, right = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(1))
    exact = left.double() @ right.double().t()
    try:
        error = (PackedWeight(right).product(left, None) - exact).abs().max() / exact.abs().max()
    except (AttributeError, NotImplementedError, RuntimeError):  # made for others, or otherwise
        return False
    return bool(error < _TOLERANCE)
