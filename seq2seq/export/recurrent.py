"""Recurrent layers of the encoder in the graph: operators of ONNX where it has the cell."""

from collections.abc import Sequence
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from seq2seq.export.cells import input_gates, normed_lstm_step
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
    kind, results = type(layers[0]), 3 if layers[0].has_cell else 2
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
    own = [_lstm_weights(each) if kind is LSTMLayer else _gru_weights(each) for each in layers]
    weight, hidden_weight, bias = (torch.stack(parts) for parts in zip(*own, strict=True))
    return graph.ops(
        "LSTM" if kind is LSTMLayer else "GRU",
        inputs,
        graph.table(weight),
        graph.table(hidden_weight),
        graph.constant(torch.cat([bias, torch.zeros_like(bias)], dim=1).float().numpy()),
        lengths,
        results=results,
        direction=_DIRECTIONS[tuple(is_reversed)],
        hidden_size=layers[0].hidden_size,
    )


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
    long_lengths = graph.op("Cast", lengths, to=TensorProto.INT64)

    def turned(value: str) -> str:
        if not backwards:
            return value
        return graph.op("ReverseSequence", value, long_lengths, time_axis=0, batch_axis=1)

    steps, batch, size = graph.size(inputs, 0), graph.size(inputs, 1), layer.hidden_size
    width = layer.input_weight.shape[1]
    flat = graph.reshape(turned(inputs), -1, width)
    gates = input_gates(graph, layer, {flat: layer.input_weight})
    gates = graph.reshape(gates, steps, batch, 4 * size)
    zero, one = (graph.scalar(each) for each in (0, 1))
    position = graph.op("Range", zero, graph.reshape(steps), one)
    is_real = graph.op("Less", graph.unsqueeze(position, 1), long_lengths)  # [S, B]
    is_real = graph.op("Cast", graph.unsqueeze(is_real, 2), to=FLOAT)
    start = graph.op("ConstantOfShape", graph.op("Concat", batch, graph.constant([size]), axis=0))
    hidden, cell, outputs = graph.ops(
        "Scan",
        *(start, start, gates, is_real),
        results=3,
        num_scan_inputs=2,
        body=_body(graph, layer),
    )
    return turned(outputs), hidden, cell


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
