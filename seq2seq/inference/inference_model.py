"""What stands where a model's weight stood, and multiplies in its place; for search alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.lstm import LSTMLayer


class InferenceWeight(ABC):
    """A weight [out, in] in another form, which `F.linear` takes as it took the weight."""

    @abstractmethod
    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        """Inputs [..., in] times the weight, and the bias [out]: [..., out]."""

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor:
        """What torch calls in place of a function of its own that is given such a weight."""
        del types
        assert function is F.linear, f"{cls.__name__} cannot be given to {function}"
        inputs, weight, bias = (*args, *(kwargs or {}).values(), None)[:3]
        product: Tensor = weight.product(inputs, bias)
        return product


@torch.no_grad()
def replace_weights(model: nn.Module, made: Callable[[Tensor], InferenceWeight]) -> None:
    """Let what is made of them stand for the weights of LSTM layers and linear maps.

    Embeddings stay, and maps to a single number.
    """
    for module in model.modules():
        names: tuple[str, ...] = ()
        if isinstance(module, LSTMLayer):
            names = ("input_weight", "hidden_weight")
        elif isinstance(module, nn.Linear) and module.out_features > 1:
            names = ("weight",)
        for name in names:
            weight = getattr(module, name)
            delattr(module, name)
            setattr(module, name, made(weight))
