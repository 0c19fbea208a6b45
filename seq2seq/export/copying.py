"""Copying in the graphs: the positions that the encoder prepares, and the mixture of a step.

The equations are those of `seq2seq.model.copying`.
"""

from onnx import TensorProto
from torch import nn

from seq2seq.export.attention import Values
from seq2seq.export.graph import FLOAT, INT, Dims, Graph
from seq2seq.model.copying import MIN_COPIED, Copying

# Positions of the memory, and their types.
POSITIONS = {
    "copied_ids": INT,
    "first": INT,
    "gate_scores": FLOAT,
    "continuation_scores": FLOAT,
}
DIMS: Dims = ["batch", "source"]
SUMMED = 16  # sums over multiples of it are rounded alike in every row and for any padding


def positions_of(graph: Graph, copying: Copying, src: str, values: str) -> Values:
    """Return the parts POSITIONS of the memory [B, S], given ids [B, S] and values [B, S, C]."""
    scores = [
        _sum(graph, graph.op("Mul", values, graph.weight(weight)), len(weight), keepdims=0)
        for weight in copying.position_weight
    ]
    return dict(zip(POSITIONS, (src, _first_positions(graph, src), *scores), strict=True))


def _first_positions(graph: Graph, src: str) -> str:
    """Return for each position of ids [B, S] the first position with the same id: [B, S]."""
    same = graph.op("Equal", graph.unsqueeze(src, 2), graph.unsqueeze(src, 1))  # [B, S, S]
    numbers = graph.op("Cast", same, to=TensorProto.INT32)
    return graph.op("ArgMax", numbers, axis=-1, keepdims=0)  # the first of equal values


def mixture(
    graph: Graph, copying: Copying, log_probs: str, outputs: str, weights: str, state: Values
) -> tuple[str, str]:
    """Return the log-probabilities [N, V] of generated and copied tokens, and c [N, S].

    Takes log-probabilities of generation [N, V], outputs [N, R] and attention weights [N, S]. The
    `state` has the last ids and the positions that they were copied from.
    """
    declared = {name: graph.input(name, DIMS, kind) for name, kind in POSITIONS.items()}
    positions = {name: _of_rows(graph, each, weights) for name, each in declared.items()}
    src = positions["copied_ids"]
    continued = _continuation(graph, state["copied"], state["ids"], src)
    shares = _shares(graph, copying, outputs, weights, continued, positions["continuation_scores"])
    zeros = graph.op("Mul", shares, graph.constant(0.0))
    mass = graph.op("ScatterElements", zeros, positions["first"], shares, axis=1, reduction="add")
    gate = _logit(graph, copying.gate, outputs, shares, positions["gate_scores"])
    # Softplus and Log round the last elements of a tensor in another way than the others.
    both = graph.op(
        "LogSoftmax", _extended(graph, gate, 1), axis=-1
    )  # log g and log (1 - g), [N, 2]
    generating, not_generating = graph.split(both, [1, 1])
    log_probs = graph.op("Add", log_probs, generating)
    generated = graph.op("GatherElements", log_probs, src, axis=1)  # [N, S]
    copied = graph.op("Add", not_generating, _log(graph, mass))
    mixed = _log_add_exp(graph, generated, copied)
    mixture = graph.op("ScatterElements", log_probs, src, mixed, axis=1, reduction="max")
    return mixture, shares


def _continuation(graph: Graph, copied: str, ids: str, src: str) -> str:
    """Return the positions after those that the last ids [N] were copied from: r [N, S]."""
    same = graph.op("Equal", src, graph.unsqueeze(ids, 1))
    found = graph.op("Mul", copied, graph.op("Cast", same, to=FLOAT))
    total = graph.op("Add", _sum(graph, found), graph.constant(MIN_COPIED))
    shares = graph.op("Div", found, total)
    return graph.op("Pad", shares, graph.constant([0, 1, 0, -1]))  # moved by one


def _shares(
    graph: Graph, copying: Copying, outputs: str, weights: str, continued: str, scores: str
) -> str:
    """Return the distribution c [N, S] of copied positions."""
    logit = _logit(graph, copying.continuation, outputs, continued, scores)
    continuing = graph.op("Sigmoid", logit)  # [N, 1]
    attended = graph.op("Div", weights, _sum(graph, weights))
    other = graph.op("Mul", continuing, _sum(graph, continued))
    other = graph.op("Mul", graph.op("Sub", graph.constant(1.0), other), attended)
    return graph.op("Add", other, graph.op("Mul", continuing, continued))


def _logit(graph: Graph, layer: nn.Linear, outputs: str, shares: str, scores: str) -> str:
    """Return `w . o + b` plus the scores [N, S] averaged by shares [N, S]: [N, 1]."""
    product = graph.op("Mul", outputs, graph.weight(layer.weight[0]))
    product = _sum(graph, product, layer.in_features)
    product = graph.op("Add", product, graph.weight(layer.bias))
    return graph.op("Add", product, _sum(graph, graph.op("Mul", shares, scores)))


def _log_add_exp(graph: Graph, one: str, other: str) -> str:
    """Return `log(exp(a) + exp(b))` for a finite a."""
    difference = graph.op("Abs", graph.op("Sub", one, other))
    ratio = graph.op("Exp", graph.op("Neg", difference))
    added = _log(graph, graph.op("Add", ratio, graph.constant(1.0)))
    return graph.op("Add", graph.op("Max", one, other), added)


def _log(graph: Graph, value: str) -> str:
    """Return the logarithms of a value, as those of sums of one summand; batch-invariant."""
    summand = graph.unsqueeze(value, -1)
    return graph.op("ReduceLogSum", summand, graph.constant([-1]), keepdims=0)


def _sum(graph: Graph, value: str, width: int = SUMMED, keepdims: int = 1) -> str:
    """Return the sums of rows [..., width]; unlike matrix products, they are batch-invariant.

    The width is S by default, which search makes a multiple of SUMMED.
    """
    value = _extended(graph, value, -width % SUMMED)
    return graph.op("ReduceSum", value, graph.constant([-1]), keepdims=keepdims)


def _extended(graph: Graph, value: str, zeros: int) -> str:
    """Append zeros to the rows of a value."""
    if not zeros:
        return value
    return graph.op("Pad", value, graph.constant([0, zeros]), "", graph.constant([-1]))


def _of_rows(graph: Graph, part: str, weights: str) -> str:
    """Repeat a part [B, S] of the memory for each of the N = B * K hypotheses: [N, S]."""
    batch, width = graph.size(part, 0), graph.size(part, 1)
    beam = graph.op("Div", graph.size(weights, 0), batch)
    dims = graph.op("Concat", batch, beam, width, axis=0)
    return graph.reshape(graph.op("Expand", graph.unsqueeze(part, 1), dims), -1, width)
