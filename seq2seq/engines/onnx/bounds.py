"""Bounds of the values of a graph, whatever the inputs: a tanh, for one, is within 1.

An operator's results are bounded by its kind, or by the bounds of its inputs. int8 takes the scale
of a value from its bound, so that the scale depends on no row.
"""

import math
from collections.abc import Collection, Mapping

import numpy as np
from onnx import NodeProto, numpy_helper

from seq2seq.engines.onnx.graph import Graph, attribute, bodies

ValueBounds = dict[str, float]  # largest absolute value, by name; without one: any size

_WITHIN_ONE = frozenset(("Tanh", "Sigmoid", "Softmax"))
MOVING = frozenset(  # operators whose first input has all entries of their results, or zeros
    [
        *("Cast", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "ReverseSequence", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    ]
)
_NO_OPERATOR = NodeProto()  # for values that none computes: weights and inputs
_MAX_ROUNDS = 32  # a model needs as many as it has layers


def bounds_of(graph: Graph, input_bounds: Mapping[str, float]) -> ValueBounds:
    """Return the bounds of values, given those of the inputs."""
    return _FixedBounds(graph).with_inputs(input_bounds)


def recurrent_bounds(
    graph: Graph, input_bounds: Mapping[str, float], successors: Mapping[str, str]
) -> ValueBounds:
    """Return the bounds of values where results become inputs of the next step.

    An input keeps its bound in `input_bounds` if its successor is within it in every step. A graph
    of a stranger may need a round for each of thousands of states: none has a bound then.
    """
    fixed = _FixedBounds(graph)
    inputs = dict(input_bounds)
    for _ in range(_MAX_ROUNDS):
        bounds = fixed.with_inputs(inputs)
        in_next_step = {name: bounds.get(successors.get(name, name), math.inf) for name in inputs}
        exceeding = [name for name, bound in in_next_step.items() if not bound <= inputs[name]]
        if not exceeding:
            return bounds
        for name in exceeding:
            del inputs[name]
    constant = {name: bound for name, bound in inputs.items() if name not in successors}
    return fixed.with_inputs(constant)


def loop_of(graph: Graph, node: NodeProto) -> tuple[Graph, list[str], ValueBounds]:
    """Return the body of a loop, the names of its states, which start as zeros, and its bounds."""
    body = Graph.of(bodies(node)[0], graph)
    *states, _ = (value.name for value in body.inputs)  # the last is read step by step
    successors = dict(zip(states, (value.name for value in body.outputs), strict=False))
    return body, states, recurrent_bounds(body, dict.fromkeys(states, 1.0), successors)


class _FixedBounds:
    """Bounds of a graph's values that its inputs do not change: those of weights and of loops."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._attention = _attention_weights(graph)
        self._bounds: ValueBounds = {}
        for node in graph.nodes:
            largest = {name: graph.largest(name) for name in node.input if name in graph.weights}
            self._bounds |= {name: bound for name, bound in largest.items() if bound is not None}
            if node.op_type == "Scan":
                body, _, inner = loop_of(graph, node)
                results = zip(node.output, body.outputs, strict=True)
                bounded = {
                    name: inner[value.name] for name, value in results if value.name in inner
                }
                self._bounds |= bounded

    def with_inputs(self, input_bounds: Mapping[str, float]) -> ValueBounds:
        """Return the bounds of all values, given those of the inputs."""
        bounds = {**input_bounds, **self._bounds}
        for node in self._graph.nodes:
            if node.op_type != "Scan":
                bound = _bound_of_results(node, bounds, self._producers, self._attention)
                if math.isfinite(bound):
                    bounds |= dict.fromkeys(node.output, bound)
        return bounds


def _attention_weights(graph: Graph) -> set[str]:
    """Return the values that are attention weights, the sum of which is at most 1."""
    names = set[str]()
    for node in graph.nodes:
        is_moved = node.op_type in ("Identity", "Unsqueeze") and node.input[0] in names
        if node.op_type == "Softmax" or is_moved:
            names.update(node.output)
    return names


def _bound_of_results(
    node: NodeProto,
    bounds: ValueBounds,
    producers: Mapping[str, NodeProto],
    attention: Collection[str],
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
    elif kind == "Where" or (kind == "MatMul" and inputs[0] in attention):
        inputs = inputs[1:]
    elif kind == "Add":
        inputs = _interpolated(inputs, producers)
    elif kind not in ("Concat", "Max", "Mul"):
        return math.inf
    read = [bounds.get(name, math.inf) for name in inputs]
    return math.prod(read) if kind == "Mul" else max(read, default=math.inf)


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
