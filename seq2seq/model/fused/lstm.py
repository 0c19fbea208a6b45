"""Manual forward and backward passes of LSTM layers over time, without an autograd graph.

Products run in the dtype of the weight, states in that of the cell; the gradient of a weight is one
product over all steps, after the loop. Time-major shapes as in decoders.py.

`run_library_lstm` runs a layer by torch's own kernels, on CUDA those of cuDNN, whose gates are in
the order (i, f, g, o). They return the cell after the last position only. So that this is the cell
after the last real one, padding leaves the cell as it is: an indicator of padding is part of the
inputs, with weights that open the forget gate and close the input gate, exactly 1 and 0. Nothing is
packed, as packing needs the lengths on the host.
"""

import functools
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.model.layers import activate_gates_, tanh, tanh_into, weight_gradient

PADDING_GATE = 1e4  # its logistic function is 1, and that of its negative 0, also in half precision
INDICATORS = 8  # columns: matrices stay a multiple of 8 wide, as tensor cores need it


class LayerInputs(NamedTuple):
    """Tensors of one layer, in the order in which autograd receives them."""

    weight: Tensor  # [4H, I + H], for the layer's inputs and its previous hidden state
    bias: Tensor | None  # [4H]; None in the lowest layer, whose gates include it
    hidden: Tensor  # [B, H], initial
    cell: Tensor  # [B, H], initial
    mask: Tensor | None  # [T, B, I], dropout of the inputs; None: no dropout


class SavedForBackward(NamedTuple):
    """Tensors of one layer saved by autograd for the backward pass, which frees them."""

    weight: Tensor  # [4H, I + H]
    bias: Tensor | None  # [4H]
    cell: Tensor  # [B, H], initial
    mask: Tensor | None  # [T, B, I]
    inputs: Tensor  # [T, B, I + H]: inputs and previous hidden states
    activations: Tensor  # [T, B, 4H]: gates after their nonlinearities
    cells: Tensor  # [T, B, H]


class LSTMSteps:
    """Forward pass of one layer, with the activations that the backward pass reads."""

    def __init__(self, steps: int, layer: LayerInputs, product_dtype: torch.dtype) -> None:
        batch, size = layer.cell.shape
        self.weight = layer.weight.to(product_dtype)
        self.cell = layer.cell
        self.mask = layer.mask
        self.bias = None if layer.bias is None else layer.bias.to(product_dtype)
        self.cells = layer.cell.new_empty(steps, batch, size)
        self.hiddens = torch.empty_like(self.cells)
        self.activations = layer.cell.new_empty(steps, batch, 4 * size)
        self.inputs = self.weight.new_empty(steps, batch, self.weight.shape[1])
        self.previous_hidden = self.inputs[:, :, self.weight.shape[1] - size :]
        self.previous_hidden[0] = layer.hidden

    def forward(self, t: int, gates: Tensor) -> Tensor:
        """Run step t on gates [B, 4H] or a bias [4H], plus `W inputs[t]`; return hidden [B, H].

        The caller has written the layer's inputs to the first I columns of `inputs[t]`.
        """
        activations = self.activations[t]
        terms = (gates, self.inputs[t], self.weight.t())
        if gates.dtype == activations.dtype:
            torch.addmm(*terms, out=activations)
        else:
            activations.copy_(torch.addmm(*terms))
        previous_cell = self.cells[t - 1] if t else self.cell
        activate(activations, previous_cell, self.hiddens[t], self.cells[t])
        self.previous_hidden[t + 1 : t + 2] = self.hiddens[t]  # empty slice at the end
        return self.hiddens[t]

    def forward_above(self, t: int, below: Tensor) -> Tensor:
        """Run step t on the hidden state of the layer below [B, H], under dropout."""
        assert self.bias is not None, "only the lowest layer has none"
        self.inputs[t, :, : below.shape[1]] = below if self.mask is None else below * self.mask[t]
        return self.forward(t, self.bias)

    def saved(self) -> SavedForBackward:
        """Return the tensors for autograd to save."""
        return SavedForBackward(
            self.weight, self.bias, self.cell, self.mask, self.inputs, self.activations, self.cells
        )


