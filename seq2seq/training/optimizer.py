"""The optimizer, the learning rate as a function of the step, the moving average of the weights."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from seq2seq.config.schema import TrainingConfig

# Of Kingma & Ba (2015).
_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
_SGD: dict[str, Any] = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}


class Optimizer:
    """Adam, AdamW or plain gradient descent, by torch's fused kernels.

    Not by torch's classes of that name: each start of those loads a compiler that nothing here
    uses, for a second and 75 MB.

    `state` is what is remembered of each parameter: its gradient's mean `exp_avg` and mean square
    `exp_avg_sq`, of its shape, and the number of its steps; nothing before the first, or with sgd.
    """

    def __init__(self, config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> None:
        self.kind, self.weight_decay = config.optimizer, config.weight_decay
        self.state: dict[Tensor, dict[str, Tensor]] = {each: {} for each in parameters}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.state:
            parameter.grad = None

    @torch.no_grad()
    def step(
        self, rate: float, divisor: Tensor | None = None, skipped: Tensor | None = None
    ) -> None:
        """Move each parameter that has a gradient, in place, at a learning rate.

        `divisor` [] divides the gradients; where `skipped` [] is 1, not 0, nothing changes. Both
        are float32 on the parameters' device, which reads them when it comes to them.
        """
        moved: list[Tensor] = [each for each in self.state if each.grad is not None]
        gradients: list[Any] = [each.grad for each in moved]
        how: dict[str, Any] = {"lr": rate, "weight_decay": self.weight_decay, "maximize": False}
        how |= {"fused": True, "grad_scale": divisor, "found_inf": skipped}
        if self.kind == "sgd":
            sgd(moved, gradients, [None] * len(moved), **_SGD, **how)
            return
        states = [self._remembered(each) for each in moved]
        means, squares, steps = (
            [state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step")
        )
        rule = adamw if self.kind == "adamw" else adam
        rule(moved, gradients, means, squares, [], steps, **_ADAM, **how)

    def _remembered(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] = torch.zeros((), device=parameter.device)
        return state


def learning_rate(config: TrainingConfig, step: int, last_step: int | None) -> float:
    """The rate of update `step` (from 1): a linear warm-up to `learning_rate`, then the decay.

    `inverse_sqrt` falls as 1 / sqrt(step) from the end of the warm-up (Vaswani et al. 2017);
    `linear` and `cosine` reach zero after `last_step`.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if step < warmup:
        return peak * step / warmup
    if config.decay == "constant":
        return peak
    if config.decay == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    assert last_step is not None, "the config refuses such a decay without an end"
    left = max(0.0, (last_step + 1 - step) / max(1, last_step + 1 - warmup))
    return peak * (
        left if config.decay == "linear" else 0.5 - 0.5 * math.cos(math.pi * min(1.0, left))
    )


@torch.no_grad()
def update_average(
    averages: list[Tensor], weights: list[Tensor], decay: float, step: int, skipped: Tensor
) -> None:
    """Move the averages, in place, towards the weights after update `step` (from 1).

    `a = d a + (1 - d) w`, where d grows to `decay` over the first updates as
    (1 + step) / (10 + step), so that the random beginning is soon forgotten. Where `skipped`
    (a number, on the device) is 1 and not 0, nothing moves.
    """
    rate = (1 - min(decay, (1 + step) / (10 + step))) * (1 - skipped).to(averages[0].dtype)
    for average, weight in zip(averages, weights, strict=True):
        average.lerp_(weight, rate)
