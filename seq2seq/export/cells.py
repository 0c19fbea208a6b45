"""One step of each recurrent cell in the graphs, as `step` of the layers defines it."""

import torch
from torch import Tensor

from seq2seq.export.graph import Graph, without_onnx_form
from seq2seq.model.gru import GRULayer
from seq2seq.model.lstm import LSTMLayer, NormedLSTMLayer
from seq2seq.model.recurrent import RecurrentLayer

Weights = dict[str, Tensor]  # gate weights by the part of the layer's input


def cell_step(
    graph: Graph, layer: RecurrentLayer, inputs: Weights, hidden: str, cell: str | None
) -> tuple[str, str | None]:
    """Return the next hidden state and cell [N, H], given inputs with the weights of their gates.

    Cells other than LSTMs are None. Raises UserError for a layer without ONNX form.
    """
    if type(layer) is GRULayer:
        return _gru_step(graph, layer, inputs, hidden), None
    assert cell is not None, "other layers have cells"
    if type(layer) is NormedLSTMLayer:
        gates = input_gates(graph, layer, inputs)
        return normed_lstm_step(graph, layer, gates, hidden, cell)
    if type(layer) is not LSTMLayer:
        raise without_onnx_form(f"the layer {type(layer).__name__}")
    parts = inputs | {hidden: layer.hidden_weight}
    gates = graph.linear_of_parts(parts, layer.bias)  # [N, 4H]
    return lstm_step(graph, gates, cell, layer.hidden_size)


def lstm_step(graph: Graph, gates: str, cell: str, size: int) -> tuple[str, str]:
    """Return the next hidden state and cell [..., H], given the sums of the gates [..., 4H]."""
    new_cell, o = _new_cell(graph, gates, cell, size)
    return graph.op("Mul", o, graph.op("Tanh", new_cell)), new_cell


def input_gates(graph: Graph, layer: NormedLSTMLayer, inputs: Weights) -> str:
    """Return `LN(W x; a_1)` of inputs [N, *]: [N, 4H]."""
    return _layer_norm(graph, graph.linear_of_parts(inputs), layer.input_norm)


def normed_lstm_step(
    graph: Graph, layer: NormedLSTMLayer, gates: str, hidden: str, cell: str
) -> tuple[str, str]:
    """Return the next hidden state and cell [N, H], given normalised input gates [N, 4H]."""
    product = graph.linear(hidden, layer.hidden_weight)
    sums = graph.op("Add", gates, _layer_norm(graph, product, layer.hidden_norm))
    sums = graph.op("Add", sums, graph.weight(layer.bias))
    new_cell, o = _new_cell(graph, sums, cell, layer.hidden_size)
    normed = _layer_norm(graph, new_cell, layer.cell_norm)
    return graph.op("Mul", o, graph.op("Tanh", normed)), new_cell


def _new_cell(graph: Graph, gates: str, cell: str, size: int) -> tuple[str, str]:
    """Return `c' = s(f) c + s(i) tanh(g)` and `s(o)` for gates (o, i, f, g)."""
    sigmoids, g = graph.split(gates, [3 * size, size])
    o, i, f = graph.split(graph.op("Sigmoid", sigmoids), [size] * 3)
    added = graph.op("Mul", i, graph.op("Tanh", g))
    return graph.op("Add", graph.op("Mul", f, cell), added), o


def _gru_step(graph: Graph, layer: GRULayer, inputs: Weights, hidden: str) -> str:
    """Return the next hidden state [N, H], given inputs with the weights of their gates."""
    size = layer.hidden_size
    parts = {part: weight[: 2 * size] for part, weight in inputs.items()}
    parts[hidden] = layer.hidden_weight
    sums = graph.linear_of_parts(parts, layer.bias[: 2 * size])
    r, z = graph.split(graph.op("Sigmoid", sums), [size, size])
    parts = {part: weight[2 * size :] for part, weight in inputs.items()}
    parts[graph.op("Mul", r, hidden)] = layer.candidate_weight
    candidate = graph.op("Tanh", graph.linear_of_parts(parts, layer.bias[2 * size :]))
    return gru_state(graph, z, candidate, hidden)


def gru_state(graph: Graph, z: str, candidate: str, hidden: str) -> str:
    """Return `h' = (1 - z) h + z h~`, which is `h + z (h~ - h)`: [..., H]."""
    change = graph.op("Mul", z, graph.op("Sub", candidate, hidden))
    return graph.op("Add", hidden, change)


def _layer_norm(graph: Graph, value: str, norm: torch.nn.LayerNorm) -> str:
    assert norm.weight is not None, "all have gains"
    operands = [value, graph.weight(norm.weight)]
    if norm.bias is not None:
        operands.append(graph.weight(norm.bias))
    return graph.op("LayerNormalization", *operands, axis=-1, epsilon=norm.eps)