class LSTMGradients:
    """Backward pass of one layer, from the last step to the first.

    `grad_hidden` and `grad_cell` [B, H] are the gradients of the state after the step that comes
    next; its caller may add to them.
    """

    def __init__(self, saved: SavedForBackward) -> None:
        self.saved = saved
        self.previous_hidden = saved.inputs[:, :, saved.inputs.shape[2] - saved.cell.shape[1] :]
        self.derivatives = CellDerivatives(saved.activations, saved.cells, saved.cell)
        self.grad_gates = torch.empty_like(saved.activations, dtype=saved.weight.dtype)
        self.grad_hidden = torch.zeros_like(saved.cell)
        self.grad_cell = torch.zeros_like(saved.cell)

    def backward(self, t: int, grad_hidden: Tensor) -> Tensor:
        """Return the gradient of step t's inputs [B, I], given that of its hidden state [B, H]."""
        weight = self.saved.weight
        mask = self.saved.mask
        dtype = self.grad_cell.dtype
        self.grad_cell = self.derivatives.backward(
            t, grad_hidden + self.grad_hidden, self.grad_cell, self.grad_gates[t]
        )
        grad_inputs = (self.grad_gates[t] @ weight).to(dtype)
        input_size = weight.shape[1] - self.grad_cell.shape[1]
        self.grad_hidden = grad_inputs[:, input_size:]
        grad_inputs = grad_inputs[:, :input_size]
        return grad_inputs if mask is None else grad_inputs * mask[t]

    def finish(self) -> LayerInputs:
        """Return the gradients of the layer's tensors, after the first step."""
        product = weight_gradient(self.grad_gates, self.saved.inputs)
        grad_weight = product.to(self.grad_cell.dtype)
        grad_bias = None
        if self.saved.bias is not None:
            grad_bias = self.grad_gates.sum((0, 1), dtype=self.grad_cell.dtype)
        return LayerInputs(grad_weight, grad_bias, self.grad_hidden, self.grad_cell, None)


def activate(gates: Tensor, previous_cell: Tensor, hidden: Tensor, cell: Tensor) -> None:
    """Turn gates (o, i, f, g) [B, 4H] into activations in place; write the next state [B, H]."""
    activate_gates_(gates, cell.shape[-1])
    o, i, f, g = gates.chunk(4, dim=-1)
    torch.mul(f, previous_cell, out=cell).addcmul_(i, g)
    tanh_into(cell, hidden).mul_(o)


class CellDerivatives:
    """Derivatives of the cells of all steps, computed at once and applied step by step."""

    def __init__(self, activations: Tensor, cells: Tensor, initial_cell: Tensor) -> None:
        o, i, f, g = activations.chunk(4, dim=-1)  # [T, B, H]
        self.forget = f
        tanh_cells = tanh(cells)
        hiddens = tanh_cells * o
        self.output = torch.addcmul(hiddens, hiddens, o, value=-1)  # tanh(c) o (1 - o)
        self.cell = torch.addcmul(o, hiddens, tanh_cells, value=-1)  # o (1 - tanh(c)^2)
        # [T, B, 3, H]
        self.input_forget_candidate = activations.new_empty(*cells.shape[:2], 3, cells.shape[2])
        by_i, by_f, by_g = self.input_forget_candidate.unbind(2)
        torch.mul(g, i, out=by_i)
        torch.addcmul(i, by_i, g, value=-1, out=by_g)  # i (1 - g^2)
        by_i.addcmul_(by_i, i, value=-1)  # g i (1 - i)
        torch.mul(initial_cell, f[0], out=by_f[0])
        torch.mul(cells[:-1], f[1:], out=by_f[1:])
        by_f.addcmul_(by_f, f, value=-1)  # c_{t-1} f (1 - f)

    def backward(
        self, t: int, grad_hidden: Tensor, grad_cell: Tensor, grad_gates: Tensor
    ) -> Tensor:
        """Write the gradient of step t's gates [B, 4H]; return that of the previous cell [B, H]."""
        grad_cell = torch.addcmul(grad_cell, grad_hidden, self.cell[t])
        size = grad_cell.shape[-1]
        torch.mul(grad_hidden, self.output[t], out=grad_gates[:, :size])
        input_forget_candidate = grad_gates[:, size:].unflatten(-1, (3, size))
        torch.mul(grad_cell[:, None], self.input_forget_candidate[t], out=input_forget_candidate)
        return grad_cell * self.forget[t]


Backward = Callable[..., tuple[Tensor | None, ...]]


def without_autocast(backward: Backward) -> Backward:
    """Decorate a backward pass that chooses its own dtypes, even when called under autocast."""

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
            return backward(ctx, *grads)

    return wrapped


