"""The LSTM's fast sequence against its step, torch.nn.LSTM and numerical derivatives."""

import math

import pytest
import torch
from cases.models import B, E, H, T, close, random_tensor, randomize
from torch import Tensor, nn

from seq2seq.model.recurrent import LSTMLayer

SIZE = 5


def make_layer(input_size: int = E, hidden_size: int = H) -> LSTMLayer:
    layer = LSTMLayer(input_size, hidden_size)
    randomize(layer)
    return layer


def first_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs [B, T, E], first hidden and first cell [B, H]."""
    return (
        random_tensor(B, T, E, seed=2),
        random_tensor(B, H, seed=3),
        random_tensor(B, H, seed=4),
    )


def stacked(layer: LSTMLayer, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """Compute the sequence by its definition, step by step."""
    hiddens = []
    cells = []
    for gates in layer.gates(inputs).unbind(1):
        hidden, cell = layer.step(gates, hidden, cell)
        hiddens.append(hidden)
        cells.append(cell)
    return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)


def swapped(weight: Tensor) -> Tensor:
    """Reorder rows from gates o i f g to torch.nn.LSTM's order, i f g o."""
    o, i, f, g = weight.chunk(4)
    return torch.cat([i, f, g, o])


def torch_lstm(layer: LSTMLayer) -> nn.LSTM:
    """Return torch.nn.LSTM with the layer's weights."""
    lstm = nn.LSTM(layer.input_weight.shape[1], layer.hidden_weight.shape[1], batch_first=True)
    lstm.double()
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(swapped(layer.input_weight))
        lstm.weight_hh_l0.copy_(swapped(layer.hidden_weight))
        lstm.bias_ih_l0.copy_(swapped(layer.bias))
        lstm.bias_hh_l0.zero_()
    return lstm


def weighted(tensors: tuple[Tensor, ...]) -> Tensor:
    """Return a scalar that depends differently on every element."""
    return sum(
        ((random_tensor(*part.shape, seed=10 + n).detach() * part).sum())
        for n, part in enumerate(tensors)
    )


def test_step_follows_its_equations() -> None:
    layer = make_layer(3, 2)
    x = [0.3, -1.2, 0.8]
    h = [0.5, -0.7]
    c = [1.1, -0.4]
    W, U, b = (p.tolist() for p in (layer.input_weight, layer.hidden_weight, layer.bias))
    gate_inputs = [
        b[row] + sum(W[row][n] * x[n] for n in range(3)) + sum(U[row][n] * h[n] for n in range(2))
        for row in range(8)
    ]
    expected_hidden = []
    expected_cell = []
    for n in range(2):
        o, i, f = (1 / (1 + math.exp(-gate_inputs[gate * 2 + n])) for gate in range(3))
        cell = f * c[n] + i * math.tanh(gate_inputs[6 + n])
        expected_cell.append(cell)
        expected_hidden.append(o * math.tanh(cell))
    x, h, c = (torch.tensor([row], dtype=torch.float64) for row in (x, h, c))
    hidden, cell = layer.step(layer.gates(x), h, c)
    close(hidden, torch.tensor([expected_hidden], dtype=torch.float64))
    close(cell, torch.tensor([expected_cell], dtype=torch.float64))


def test_forward_equals_stacked_steps_in_values_and_gradients() -> None:
    layer = make_layer()
    inputs = first_inputs()
    leaves = [*inputs, *layer.parameters()]
    fast = layer(*inputs)
    slow = stacked(layer, *inputs)
    for left, right in zip(fast, slow, strict=True):
        close(left, right)
    gradients = (torch.autograd.grad(weighted(result), leaves) for result in (fast, slow))
    for left, right in zip(*gradients, strict=True):
        assert right.abs().max() > 0
        close(left, right)


