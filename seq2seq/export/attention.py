"""Attention in the graphs: the memory that the encoder prepares, and how a step attends."""

from typing import NamedTuple

import numpy as np
from torch import nn

from seq2seq.export.graph import FLOAT, Dims, Graph, without_onnx_form
from seq2seq.model import attention
from seq2seq.model.attention_layer import AttentionLayer
from seq2seq.model.local_attention import MonotonicWindow, PredictiveWindow

SCORES = (
    attention.AdditiveScore,
    attention.NormedAdditiveScore,
    attention.DotScore,
    attention.GeneralScore,
    attention.ScaledDotScore,
    attention.MultiHeadScore,
    attention.LocationScore,
)
WINDOWS = (MonotonicWindow, PredictiveWindow)
LEAST = float(np.finfo(np.float32).min)  # score of positions beyond those of a location score
Values = dict[str, str]


class Attended(NamedTuple):
    """Result of attending with N queries."""

    context: str  # [N, C]
    weights: str  # [N, S]
    state: Values  # coverage and position for the next step, where they are used


def check_attention(layer: AttentionLayer) -> None:
    """Raise UserError for a score or a window without ONNX form, such as a score of a user's."""
    score, window = type(layer.score), type(layer.window)
    if score not in SCORES:
        raise without_onnx_form(f"model.score {score.__module__}:{score.__qualname__}")
    if layer.window is not None and window not in WINDOWS:
        raise without_onnx_form(f"the window {window.__name__}")


def memory_of(
    graph: Graph, layer: AttentionLayer, outputs: str, src: str, src_lengths: str
) -> dict[str, tuple[str, Dims]]:
    """Return what attention reads of a sentence, with its dimensions.

    Keys are laid out as the score multiplies them: positions last, or [B, 1, S, A] for the sums of
    the additive score. `mask` [B, 1, S] is -inf at padding.
    """
    width = graph.reshape(graph.size(src, 1))
    position = graph.op("Range", graph.scalar(0), width, graph.scalar(1))
    real = graph.op("Less", position, graph.unsqueeze(src_lengths, 1))  # [B, S]
    mask = graph.op("Where", real, graph.constant(0.0), graph.constant(-np.inf))
    memory: dict[str, tuple[str, Dims]] = {
        "mask": (graph.unsqueeze(mask, 1), ["batch", 1, "source"]),
        "values": _values(graph, layer, outputs),
    }
    if not isinstance(layer.score, attention.LocationScore):
        memory["keys"] = _keys(graph, layer, outputs)
    if layer.window is not None:
        lengths = graph.op("Cast", src_lengths, to=FLOAT)
        memory["lengths"] = graph.unsqueeze(lengths, 1), ["batch", 1]
    return memory


def declare_memory(graph: Graph, layer: AttentionLayer, bound: float | None) -> Values:
    """Declare each part of the memory as an input; outputs of the encoder are within the bound."""
    other = Graph("encoder")
    outputs = other.input("outputs", ["batch", "source", layer.score.context_size], bound=bound)
    found = memory_of(other, layer, outputs, "src", "src_lengths")
    return {
        name: graph.input(name, dims, bound=other.bound(value))
        for name, (value, dims) in found.items()
    }


