"""Optimizer, learning rate schedule, moving average of the weights, and scale of the loss."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from seq2seq.config.schema import TrainingConfig

# Values of Kingma & Ba (2015).
_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
_SGD: dict[str, Any] = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}

GROWTH_STEPS = 1000  # steps without a skipped one after which the scale of the loss is doubled
_LARGEST_SCALE = 2.0**24
_SHORT_WARMUP = 10  # steps, after which an inverse square root falls to a tenth within 1,000


class Optimizer:
    """Adam, AdamW or plain SGD, by torch's fused kernels.

    torch's own classes load a compiler: a second and 75 MB at every start. `state` holds what torch
    calls `exp_avg`, `exp_avg_sq` and `step` of each parameter; empty before a step and with SGD.
    """

    def __init__(self, config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> None:
        self.kind = config.optimizer.name
        self.weight_decay = config.optimizer.weight_decay
        self.state: dict[Tensor, dict[str, Tensor]] = {parameter: {} for parameter in parameters}

    def zero_grad(self, keep: bool = False) -> None:
        """Clear all gradients; with `keep`, fill the tensors that hold them with zeros."""
        for parameter in self.state:
            if not keep:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self.state if parameter.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)

    @torch.no_grad()
    def step(
        self, rate: float | Tensor, divisor: Tensor | None = None, skipped: Tensor | None = None
    ) -> None:
        """Update, in place, each parameter that has a gradient, at a learning rate.

        `divisor` [] divides the gradients; if `skipped` [] is 1, not 0, nothing changes. Both
        are float32 on the parameters' device, and are read there without a host sync.
        """
        updated: list[Tensor] = [
            parameter for parameter in self.state if parameter.grad is not None
        ]
        gradients: list[Any] = [parameter.grad for parameter in updated]
        options: dict[str, Any] = {"lr": rate, "weight_decay": self.weight_decay, "maximize": False}
        options |= {"fused": True, "grad_scale": divisor, "found_inf": skipped}
        if self.kind == "sgd":
            sgd(updated, gradients, [None] * len(updated), **_SGD, **options)
            return
        for parameter in updated:
            if not (state := self.state[parameter]):
                state["exp_avg"], state["exp_avg_sq"] = map(torch.zeros_like, [parameter] * 2)
                state["step"] = torch.zeros((), device=parameter.device)
        means, squares, steps = (
            [self.state[parameter][key] for parameter in updated]
            for key in ("exp_avg", "exp_avg_sq", "step")
        )
        rule = adamw if self.kind == "adamw" else adam
        rule(updated, gradients, means, squares, [], steps, **_ADAM, **options)


def learning_rate(config: TrainingConfig, step: int, end: float | None, decays: int = 0) -> float:
    """Return the learning rate of a step (from 1): linear warm-up to the peak, then decay.

    With peak `p`, warm-up `W` (`warmup_steps`, or 1 for none) and last step `T` (`end`), the rate
    of step `t <= W` is `p t / W`, so that step `W` has the peak. Later steps have

    - constant: `p`
    - inverse_sqrt: `p sqrt(W / t)` (Vaswani et al., 2017, section 5.3)
    - linear: `p l`, where `l = (T + 1 - t) / (T + 1 - W)`: zero would follow the last step
    - cosine: `p (1 - cos(pi l)) / 2` (Loshchilov & Hutter, 2017, without restarts)
    - plateau: `p f^n` after `n` decays by the factor `f` (`decay.factor`)

    While the end is unknown (None), linear and cosine have the peak.
    """
    peak = config.learning_rate
    warmup = max(config.warmup_steps, 1)
    if step < warmup:
        return peak * step / warmup
    if config.decay.name == "plateau":
        return peak * float(config.decay.factor**decays)
    if config.decay.name == "inverse_sqrt":
        return peak * math.sqrt(warmup / step)
    if config.decay.name == "constant" or end is None:
        return peak
    share_left = max(0.0, (end + 1 - step) / max(1, end + 1 - warmup))
    return peak * (
        share_left
        if config.decay.name == "linear"
        else 0.5 - 0.5 * math.cos(math.pi * min(1.0, share_left))
    )


def end_of_decay(
    config: TrainingConfig, step: int, last_step: int | None, seconds: float
) -> float | None:
    """Return the step where linear and cosine decay end; None if it is unknown.

    With `max_minutes` alone it is estimated from the mean speed of the seconds before `step`.
    """
    if last_step is not None or config.max_minutes is None or seconds <= 0 or step <= 1:
        return last_step
    return max(float(step), (step - 1) * 60 * config.max_minutes / seconds)


def schedule_note(config: TrainingConfig, last_step: int | None) -> str | None:
    """Return a warning if the learning rate stays below the peak, or falls from it at once."""
    peak = f"training.learning_rate {config.learning_rate:g}"
    warmup = config.warmup_steps
    if last_step is not None and warmup > last_step:
        fault = f"{warmup:,} is more than the {last_step:,} steps of this training"
        end = f"which ends at {last_step / warmup:.0%} of {peak}"
        return f"training.warmup_steps: {fault}, {end}; lower it"
    if config.decay.name == "inverse_sqrt" and warmup <= _SHORT_WARMUP:
        schedule = f"inverse_sqrt with training.warmup_steps {warmup}"
        fault = f"falls to a tenth of {peak} by step {100 * max(warmup, 1):,}"
        return f"training.decay: {schedule} {fault}; set warmup_steps to some hundreds"
    return None


def averaging_rate(decay: float, step: int) -> float:
    """Return the share of the weights after a step (from 1) in their moving averages: `1 - d`.

    d grows to `decay` as (1 + step) / (10 + step), so that the first weights are soon forgotten.
    """
    return 1 - min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def update_average(
    averages: list[Tensor], weights: list[Tensor], rate: float | Tensor, skipped: Tensor
) -> None:
    """Update averages in place, `a = (1 - rate) a + rate w`, unless `skipped` [] is 1."""
    rate = rate * (1 - skipped).to(averages[0].dtype)
    for average, weight in zip(averages, weights, strict=True):
        average.lerp_(weight, rate)


def update_loss_scale(state: Tensor, skipped: Tensor) -> None:
    """Halve the scale of the loss after a skipped step, or double it after GROWTH_STEPS others.

    With fp16, whose gradients would underflow, the loss is scaled (Micikevicius et al. 2018). The
    state [2], of `Progress`, is the scale, a power of two, and the steps since it changed. It is
    updated in place, without a host sync; `skipped` [] is true if the gradient was not finite.
    """
    scale, steps = state.unbind()
    steps = torch.where(skipped, 0.0, steps + 1)
    grows = steps >= GROWTH_STEPS
    factor = torch.where(skipped, 0.5, torch.where(grows, 2.0, 1.0))
    state.copy_(
        torch.stack([(scale * factor).clamp(1, _LARGEST_SCALE), steps.masked_fill(grows, 0.0)])
    )
