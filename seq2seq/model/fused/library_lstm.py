"""LSTM layer over a sequence by torch's own kernels, on CUDA those of cuDNN.

The kernels return the cell after the last position only. So that this is the cell after the last
real one, padding leaves the cell as it is: an indicator of padding is part of the inputs, with
weights that open the forget gate and close the input gate, exactly 1 and 0. Nothing is packed, as
packing needs the lengths on the host. Gates are in torch's order (i, f, g, o).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

PADDING_GATE = 1e4  # its logistic function is 1, and that of its negative 0, also in half precision
INDICATORS = 8  # columns: matrices stay a multiple of 8 wide, as tensor cores need it


def run_library_lstm(
    weights: tuple[Tensor, Tensor, Tensor],
    inputs: Tensor,
    state: tuple[Tensor, Tensor],
    pad_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the hidden states [B, T, H] and the cell [B, H] after the last real position.

    Takes input weight [4H, I], hidden weight [4H, H] and bias [4H], with gates (o, i, f, g), inputs
    [B, T, I], hidden and cell [B, H], and pad_mask [B, T], with padding last; None: no padding.
    Under autocast all of it is computed in half precision, which the hidden states keep; the cell
    returned has the dtype of the one given.
    """
    device = inputs.device.type
    if torch.is_autocast_enabled(device):
        inputs = inputs.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        return _run(weights, inputs, state, pad_mask)


def _run(
    weights: tuple[Tensor, Tensor, Tensor],
    inputs: Tensor,
    state: tuple[Tensor, Tensor],
    pad_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return what `run_library_lstm` does, computed in the dtype of the inputs."""
    input_weight, hidden_weight, bias = (_in_torchs_order(weight.to(inputs)) for weight in weights)
    time_major = inputs.transpose(0, 1)  # [T, B, I]
    if pad_mask is not None:
        indicators = F.pad(pad_mask.t()[..., None].to(inputs.dtype), (0, INDICATORS - 1))
        time_major = torch.cat([time_major, indicators], dim=-1)
        input_weight = torch.cat([input_weight, _indicator_weight(bias)], dim=1)
    flat = _contiguous([input_weight, hidden_weight, bias, torch.zeros_like(bias)])
    states = [part[None].to(inputs).contiguous() for part in state]
    needs_grad = torch.is_grad_enabled()
    time_major = time_major.contiguous()
    hiddens, _, cells = torch.lstm(time_major, states, flat, True, 1, 0.0, needs_grad, False, False)
    return hiddens.transpose(0, 1), cells[0].to(state[1].dtype)


def _in_torchs_order(weight: Tensor) -> Tensor:
    """Return rows of gates (o, i, f, g) in the order (i, f, g, o)."""
    size = len(weight) // 4
    return torch.cat([weight[size:], weight[:size]])


def _indicator_weight(bias: Tensor) -> Tensor:
    """Return the weight [4H, 8] of the indicators: -1e4 for i and 1e4 for f, in the first."""
    size = len(bias) // 4
    weight = bias.new_zeros(len(bias), INDICATORS)
    weight[:size, 0], weight[size : 2 * size, 0] = -PADDING_GATE, PADDING_GATE
    return weight


def _contiguous(weights: list[Tensor]) -> list[Tensor]:
    """Return the weights as views of one tensor, as cuDNN reads them without a further copy."""
    parts = torch.cat([weight.flatten() for weight in weights]).split(
        [weight.numel() for weight in weights]
    )
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]