def _values(graph: Graph, layer: AttentionLayer, outputs: str) -> tuple[str, Dims]:
    """Return the values [B, S, C], or [B, M, S, C / M] for M heads."""
    score, size = layer.score, layer.score.context_size
    if not isinstance(score, attention.ScaledDotScore):
        return outputs, ["batch", "source", size]
    values = _project(graph, outputs, score.value_projection)
    if not isinstance(score, attention.MultiHeadScore):
        return values, ["batch", "source", size]
    parts = graph.op("Reshape", values, graph.constant([0, 0, score.heads, size // score.heads]))
    values = graph.op("Transpose", parts, perm=[0, 2, 1, 3])
    return values, ["batch", score.heads, "source", size // score.heads]


def joined_heads(graph: Graph, layer: AttentionLayer, values: str) -> str:
    """Return the values [B, S, C] of the memory, whose heads are apart."""
    if not isinstance(layer.score, attention.MultiHeadScore):
        return values
    values = graph.op("Transpose", values, perm=[0, 2, 1, 3])
    return graph.op("Reshape", values, graph.constant([0, 0, layer.score.context_size]))


def _keys(graph: Graph, layer: AttentionLayer, outputs: str) -> tuple[str, Dims]:
    """Return the keys [B, A, S], [B, 1, S, A] for an additive score, or of M heads."""
    score, size = layer.score, layer.score.context_size
    if isinstance(score, attention.AdditiveScore):
        keys = _project(graph, outputs, score.key_projection)
        return graph.unsqueeze(keys, 1), ["batch", 1, "source", score.key_projection.out_features]
    if isinstance(score, attention.DotScore):
        keys = outputs
    elif isinstance(score, attention.GeneralScore):
        size = score.key_projection.out_features
        keys = _project(graph, outputs, score.key_projection)
        keys = graph.op("Mul", keys, graph.constant(score.scale))
    else:
        assert isinstance(score, attention.ScaledDotScore), "see check_attention"
        keys = _project(graph, outputs, score.key_projection)
    if isinstance(score, attention.MultiHeadScore):
        part = size // score.heads
        keys = graph.op("Reshape", keys, graph.constant([0, 0, score.heads, part]))
        keys = graph.op("Transpose", keys, perm=[0, 2, 3, 1])
        return keys, ["batch", score.heads, part, "source"]
    return graph.op("Transpose", keys, perm=[0, 2, 1]), ["batch", size, "source"]


def _project(graph: Graph, outputs: str, layer: nn.Linear) -> str:
    """Return `W h + b` of all positions [B, S, H]: [B, S, out]."""
    flat = graph.reshape(outputs, -1, layer.in_features)
    projected = graph.linear(flat, layer.weight, layer.bias)
    dims = graph.size(outputs, 0), graph.size(outputs, 1), layer.out_features
    return graph.reshape(projected, *dims)


def attend(
    graph: Graph, layer: AttentionLayer, query: str, state: Values, memory: Values
) -> Attended:
    """Attend with the queries [N, Q] of N = B * K hypotheses, as `AttentionLayer.attend`."""
    batch = graph.size(memory["values"], 0)
    new_state, window = {}, None
    if layer.window is not None:
        window = _window_weights(graph, layer, query, state, memory, batch)
        if "position" in state:
            new_state["position"] = graph.op("Add", state["position"], graph.constant(1.0))
    scores = _scores(graph, layer, query, state, memory, batch)  # [B, K, S] or [B, M, K, S]
    mask = memory["mask"]
    heads = layer.score.heads if isinstance(layer.score, attention.MultiHeadScore) else None
    if heads:
        mask = graph.unsqueeze(mask, 1)
        window = window and graph.unsqueeze(window, 1)
    scores = graph.op("Add", scores, mask)
    if window is not None:
        outside = graph.op("Equal", window, graph.constant(0.0))
        scores = graph.op("Where", outside, graph.constant(-np.inf), scores)
    weights = graph.op("Softmax", scores, axis=-1)
    if window is not None:
        weights = graph.op("Mul", weights, window)
    context = graph.op("MatMul", weights, memory["values"])
    graph.set_bound(context, graph.bound(memory["values"]))  # weights sum to at most 1
    if heads:
        context = graph.op("Transpose", context, perm=[0, 2, 1, 3])
        weights = _mean_over_heads(graph, heads, weights)
    context = graph.reshape(context, -1, layer.score.context_size)
    weights = graph.reshape(weights, -1, graph.size(memory["mask"], 2))
    if layer.coverage is not None:
        new_state["coverage"] = graph.op("Add", state["coverage"], weights)
    return Attended(context, weights, new_state)


def _mean_over_heads(graph: Graph, heads: int, weights: str) -> str:
    """Return the mean [B, 1, K, S] of weights [B, M, K, S], batch-invariant unlike ReduceMean."""
    total = graph.sum(graph.split(weights, [1] * heads, axis=1))
    return graph.op("Mul", total, graph.constant(1 / heads))


def _scores(
    graph: Graph, layer: AttentionLayer, query: str, state: Values, memory: Values, batch: str
) -> str:
    """Return the scores [B, K, S] of queries [N, Q], or [B, M, K, S] of M heads."""
    score = layer.score
    if isinstance(score, attention.AdditiveScore):
        return _additive_scores(graph, layer, score, query, state, memory, batch)
    if isinstance(score, attention.LocationScore):
        return _location_scores(graph, score, query, memory, batch)
    if not isinstance(score, attention.ScaledDotScore):  # dot and general
        size = score.context_size
        if isinstance(score, attention.GeneralScore):
            size = score.key_projection.out_features
        queries = graph.reshape(query, batch, -1, size)
        return graph.op("MatMul", queries, memory["keys"])
    projection = score.query_projection
    heads = score.heads if isinstance(score, attention.MultiHeadScore) else 1
    part = score.context_size // heads
    projected = graph.linear(query, projection.weight, projection.bias)
    projected = graph.op("Mul", projected, graph.constant(part**-0.5))
    if heads == 1:
        return graph.op("MatMul", graph.reshape(projected, batch, -1, part), memory["keys"])
    split = graph.reshape(projected, batch, -1, heads, part)  # [B, K, M, A / M]
    return graph.op("MatMul", graph.op("Transpose", split, perm=[0, 2, 1, 3]), memory["keys"])


def _additive_scores(
    graph: Graph,
    layer: AttentionLayer,
    score: attention.AdditiveScore,
    query: str,
    state: Values,
    memory: Values,
    batch: str,
) -> str:
    projection, keys = score.query_projection, memory["keys"]
    size = projection.out_features
    projected = graph.linear(query, projection.weight, projection.bias)
    if layer.coverage is not None:
        coverage = graph.reshape(state["coverage"], batch, -1, graph.size(memory["mask"], 2), 1)
        term = graph.op("Mul", coverage, graph.weight(layer.coverage.weight))  # [B, K, S, A]
        keys = graph.op("Add", keys, term)
    sums = graph.op("Add", graph.reshape(projected, batch, -1, 1, size), keys)
    energy = score.energy.weight[0]
    if isinstance(score, attention.NormedAdditiveScore):
        energy = score.gain * energy / energy.norm()
    return graph.op("MatMul", graph.op("Tanh", sums), graph.weight(energy))  # [B, K, S]


def _location_scores(
    graph: Graph, score: attention.LocationScore, query: str, memory: Values, batch: str
) -> str:
    """Return the first S scores of the table's positions, LEAST beyond them."""
    known = score.positions.out_features
    scores = graph.linear(query, score.positions.weight)
    width = graph.size(memory["mask"], 2)
    missing = graph.op("Sub", width, graph.constant([known]))
    missing = graph.op("Max", missing, graph.constant([0]))
    pads = graph.op("Concat", graph.constant([0, 0, 0]), missing, axis=0)
    scores = graph.op("Pad", scores, pads, graph.constant(LEAST))
    scores = graph.op("Slice", scores, graph.constant([0]), width, graph.constant([1]))
    return graph.reshape(scores, batch, -1, width)


def _window_weights(
    graph: Graph, layer: AttentionLayer, query: str, state: Values, memory: Values, batch: str
) -> str:
    """Return the window weights [B, K, S] of `layer.window`."""
    window, lengths = layer.window, memory["lengths"]  # [B, 1]
    width = graph.reshape(graph.size(memory["mask"], 2))
    positions = graph.op("Range", graph.scalar(0), width, graph.scalar(1))
    positions = graph.op("Cast", positions, to=FLOAT)  # [S]
    if isinstance(window, MonotonicWindow):
        position = graph.reshape(state["position"], batch, -1)
        centre = graph.op("Min", position, graph.op("Sub", lengths, graph.constant(1.0)))
    else:
        assert isinstance(window, PredictiveWindow), "see check_attention"
        hidden = graph.op("Tanh", graph.linear(query, window.query_projection.weight))
        energy = graph.op("MatMul", hidden, graph.weight(window.energy.weight[0]))  # [N]
        share = graph.op("Sigmoid", graph.reshape(energy, batch, -1))
        centre = graph.op("Mul", lengths, share)  # [B, K]
    distances = graph.op("Abs", graph.op("Sub", positions, graph.unsqueeze(centre, 2)))
    inside = graph.op("LessOrEqual", distances, graph.constant(float(window.half_width)))
    if isinstance(window, MonotonicWindow):
        return graph.op("Cast", inside, to=FLOAT)
    squares = graph.op("Mul", distances, distances)
    factor = graph.constant(-2 / window.half_width**2)  # -1 / (2 sigma^2), sigma = D / 2
    gaussian = graph.op("Exp", graph.op("Mul", squares, factor))
    return graph.op("Where", inside, gaussian, graph.constant(0.0))
