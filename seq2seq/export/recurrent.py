"""Recurrent layers of the encoder in the graph: operators of ONNX, or loops over its steps."""

from collections.abc import Sequence
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from seq2seq.export.cells import gru_state, input_gates, lstm_step, normed_lstm_step
from seq2seq.export.graph import FLOAT, Graph, without_onnx_form
from seq2seq.model.gru import GRULayer
from seq2seq.model.lstm import LSTMLayer, NormedLSTMLayer
from seq2seq.model.recurrent import RecurrentLayer

_DIRECTIONS = {(False,): "forward", (True,): "reverse", (False, True): "bidirectional"}


def run_layer(
    graph: Graph,
    layers: Sequence[RecurrentLayer],
    is_reversed: Sequence[bool],
    inputs: str,
    lengths: str,
) -> list[str]:
    """Run a layer of each direction over inputs [S, B, *]; lengths [B] are int32.

    Returns the outputs [S, directions, B, D], zero at padding, and the final hidden states and any
    cells [directions, B, D]. A backward direction reads each source reversed within its own length,
    as `Encoder` does. Raises UserError for layers without ONNX form.
    """
    kind = type(layers[0])
    if kind is NormedLSTMLayer:
        ends = [
            _scan(graph, layer, backwards, inputs, lengths)
            for layer, backwards in zip(layers, is_reversed, strict=True)
        ]
        axes = (1, 0, 0)
        return [
            graph.concat(*(graph.unsqueeze(each, axis) for each in parts), axis=axis)
            for parts, axis in zip(zip(*ends, strict=True), axes, strict=True)
        ]
    if kind is not LSTMLayer and kind is not GRULayer:
        raise without_onnx_form(f"the layer {kind.__name__}")
    if graph.int8:
        return _int8_layer(graph, layers, is_reversed, inputs, lengths)
    own = [_lstm_weights(each) if kind is LSTMLayer else _gru_weights(each) for each in layers]
    weight, hidden_weight, bias = (torch.stack(parts) for parts in zip(*own, strict=True))
    found = graph.ops(
        "LSTM" if kind is LSTMLayer else "GRU",
        inputs,
        graph.weight(weight),
        graph.weight(hidden_weight),
        graph.constant(torch.cat([bias, torch.zeros_like(bias)], dim=1).float().numpy()),
        lengths,
        results=3 if layers[0].has_cell else 2,
        direction=_DIRECTIONS[tuple(is_reversed)],
        hidden_size=layers[0].hidden_size,
    )
    for value in found[:2]:  # not the cells
        graph.set_bound(value, 1.0)
    return found


def _int8_layer(
    graph: Graph,
    layers: Sequence[Any],
    is_reversed: Sequence[bool],
    inputs: str,
    lengths: str,
) -> list[str]:
    """Run a layer with int8 products, as `run_layer`: all directions in one loop over time.

    At padding, which follows the source in either direction, the state stays as it is.
    """
    ends = graph.op("Cast", lengths, to=TensorProto.INT64)
    gates = []
    for layer, backwards in zip(layers, is_reversed, strict=True):
        own = graph.linear(inputs, layer.input_weight, layer.bias)
        gates.append(graph.unsqueeze(_turned(graph, own, ends, backwards), 1))
    count, size = graph.constant([len(layers)]), graph.constant([layers[0].hidden_size])
    start = graph.op("Concat", count, graph.size(inputs, 1), size, axis=0)
    zeros = [graph.op("ConstantOfShape", start)] * (2 if layers[0].has_cell else 1)
    is_real = _is_real(graph, graph.size(inputs, 0), ends)
    hidden, *cells, found = graph.ops(
        "Scan",
        *(*zeros, *gates, is_real),
        results=len(zeros) + 1,
        num_scan_inputs=len(gates) + 1,
        body=_int8_body(graph, layers),
    )
    for value in (hidden, found):
        graph.set_bound(value, 1.0)
    found = graph.op("Where", graph.unsqueeze(is_real, 1), found, graph.constant(0.0))
    outputs = []
    parts = graph.split(found, [1] * len(layers), axis=1)  # [S, 1, B, D]
    for part, backwards in zip(parts, is_reversed, strict=True):
        own = graph.op("Squeeze", part, graph.constant([1]))
        outputs.append(graph.unsqueeze(_turned(graph, own, ends, backwards), 1))
    return [graph.concat(*outputs, axis=1), hidden, *cells]


def _int8_body(graph: Graph, layers: Sequence[Any]) -> Any:
    """Return the graph of one step of all directions [D, B, *]."""
    body, size, count = graph.child("step"), layers[0].hidden_size, len(layers)
    state = {"hidden": body.input(body.fresh("hidden"), [count, "batch", size], bound=1.0)}
    if layers[0].has_cell:
        state["cell"] = body.input(body.fresh("cell"), [count, "batch", size])
    gates = [body.input(body.fresh("gates"), [1, "batch", each.gate_size]) for each in layers]
    is_real = body.input(body.fresh("is_real"), ["batch", 1], TensorProto.BOOL)
    step = _int8_lstm_step if layers[0].has_cell else _int8_gru_step
    for (name, old), new in zip(
        state.items(), step(body, layers, gates, *state.values()), strict=True
    ):
        state[name] = body.op("Where", is_real, new, old)
    for name, value in (*state.items(), ("output", state["hidden"])):
        body.output(value, body.fresh(f"next_{name}"), [count, "batch", size])
    return body.graph()


