"""Largest absolute values in a graph, as far as they follow from its operators."""

import math
from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, numpy_helper

from seq2seq.engines.onnx.graph import Array, Graph, attribute, bodies

Bounds = dict[str, float]  # by value; others may be of any size

_ONE = frozenset(("Tanh", "Sigmoid", "Softmax"))
_MOVING = frozenset(
    [
        "Cast",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ]
)


def bounds_of(graph: Graph, input_bounds: Mapping[str, float]) -> Bounds:
    """Return the bounds of values, given those of the inputs."""
    bounds, producers = dict(input_bounds), graph.producers()
    for name, array in graph.weights.items():
        if array.dtype == np.float32:
            bounds[name] = float(np.abs(array).max(initial=0))
    for node in graph.nodes:
        if node.op_type == "Scan":
            bounds |= _of_loop(graph.weights, node)
        else:
            bound = _of_result(node, bounds, producers)
            if bound is not None and math.isfinite(bound):
                bounds |= dict.fromkeys(node.output, bound)
    return bounds


def recurrent_bounds(
    graph: Graph, input_bounds: Mapping[str, float], successors: Mapping[str, str]
) -> Bounds:
    """Return the bounds of values where results become inputs of the next step.

    An input keeps its bound in `input_bounds` if its successor is within it in every step.
    """
    inputs = dict(input_bounds)
    while True:
        bounds = bounds_of(graph, inputs)
        bounded = {
            name: bound
            for name, bound in inputs.items()
            if bounds.get(successors.get(name, name), math.inf) <= bound
        }
        if len(bounded) == len(inputs):
            return bounds
        inputs = bounded


def loop_body(weights: dict[str, Array], node: NodeProto) -> tuple[Graph, dict[str, str]]:
    """Return the body of a loop, and the successor of each of its state inputs."""
    body = Graph.of(bodies(node)[0], weights)
    count = len(node.input) - 1  # one input is read step by step
    states = [value.name for value in body.inputs[:count]]
    return body, dict(zip(states, [value.name for value in body.outputs[:count]], strict=True))


def _of_loop(weights: dict[str, Array], node: NodeProto) -> Bounds:
    """Return the bounds of the results of a loop that starts with states of zero."""
    body, successors = loop_body(weights, node)
    bounds = recurrent_bounds(body, dict.fromkeys(successors, 1.0), successors)
    results = zip(node.output, (value.name for value in body.outputs), strict=True)
    return {name: bounds[value] for name, value in results if value in bounds}


def _of_result(node: NodeProto, bounds: Bounds, producers: Mapping[str, NodeProto]) -> float | None:
    kind, inputs = node.op_type, list(node.input)
    if kind in _ONE:
        return 1.0
    if kind in _MOVING:
        return bounds.get(inputs[0])
    if kind == "ConstantOfShape":
        value = attribute(node, "value")
        return 0.0 if value is None else float(np.abs(numpy_helper.to_array(value)).max())
    if kind == "MatMul" and _averages(inputs[0], producers):
        return bounds.get(inputs[1])
    if kind == "Add":
        return _interpolated(inputs, bounds, producers)
    read = [bounds.get(name) for name in (inputs[1:] if kind == "Where" else inputs)]
    finite = [bound for bound in read if bound is not None]
    if kind not in ("Concat", "Max", "Mul", "Where") or len(finite) < len(read):
        return None
    return math.prod(finite) if kind == "Mul" else max(finite)


def _averages(name: str, producers: Mapping[str, NodeProto]) -> bool:
    """Return whether a value is attention weights, the sum of which is at most 1."""
    node = producers.get(name)
    if node is None:
        return False
    if node.op_type in ("Identity", "Unsqueeze"):
        return _averages(node.input[0], producers)
    return node.op_type == "Softmax"


def _interpolated(
    inputs: list[str], bounds: Bounds, producers: Mapping[str, NodeProto]
) -> float | None:
    """Return the bound of `(1 - z) a + z b` for a logistic z."""
    products = [producers.get(name) for name in inputs]
    if any(node is None or node.op_type != "Mul" for node in products):
        return None
    first, second = ([*node.input] for node in products if node is not None)
    complement, gate = producers.get(first[0]), producers.get(second[0])
    if (
        complement is None
        or complement.op_type != "Sub"
        or complement.input[1] != second[0]
        or gate is None
    ):
        return None
    source = gate if gate.op_type != "Split" else producers.get(gate.input[0])
    if source is None or source.op_type != "Sigmoid":
        return None
    branches = [bounds.get(first[1]), bounds.get(second[1])]
    finite = [bound for bound in branches if bound is not None]
    return max(finite) if len(finite) == len(branches) else None
