"""Bounds of the values of a graph, whatever the inputs: a tanh, for one, is within 1.

An operator's results are bounded by its kind, or by the bounds of its inputs. int8 takes the scale
of a value from its bound, so that the scale depends on no row.
"""

import math
from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, numpy_helper

from seq2seq.engines.onnx.graph import Array, Graph, attribute, bodies

ValueBounds = dict[str, float]  # largest absolute value, by name; without one: any size

_WITHIN_ONE = frozenset(("Tanh", "Sigmoid", "Softmax"))
MOVING = frozenset(  # operators whose first input has all entries of their results, or zeros
    [
        *("Cast", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "ReverseSequence", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    ]
)
_NO_OPERATOR = NodeProto()  # for values that none computes: weights and inputs


def bounds_of(graph: Graph, input_bounds: Mapping[str, float]) -> ValueBounds:
    """Return the bounds of values, given those of the inputs."""
    bounds = dict(input_bounds)
    producers = graph.producers()
    for name, array in graph.weights.items():
        if array.dtype == np.float32:
            bounds[name] = float(np.abs(array).max(initial=0))
    for node in graph.nodes:
        if node.op_type == "Scan":
            body, _, inner = loop_of(graph.weights, node)
            results = zip(node.output, body.outputs, strict=True)
            bounds |= {name: inner[value.name] for name, value in results if value.name in inner}
        elif math.isfinite(bound := _bound_of_results(node, bounds, producers)):
            bounds |= dict.fromkeys(node.output, bound)
    return bounds


def recurrent_bounds(
    graph: Graph, input_bounds: Mapping[str, float], successors: Mapping[str, str]
) -> ValueBounds:
    """Return the bounds of values where results become inputs of the next step.

    An input keeps its bound in `input_bounds` if its successor is within it in every step.
    """
    inputs = dict(input_bounds)
    while True:
        bounds = bounds_of(graph, inputs)
        in_next_step = {name: bounds.get(successors.get(name, name), math.inf) for name in inputs}
        exceeding = [name for name, bound in in_next_step.items() if not bound <= inputs[name]]
        if not exceeding:
            return bounds
        for name in exceeding:
            del inputs[name]


def loop_of(weights: dict[str, Array], node: NodeProto) -> tuple[Graph, list[str], ValueBounds]:
    """Return the body of a loop, the names of its states, which start as zeros, and its bounds."""
    body = Graph.of(bodies(node)[0], weights)
    *states, _ = (value.name for value in body.inputs)  # the last is read step by step
    successors = dict(zip(states, (value.name for value in body.outputs), strict=False))
    return body, states, recurrent_bounds(body, dict.fromkeys(states, 1.0), successors)


def _bound_of_results(
    node: NodeProto, bounds: ValueBounds, producers: Mapping[str, NodeProto]
) -> float:
    """Return the bound of an operator's results; infinite or nan if there is none."""
    kind = node.op_type
    inputs = list(node.input)
    if kind in _WITHIN_ONE:
        return 1.0
    if kind == "ConstantOfShape":
        value = attribute(node, "value")
        return 0.0 if value is None else float(np.abs(numpy_helper.to_array(value)).max())
    if kind in MOVING:
        inputs = inputs[:1]
    elif kind == "Where" or (kind == "MatMul" and _is_attention(inputs[0], producers)):
        inputs = inputs[1:]
    elif kind == "Add":
        inputs = _interpolated(inputs, producers)
    elif kind not in ("Concat", "Max", "Mul"):
        return math.inf
    read = [bounds.get(name, math.inf) for name in inputs]
    return math.prod(read) if kind == "Mul" else max(read, default=math.inf)


def _is_attention(name: str, producers: Mapping[str, NodeProto]) -> bool:
    """Return whether a value is attention weights, the sum of which is at most 1."""
    node = producers.get(name, _NO_OPERATOR)
    if node.op_type in ("Identity", "Unsqueeze"):
        return _is_attention(node.input[0], producers)
    return node.op_type == "Softmax"


def _interpolated(inputs: list[str], producers: Mapping[str, NodeProto]) -> list[str]:
    """Return the values a and b if the sum is `(1 - z) a + z b` for a logistic z."""
    products = [producers.get(name, _NO_OPERATOR) for name in inputs]
    if any(node.op_type != "Mul" for node in products):
        return []
    (complement, a), (gate, b) = (node.input for node in products)
    difference = producers.get(complement, _NO_OPERATOR)
    source = producers.get(gate, _NO_OPERATOR)
    if source.op_type == "Split":
        source = producers.get(source.input[0], _NO_OPERATOR)
    is_gate = source.op_type == "Sigmoid" and difference.op_type == "Sub"
    return [a, b] if is_gate and difference.input[1] == gate else []
