"""ONNX graphs as lists of operators and weights that passes rewrite."""

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
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self._count = 0
        self._largest: dict[str, float] = {}  # of weights whose largest value is known

    @classmethod
    def of(cls, proto: onnx.GraphProto, outer: "Graph | None" = None) -> Self:
        """Return the graph of a protocol buffer; a loop's body shares the outer graph's weights."""
        arrays = {} if outer is None else outer.weights
        arrays |= {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.initializer}
        nodes = []
        for node in proto.node:
            if node.op_type == "Constant" and (tensor := attribute(node, "value")) is not None:
                arrays[node.output[0]] = numpy_helper.to_array(tensor)
            else:
                nodes.append(_copied(node))
        graph = cls(nodes, arrays, map(_copied, proto.input), map(_copied, proto.output))
        if outer is not None:
            graph._largest = outer._largest
        return graph

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

    def largest(self, name: str) -> float | None:
        """Return the largest absolute value of a weight, None unless it is a float32 one."""
        if name not in self._largest:
            array = self.weights[name]
            if array.dtype != np.float32:
                return None
            self._largest[name] = float(np.abs(array).max(initial=0))
        return self._largest[name]

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
        needed_nodes = []
        for node in reversed(self.nodes):
            if not read.isdisjoint(node.output):
                needed_nodes.append(node)
                read.update(name for inner in with_bodies([node]) for name in inner.input)
        self.nodes = needed_nodes[::-1]
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
    for proto in node.attribute:
        if proto.name == name:
            return helper.get_attribute_value(proto)
    return default


def bodies(node: NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs among the attributes of an operator: the body of a loop."""
    return [proto.g for proto in node.attribute if proto.HasField("g")]


def with_bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield operators, and those in the bodies of loops."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from with_bodies(body.node)
