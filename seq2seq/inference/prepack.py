"""Weights laid out once as oneDNN multiplies by them, which it would else do at every product."""

from functools import cache

import torch
from torch import Tensor, nn

from seq2seq.inference.inference_model import InferenceWeight, replace_weights
from seq2seq.runtime.device import product_is_exact

_ROWS = 64  # of the inputs that the layout is made for; fewer or more do as well


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
    try:
        return product_is_exact(lambda left, right: PackedWeight(right.t()).product(left, None))
    except (AttributeError, NotImplementedError, RuntimeError):  # made for others, or otherwise
        return False
