"""The optimizer, the learning rate as a function of the step, the moving average of the weights."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from seq2seq.config import TrainingConfig


def make_optimizer(
    config: TrainingConfig, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """The optimizer of the config; its learning rate is set anew at each step."""
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
    }
    return kinds[config.optimizer](
        parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


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
def update_average(averages: list[Tensor], weights: list[Tensor], decay: float, step: int) -> None:
    """Move the averages, in place, towards the weights after update `step` (from 1).

    `a = d a + (1 - d) w`, where d grows to `decay` over the first updates as
    (1 + step) / (10 + step), so that the random beginning is soon forgotten.
    """
    rate = 1 - min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(averages, weights, rate)