class LSTMUnroll(torch.autograd.Function):
    """LSTM layer over a sequence as one autograd node.

    Time-major: gates [T, B, 4H], weight [4H, H], hidden and cell [B, H] -> all hidden states and
    cells, [T, B, H] each. Values and gradients equal those of stacked steps.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs = LayerInputs(weight, None, hidden, cell, None)
        layer = LSTMSteps(len(gates), inputs, gates.dtype)
        for t in range(len(gates)):
            layer.forward(t, gates[t])
        ctx.save_for_backward(*layer.saved())
        return layer.hiddens, layer.cells

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        grad_hiddens, grad_cells = grads
        layer = LSTMGradients(SavedForBackward(*ctx.saved_tensors))
        for t in reversed(range(len(grad_cells))):
            layer.grad_cell = layer.grad_cell + grad_cells[t]
            layer.backward(t, grad_hiddens[t])
        return layer.grad_gates, layer.finish().weight, layer.grad_hidden, layer.grad_cell


class LSTMStackSteps:
    """Forward pass of a stack of layers, given their `LayerInputs` as one flat sequence.

    `outputs` [T, B, H] are the hidden states of the top layer, with `residual` the sum of all.
    """

    def __init__(
        self,
        steps: int,
        layers: Sequence[Tensor | None],
        product_dtype: torch.dtype,
        residual: bool = False,
    ) -> None:
        width = len(LayerInputs._fields)
        self.layers = [
            LSTMSteps(steps, LayerInputs(*layers[start : start + width]), product_dtype)  # type: ignore[arg-type]
            for start in range(0, len(layers), width)
        ]
        self.lowest = self.layers[0]
        self.top = self.layers[-1]
        self.residual = residual
        self.outputs = torch.empty_like(self.top.hiddens) if residual else self.top.hiddens

    def forward(self, t: int, gates: Tensor) -> Tensor:
        """Run step t through all layers, the lowest on gates [B, 4H]; return the output [B, H]."""
        output = self.lowest.forward(t, gates)
        for layer in self.layers[1:]:
            hidden = layer.forward_above(t, output)
            output = hidden + output if self.residual else hidden
        if self.residual:
            self.outputs[t] = output
        return output

    def saved(self) -> list[Tensor | None]:
        """Return the tensors for autograd to save as one flat sequence."""
        return [*chain.from_iterable(layer.saved() for layer in self.layers)]


class LSTMStackGradients:
    """Backward pass of a stack of layers, given what `LSTMStackSteps.saved` returned."""

    def __init__(self, saved: Sequence[Any], residual: bool = False) -> None:
        self.residual = residual
        width = len(SavedForBackward._fields)
        self.layers = [
            LSTMGradients(SavedForBackward(*saved[start : start + width]))
            for start in range(0, len(saved), width)
        ]
        self.lowest = self.layers[0]
        self.top = self.layers[-1]

    def backward(self, t: int, grad_output: Tensor) -> Tensor:
        """Return the gradient of the lowest layer's inputs at step t, given the output's."""
        for layer in reversed(self.layers[1:]):
            grad_inputs = layer.backward(t, grad_output)
            grad_output = grad_inputs + grad_output if self.residual else grad_inputs
        return self.lowest.backward(t, grad_output)

    def finish(self) -> list[Tensor | None]:
        """Return the gradients of all `LayerInputs` as one flat sequence, after the first step."""
        return [*chain.from_iterable(layer.finish() for layer in self.layers)]


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
    size = len(weights[2]) // 4
    with torch.autocast(device, enabled=False):
        # torch's order of gates is (i, f, g, o).
        ordered = (torch.cat([part[size:], part[:size]]).to(inputs) for part in weights)
        input_weight, hidden_weight, bias = ordered
        time_major = inputs.transpose(0, 1)  # [T, B, I]
        if pad_mask is not None:  # the first indicator opens f and closes i
            indicators = F.pad(pad_mask.t()[..., None].to(inputs.dtype), (0, INDICATORS - 1))
            time_major = torch.cat([time_major, indicators], dim=-1)
            weight = bias.new_zeros(len(bias), INDICATORS)
            weight[:size, 0] = -PADDING_GATE
            weight[size : 2 * size, 0] = PADDING_GATE
            input_weight = torch.cat([input_weight, weight], dim=1)
        flat = _contiguous([input_weight, hidden_weight, bias, torch.zeros_like(bias)])
        states = [part[None].to(inputs).contiguous() for part in state]
        training = torch.is_grad_enabled()
        hiddens, _, cells = torch.lstm(
            time_major.contiguous(), states, flat, True, 1, 0.0, training, False, False
        )
    return hiddens.transpose(0, 1), cells[0].to(state[1].dtype)


def _contiguous(weights: list[Tensor]) -> list[Tensor]:
    """Return the weights as views of one tensor, as cuDNN reads them without a further copy."""
    parts = torch.cat([weight.flatten() for weight in weights]).split(
        [weight.numel() for weight in weights]
    )
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]