@pytest.mark.parametrize("part", [0, 1], ids=["hiddens", "cells"])
def test_gradients_are_correct_if_only_one_output_is_used(part: int) -> None:
    layer = make_layer()
    inputs = first_inputs()
    leaves = [*inputs, *layer.parameters()]
    gradients = (
        torch.autograd.grad(weighted((result[part],)), leaves)
        for result in (layer(*inputs), stacked(layer, *inputs))
    )
    for left, right in zip(*gradients, strict=True):
        close(left, right)


def test_forward_equals_torch_lstm_in_values_and_gradients() -> None:
    layer = make_layer()
    inputs = first_inputs()
    lstm = torch_lstm(layer)
    hiddens, cells = layer(*inputs)
    ours = (hiddens, hiddens[:, -1], cells[:, -1])
    sequence, hidden, cell = inputs
    outputs, (last_hidden, last_cell) = lstm(sequence, (hidden[None], cell[None]))
    theirs = (outputs, last_hidden[0], last_cell[0])
    for left, right in zip(ours, theirs, strict=True):
        close(left, right)
    left = torch.autograd.grad(weighted(ours), [*inputs, *layer.parameters()])
    weights = [lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0]
    right = torch.autograd.grad(weighted(theirs), [*inputs, *weights])
    for number, (mine, torchs) in enumerate(zip(left, right, strict=True)):
        close(mine if number < len(inputs) else swapped(mine), torchs)


def test_gradients_equal_numerical_derivatives() -> None:
    layer = make_layer(2, 3)
    inputs = (
        random_tensor(2, 4, 2, seed=2),
        random_tensor(2, 3, seed=3),
        random_tensor(2, 3, seed=4),
    )
    parameters = tuple(layer.parameters())
    names = [name for name, _ in layer.named_parameters()]

    def run(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        weights = dict(zip(names, arguments[3:], strict=True))
        return torch.func.functional_call(layer, weights, arguments[:3])

    assert torch.autograd.gradcheck(run, (*inputs, *parameters))


def test_a_second_backward_pass_gives_the_same_gradients() -> None:
    layer = make_layer()
    inputs = first_inputs()
    leaves = [*inputs, *layer.parameters()]
    scalar = weighted(layer(*inputs))
    first = torch.autograd.grad(scalar, leaves, retain_graph=True)
    for left, right in zip(first, torch.autograd.grad(scalar, leaves), strict=True):
        assert torch.equal(left, right)


def test_a_sequence_of_one_step_equals_a_step() -> None:
    layer, (inputs, hidden, cell) = make_layer(), first_inputs()
    hiddens, cells = layer(inputs[:, :1], hidden, cell)
    next_hidden, next_cell = layer.step(layer.gates(inputs[:, 0]), hidden, cell)
    close(hiddens, next_hidden[:, None])
    close(cells, next_cell[:, None])


def test_outputs_do_not_depend_on_later_inputs() -> None:
    layer, (inputs, hidden, cell) = make_layer(), first_inputs()
    full, _ = layer(inputs, hidden, cell)
    prefix, _ = layer(inputs[:, :2], hidden, cell)
    close(full[:, :2], prefix)


def test_bf16_autocast_keeps_states_in_float32_and_values_close() -> None:
    layer = make_layer().float()
    inputs = tuple(part.detach().float() for part in first_inputs())
    exact = layer(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = layer(*inputs)
    gradients = []
    for result in (exact, rounded):
        scalar = sum(part.square().sum() for part in result)
        gradients.append(torch.autograd.grad(scalar, list(layer.parameters())))
    for left, right in zip((*rounded, *gradients[1]), (*exact, *gradients[0]), strict=True):
        assert left.dtype == torch.float32
        error = (left - right).norm() / right.norm()
        assert 0 < error < 0.02


def test_initial_forget_gates_are_open_and_weights_within_the_bound() -> None:
    layer = LSTMLayer(E, SIZE)
    forget = torch.arange(4 * SIZE).div(SIZE, rounding_mode="floor") == 2
    assert torch.equal(layer.bias.detach(), forget.float())
    for weight in (layer.input_weight, layer.hidden_weight):
        assert 0.5 * SIZE**-0.5 < weight.abs().max() <= SIZE**-0.5
