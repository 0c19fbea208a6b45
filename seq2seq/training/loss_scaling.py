"""Dynamic scale of the loss for fp16, whose gradients would underflow (Micikevicius et al., 2018).

The state is a tensor [2] on the device: the scale, a power of two, and the steps since it changed.
`Progress` holds it; it is updated without a host sync and saved with the training state.
"""

import torch
from torch import Tensor

GROWTH_STEPS = 1000  # steps without a skipped one after which the scale is doubled
_LARGEST = 2.0**24


def update_loss_scale(state: Tensor, skipped: Tensor) -> None:
    """Halve the scale after a skipped step, or double it after GROWTH_STEPS others, in place.

    `skipped` [], on the device, is true if the scaled gradient was not finite.
    """
    scale, steps = state.unbind()
    steps = torch.where(skipped, 0.0, steps + 1)
    grows = steps >= GROWTH_STEPS
    factor = torch.where(skipped, 0.5, torch.where(grows, 2.0, 1.0))
    state.copy_(torch.stack([(scale * factor).clamp(1, _LARGEST), steps.masked_fill(grows, 0.0)]))
