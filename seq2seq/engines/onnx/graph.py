"""ONNX graphs as lists of operators and weights that passes rewrite."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

OPSET = 18  # ScatterElements with a maximum
CONTRIB = "com.microsoft"  # operators that every build of ONNX Runtime has beside ONNX's
PRODUCT = "MatMulIntegerToFloat"  # the one of them that graphs have
IR_VERSION = 9
FLOAT = TensorProto.FLOAT
INT = TensorProto.INT64
INT32 = TensorProto.INT32
UINT8 = TensorProto.UINT8
Array = NDArray[Any]
declare = helper.make_tensor_value_info
Types = dict[str, onnx.TypeProto.Tensor]
_Part = TypeVar("_Part", NodeProto, ValueInfoProto)
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
        self.nodes = list(nodes)
        self.weights = weights
        self.inputs, self.outputs = list(inputs), list(outputs)
        self._count = 0

    @classmethod
    def of(cls, proto: onnx.GraphProto, weights: dict[str, Array] | None = None) -> Self:
        """Return the graph of a protocol buffer; a loop's body shares the weights around it."""
        arrays = {} if weights is None else weights
        arrays |= {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.initializer}
        nodes = []
        for node in proto.node:
            if node.op_type == "Constant" and (tensor := attribute(node, "value")) is not None:
                arrays[node.output[0]] = numpy_helper.to_array(tensor)
            else:
                nodes.append(_copied(node))
        return cls(nodes, arrays, map(_copied, proto.input), map(_copied, proto.output))

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
        counts = Counter(name for node in with_bodies(self.nodes) for name in node.input)
        counts.update(value.name for value in self.outputs)
        return counts

    def replace(self, kind: str, rewritten: Callable[[NodeProto], list[NodeProto]]) -> None:
        """Replace each operator of a kind by others."""
        parts = [rewritten(node) if node.op_type == kind else [node] for node in self.nodes]
        self.nodes = [node for part in parts for node in part]

    def prune(self) -> None:
        """Remove operators, weights and inputs that no output depends on."""
        read = {value.name for value in self.outputs}
        used = []
        for node in reversed(self.nodes):
            if not read.isdisjoint(node.output):
                used.append(node)
                read.update(name for inner in with_bodies([node]) for name in inner.input)
        self.nodes = used[::-1]
        self.weights = {name: array for name, array in self.weights.items() if name in read}
        self.inputs = [value for value in self.inputs if value.name in read]


def _copied(part: _Part) -> _Part:
    """Return a copy: a part keeps the weights of the protocol buffer that it belongs to."""
    copy: _Part = type(part).FromString(part.SerializeToString())
    return copy


def types_of(graph: Graph) -> Types:
    """Return the type and shape of each value, as far as they can be inferred."""
    small = {name: array for name, array in graph.weights.items() if array.size <= _SMALL}
    proto = graph.proto(small)
    proto.input.extend(
        declare(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
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


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield operators, and those in the bodies of loops."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from with_bodies(body.node)


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
        after = {name: bounds.get(successors.get(name, name), math.inf) for name in inputs}
        unbounded = [name for name, bound in after.items() if not bound <= inputs[name]]
        if not unbounded:
            return bounds
        for name in unbounded:
            del inputs[name]


def loop_of(weights: dict[str, Array], node: NodeProto) -> tuple[Graph, list[str], Bounds]:
    """Return the body of a loop, the names of its states, which start as zeros, and its bounds."""
    body = Graph.of(bodies(node)[0], weights)
    *states, _ = (value.name for value in body.inputs)  # the last is read step by step
    successors = dict(zip(states, (value.name for value in body.outputs), strict=False))
    return body, states, recurrent_bounds(body, dict.fromkeys(states, 1.0), successors)


def _of_result(node: NodeProto, bounds: Bounds, producers: Mapping[str, NodeProto]) -> float:
    """Return the bound of an operator's results; infinite or nan if there is none."""
    kind = node.op_type
    inputs = list(node.input)
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
    difference = producers.get(complement, _NONE)
    source = producers.get(gate, _NONE)
    if source.op_type == "Split":
        source = producers.get(source.input[0], _NONE)
    is_gate = source.op_type == "Sigmoid" and difference.op_type == "Sub"
    return [a, b] if is_gate and difference.input[1] == gate else []