def _int8_lstm_step(
    body: Graph, layers: Sequence[Any], gates: Sequence[str], hidden: str, cell: str
) -> tuple[str, str]:
    """Return the next hidden states and cells [D, B, H], given input gates [1, B, 4H] of each."""
    sums = _int8_sums(body, hidden, [each.hidden_weight for each in layers], gates)
    return lstm_step(body, sums, cell, layers[0].hidden_size)


def _int8_gru_step(
    body: Graph, layers: Sequence[Any], gates: Sequence[str], hidden: str
) -> tuple[str]:
    """Return the next hidden states [D, B, H], given input gates [1, B, 3H] of each direction."""
    size = layers[0].hidden_size
    parts = [body.split(each, [2 * size, size]) for each in gates]
    weights = [each.hidden_weight for each in layers]
    sums = _int8_sums(body, hidden, weights, [first for first, _ in parts])
    r, z = body.split(body.op("Sigmoid", sums), [size, size])
    weights = [each.candidate_weight for each in layers]
    kept = body.op("Mul", r, hidden)
    sums = _int8_sums(body, kept, weights, [second for _, second in parts])
    nan_or_zero = body.op("Mul", kept, body.constant(0.0))  # rounding loses NaN
    candidate = body.op("Tanh", body.op("Add", sums, nan_or_zero))
    return (gru_state(body, z, candidate, hidden),)


def _int8_sums(body: Graph, values: str, weights: Sequence[Tensor], gates: Sequence[str]) -> str:
    """Return `W_d x_d` plus the gates of each direction: [D, B, *]."""
    products = body.int8_products(values, weights)
    return body.concat(
        *(body.op("Add", *each) for each in zip(products, gates, strict=True)), axis=0
    )


def _turned(graph: Graph, value: str, lengths: str, backwards: bool) -> str:
    """Return a value [S, B, *] reversed within the length of each source, or as it is."""
    if not backwards:
        return value
    return graph.op("ReverseSequence", value, lengths, time_axis=0, batch_axis=1)


def _is_real(graph: Graph, steps: str, lengths: str) -> str:
    """Return whether each of `steps` positions is within its source: [S, B, 1]."""
    position = graph.op("Range", graph.scalar(0), graph.reshape(steps), graph.scalar(1))
    return graph.unsqueeze(graph.op("Less", graph.unsqueeze(position, 1), lengths), 2)


def _lstm_weights(layer: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights and bias with the gates (o, i, f, g) in the order of ONNX, (i, o, f, g)."""
    weights = layer.input_weight, layer.hidden_weight, layer.bias
    chunks = (each.detach().chunk(4) for each in weights)
    first, second, bias = (torch.cat([i, o, f, g]) for o, i, f, g in chunks)
    return first, second, bias


def _gru_weights(layer: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return weights and bias of (r, z, h~) in the order of ONNX, (z, r, h~), and its form.

    Its update gate is `1 - z`, the logistic function of the negative sum.
    """
    hidden = torch.cat([layer.hidden_weight, layer.candidate_weight])
    chunks = (each.detach().chunk(3) for each in (layer.input_weight, hidden, layer.bias))
    first, second, bias = (torch.cat([-z, r, candidate]) for r, z, candidate in chunks)
    return first, second, bias


def _scan(
    graph: Graph, layer: Any, backwards: bool, inputs: str, lengths: str
) -> tuple[str, str, str]:
    """Run steps of a normalised LSTM: outputs [S, B, D], final hidden and cell [B, D]."""
    ends = graph.op("Cast", lengths, to=TensorProto.INT64)
    steps, batch, size = graph.size(inputs, 0), graph.size(inputs, 1), layer.hidden_size
    width = layer.input_weight.shape[1]
    flat = graph.reshape(_turned(graph, inputs, ends, backwards), -1, width)
    gates = input_gates(graph, layer, {flat: layer.input_weight})
    gates = graph.reshape(gates, steps, batch, 4 * size)
    is_real = graph.op("Cast", _is_real(graph, steps, ends), to=FLOAT)
    start = graph.op("ConstantOfShape", graph.op("Concat", batch, graph.constant([size]), axis=0))
    hidden, cell, outputs = graph.ops(
        "Scan",
        *(start, start, gates, is_real),
        results=3,
        num_scan_inputs=2,
        body=_body(graph, layer),
    )
    return _turned(graph, outputs, ends, backwards), hidden, cell


def _body(graph: Graph, layer: Any) -> Any:
    """Return the graph of one step, which keeps the state of sources that have ended."""
    body, size = graph.child("step"), layer.hidden_size
    hidden, cell = (body.input(body.fresh(name), ["batch", size]) for name in ("hidden", "cell"))
    gates = body.input(body.fresh("gates"), ["batch", 4 * size])
    is_real = body.input(body.fresh("is_real"), ["batch", 1])
    new_hidden, new_cell = normed_lstm_step(body, layer, gates, hidden, cell)
    for new, old in ((new_hidden, hidden), (new_cell, cell)):
        change = body.op("Mul", body.op("Sub", new, old), is_real)
        body.output(body.op("Add", old, change), body.fresh("next"), ["batch", size])
    output = body.op("Mul", new_hidden, is_real)
    body.output(output, body.fresh("output"), ["batch", size])
    return body.graph()
