"""The normalised LSTM against the equations of Ba et al. (2016), in loops."""

import math

import numpy as np
import pytest
import torch
from cases.models import B, E, H, T, close, random_tensor, randomize
from torch import Tensor

from seq2seq.model.recurrent import LSTMLayer, NormedLSTMLayer


def make_layer(input_size: int = E, hidden_size: int = H) -> NormedLSTMLayer:
    layer = NormedLSTMLayer(input_size, hidden_size)
    randomize(layer)
    return layer


def normed(values: list[float], gain: list[float], shift: list[float]) -> list[float]:
    """Compute eq. 3 and 4 over the units of one layer and one sentence."""
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in values) / len(values) + 1e-5)
    return [a * (x - mean) / deviation + b for x, a, b in zip(values, gain, shift, strict=True)]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def step_in_loops(
    layer: NormedLSTMLayer, x: list[float], h: list[float], c: list[float]
) -> tuple[list[float], list[float]]:
    """Compute eq. 20 to 22 for one sentence."""
    W, U, b = (p.tolist() for p in (layer.input_weight, layer.hidden_weight, layer.bias))
    size = len(h)
    zeros = [0.0] * 4 * len(h)
    by_input = [sum(w * v for w, v in zip(row, x, strict=True)) for row in W]
    by_hidden = [sum(w * v for w, v in zip(row, h, strict=True)) for row in U]
    terms = zip(
        normed(by_input, layer.input_norm.weight.tolist(), zeros),
        normed(by_hidden, layer.hidden_norm.weight.tolist(), zeros),
        b,
        strict=True,
    )
    o, i, f, g = np.array([sum(addends) for addends in terms]).reshape(4, size).tolist()
    cell = [sigmoid(f[n]) * c[n] + sigmoid(i[n]) * math.tanh(g[n]) for n in range(size)]
    last = normed(cell, layer.cell_norm.weight.tolist(), layer.cell_norm.bias.tolist())
    return [sigmoid(o[n]) * math.tanh(last[n]) for n in range(size)], cell


def states() -> tuple[Tensor, Tensor, Tensor]:
    return tuple(random_tensor(B, *shape, seed=n) for n, shape in enumerate([(T, E), (H,), (H,)]))


def test_a_sequence_follows_the_equations_of_the_paper() -> None:
    layer = make_layer()
    inputs, hidden, cell = states()
    hiddens, cells = layer(inputs, hidden, cell)
    for b in range(B):
        h = hidden[b].tolist()
        c = cell[b].tolist()
        for t in range(T):
            h, c = step_in_loops(layer, inputs[b, t].tolist(), h, c)
            close(hiddens[b, t], torch.tensor(h, dtype=torch.float64))
            close(cells[b, t], torch.tensor(c, dtype=torch.float64))


def test_gradients_equal_numerical_derivatives() -> None:
    layer = make_layer(3, 4)
    inputs, hidden, cell = (
        random_tensor(2, *s, seed=n) for n, s in enumerate([(3, 3), (4,), (4,)])
    )
    parameters = tuple(layer.parameters())

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        names = [name for name, _ in layer.named_parameters()]
        weights = dict(zip(names, tensors[3:], strict=True))
        return torch.func.functional_call(layer, weights, tensors[:3])

    assert torch.autograd.gradcheck(run, (inputs, hidden, cell, *parameters))


def test_a_sequence_equals_stacked_steps() -> None:
    layer = make_layer()
    inputs, hidden, cell = states()
    hiddens, cells = layer(inputs, hidden, cell)
    for t, gates in enumerate(layer.gates(inputs).unbind(1)):
        hidden, cell = layer.step(gates, hidden, cell)
        close(hidden, hiddens[:, t])
        close(cell, cells[:, t])


@pytest.mark.parametrize("part", ["input", "hidden"])
def test_outputs_do_not_depend_on_the_scale_of_inputs_and_states(part: str) -> None:
    """The property the paper derives (section 5.1), which a plain LSTM lacks."""
    for kind, invariant in ((NormedLSTMLayer, True), (LSTMLayer, False)):
        layer = kind(E, H)
        randomize(layer)
        first_step = layer.step(
            layer.gates(100 * states()[0][:, 0]), 100 * states()[1], states()[2]
        )
        with torch.no_grad():
            getattr(layer, f"{part}_weight").mul_(7)
        scaled_step = layer.step(
            layer.gates(100 * states()[0][:, 0]), 100 * states()[1], states()[2]
        )
        assert torch.allclose(first_step[0], scaled_step[0], atol=1e-5) == invariant


def test_initial_gains_are_one_and_forget_gates_open() -> None:
    layer = NormedLSTMLayer(E, H)
    assert layer.bias.tolist() == [0] * 2 * H + [1] * H + [0] * H
    for norm in (layer.input_norm, layer.hidden_norm, layer.cell_norm):
        assert norm.weight.unique().tolist() == [1]
