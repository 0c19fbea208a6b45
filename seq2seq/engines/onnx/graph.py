"""ONNX graphs as lists of operators and weights that passes rewrite."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

OPSET = 18  # ScatterElements with a maximum
CONTRIB = "com.microsoft"  # operators that every build of ONNX Runtime has beside ONNX's
PRODUCT = "MatMulIntegerToFloat"  # the one of them that graphs have
IR_VERSION = 9
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
INT32, UINT8 = TensorProto.INT32, TensorProto.UINT8
Array = NDArray[Any]
declare = helper.make_tensor_value_info
Types = dict[str, onnx.TypeProto.Tensor]
_SMALL = 16  # elements of weights that sizes may depend on


class Graph:
    """One ONNX graph: operators in order, weights by name, declared inputs and outputs."""

    def __init__(
        self,
        nodes: Iterable[NodeProto],
        weights: dict[str, Array],
        inputs: Iterable[ValueInfoProto],
        outputs: Iterable[ValueInfoProto],
    ) -> None:
        self.nodes, self.weights = list(nodes), weights
        self.inputs, self.outputs = list(inputs), list(outputs)
        self._count = 0

    @classmethod
    def of(cls, proto: onnx.GraphProto, weights: dict[str, Array] | None = None) -> Self:
        """Return the graph of a protocol buffer; a loop's body shares the weights around it."""
        arrays = {} if weights is None else weights
        arrays |= {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.initializer}
        return cls(proto.node, arrays, proto.input, proto.output)

    def proto(self, weights: Mapping[str, Array]) -> onnx.GraphProto:
        """Return the graph as a protocol buffer with these weights."""
        tensors = [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            for name, array in weights.items()
        ]
        return helper.make_graph(self.nodes, "graph", self.inputs, self.outputs, tensors)

    def content(self) -> bytes:
        """Return the graph as an ONNX file."""
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(
            self.proto(self.weights), opset_imports=opsets, ir_version=IR_VERSION
        )
        content: bytes = model.SerializeToString()
        return content

    def fresh(self, kind: str) -> str:
        """Return a name that no other value of the graph has."""
        self._count += 1
        return f"{kind}.{self._count}"

    def weight(self, array: Array, kind: str = "constant") -> str:
        """Add a constant; return its name."""
        name = self.fresh(kind)
        self.weights[name] = array
        return name

    def producers(self) -> dict[str, NodeProto]:
        """Return the operator of each result."""
        return {name: node for node in self.nodes for name in node.output}

    def uses(self) -> dict[str, int]:
        """Return how often each value is read, as an output or in the body of a loop, too."""
        counts: dict[str, int] = {}
        for name in (
            *(name for node in self.nodes for name in inputs_of(node)),
            *(value.name for value in self.outputs),
        ):
            counts[name] = counts.get(name, 0) + 1
        return counts

    def prune(self) -> None:
        """Remove operators, weights and inputs that no output depends on."""
        read = {value.name for value in self.outputs}
        used = []
        for node in reversed(self.nodes):
            if not read.isdisjoint(node.output):
                used.append(node)
                read.update(inputs_of(node))
        self.nodes = used[::-1]
        self.weights = {name: array for name, array in self.weights.items() if name in read}
        self.inputs = [value for value in self.inputs if value.name in read]


def types_of(graph: Graph) -> Types:
    """Return the type and shape of each value, as far as they can be inferred."""
    small = {name: array for name, array in graph.weights.items() if array.size <= _SMALL}
    proto = graph.proto(small)
    proto.input.extend(
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in graph.weights.items()
        if name not in small
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)])
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    return {value.name: value.type.tensor_type for value in values}


def rank_of(types: Types, name: str) -> int | None:
    """Return the number of dimensions of a value; None if it is unknown."""
    return len(types[name].shape.dim) if name in types and types[name].HasField("shape") else None


def make(kind: str, inputs: Iterable[str], outputs: Iterable[str], **attributes: Any) -> NodeProto:
    """Return an operator."""
    return helper.make_node(kind, list(inputs), list(outputs), **attributes)


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """Return the value of an operator's attribute."""
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def bodies(node: NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs among the attributes of an operator: the body of a loop."""
    return [item.g for item in node.attribute if item.HasField("g")]


def inputs_of(node: NodeProto) -> list[str]:
    """Return the values that an operator reads, in the body of a loop, too."""
    inner = [
        name for body in bodies(node) for inner_node in body.node for name in inputs_of(inner_node)
    ]
    return [*node.input, *inner]


Bounds = dict[str, float]  # by value; others may be of any size

_ONE = frozenset(("Tanh", "Sigmoid", "Softmax"))
MOVING = frozenset(
    [
        *("Cast", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "ReverseSequence", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    ]
)
_NONE = NodeProto()


def bounds_of(graph: Graph, input_bounds: Mapping[str, float]) -> Bounds:
    """Return the bounds of values, given those of the inputs."""
    bounds, producers = dict(input_bounds), graph.producers()
    for name, array in graph.weights.items():
        if array.dtype == np.float32:
            bounds[name] = float(np.abs(array).max(initial=0))
    for node in graph.nodes:
        if node.op_type == "Scan":
            bounds |= _of_loop(graph.weights, node)
        elif math.isfinite(bound := _of_result(node, bounds, producers)):
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


def _of_result(node: NodeProto, bounds: Bounds, producers: Mapping[str, NodeProto]) -> float:
    """Return the bound of an operator's results; infinite or nan if there is none."""
    kind, inputs = node.op_type, list(node.input)
    if kind in _ONE:
        return 1.0
    if kind == "ConstantOfShape":
        value = attribute(node, "value")
        return 0.0 if value is None else float(np.abs(numpy_helper.to_array(value)).max())
    if kind in MOVING:
        inputs = inputs[:1]
    elif kind == "Where" or (kind == "MatMul" and _averages(inputs[0], producers)):
        inputs = inputs[1:]
    elif kind == "Add":
        inputs = _interpolated(inputs, producers)
    elif kind not in ("Concat", "Max", "Mul"):
        return math.inf
    read = [bounds.get(name, math.inf) for name in inputs]
    return math.prod(read) if kind == "Mul" else max(read, default=math.inf)


def _averages(name: str, producers: Mapping[str, NodeProto]) -> bool:
    """Return whether a value is attention weights, the sum of which is at most 1."""
    node = producers.get(name, _NONE)
    if node.op_type in ("Identity", "Unsqueeze"):
        return _averages(node.input[0], producers)
    return node.op_type == "Softmax"


def _interpolated(inputs: list[str], producers: Mapping[str, NodeProto]) -> list[str]:
    """Return the values a and b if the sum is `(1 - z) a + z b` for a logistic z."""
    products = [producers.get(name, _NONE) for name in inputs]
    if any(node.op_type != "Mul" for node in products):
        return []
    (complement, a), (gate, b) = (node.input for node in products)
    difference, source = producers.get(complement, _NONE), producers.get(gate, _NONE)
    if source.op_type == "Split":
        source = producers.get(source.input[0], _NONE)
    is_gate = source.op_type == "Sigmoid" and difference.op_type == "Sub"
    return [a, b] if is_gate and difference.input[1] == gate else []
