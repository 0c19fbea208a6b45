"""Quantize the products of traced graphs to int8.

Weights have one scale for each output. Inputs are rounded to int8, too: with a fixed scale if they
are within known bounds, and with one scale for each row otherwise, so that the result for a row
does not depend on the others. Embedding tables are stored in int8, with a scale for each row.
"""

from collections.abc import Collection

import numpy as np
import onnx
from onnx import NodeProto

from seq2seq.engines.onnx.bounds import MOVING, ValueBounds, bounds_of, loop_of, recurrent_bounds
from seq2seq.engines.onnx.graph import (
    CONTRIB,
    FLOAT,
    PRODUCT,
    UINT8,
    Array,
    Graph,
    attribute,
    bodies,
    declare,
    make,
    with_bodies,
)

UNDEFINED = "undefined"  # output [N]: NaN where a rounded value was NaN
ZERO = 128  # zero point of unsigned integers
_NO_WEIGHT = np.empty(0)


def quantize_graphs(encoder: Graph, decoder: Graph) -> None:
    """Replace the products of both graphs by int8 ones, in place."""
    bounds = bounds_of(encoder, {})
    encoded = [value.name for value in encoder.outputs if value.name in bounds]
    successors = {value.name.removeprefix("next_"): value.name for value in decoder.outputs}
    input_bounds = {
        name: max(bounds[name], 1.0) if name in successors else bounds[name] for name in encoded
    }
    Quantizer(encoder, bounds).rewrite(_of_weights(encoder))
    bounds = recurrent_bounds(decoder, input_bounds, successors)
    Quantizer(decoder, bounds, is_step=True).rewrite()


def _of_weights(graph: Graph) -> set[str]:
    """Return the values that are scaled weights, such as embeddings: finite, unlike others."""
    finite = set(graph.weights)
    for node in graph.nodes:
        read = node.input if node.op_type == "Mul" else node.input[:1]
        if node.op_type in ("Mul", *MOVING) and finite.issuperset(read):
            finite.update(node.output)
    return finite


def products_of(graph: Graph) -> list[NodeProto]:
    """Return the products with constant matrices [D, out]."""
    return [
        node
        for node in graph.nodes
        if node.op_type in ("MatMul", "Gemm")
        and node.input[0] not in graph.weights
        and (array := graph.weights.get(node.input[1], _NO_WEIGHT)).ndim == 2
        and min(array.shape) > 1
    ]


def quantize_rows(array: Array) -> tuple[Array, Array]:
    """Return int8 rows of weights [out, D] and the scale of each row [out, 1]."""
    largest = np.maximum(array.max(axis=1, keepdims=True), -array.min(axis=1, keepdims=True))
    scales = np.maximum(largest / np.float32(127), np.float32(1e-30))
    with np.errstate(invalid="ignore"):  # infinite weights keep an infinite scale
        rows = array * (1 / scales)
        return np.rint(rows, out=rows).astype(np.int8), scales


def with_unsigned_weights(content: bytes) -> bytes:
    """Return a graph whose products are of two unsigned matrices, with the same results.

    Processors of x86-64 without VNNI add pairs of products of an unsigned and a signed integer in
    16 bits, which loses the largest sums; those of unsigned ones have room.
    """
    graph = Graph.of(onnx.load_from_string(content).graph)
    zero = graph.weight(np.array(ZERO, np.uint8), "unsigned")
    for node in with_bodies(graph.nodes):
        weight = graph.weights.get(node.input[1]) if node.op_type == PRODUCT else None
        if weight is not None and weight.dtype == np.int8 and not any(node.input[5:6]):
            name = f"{node.input[1]}.unsigned"
            graph.weights[name] = weight.view(np.uint8) ^ np.uint8(ZERO)
            inputs = [node.input[0], name, *node.input[2:5], zero, *node.input[6:]]
            node.input[:] = inputs
    graph.prune()
    return graph.content()


def is_transposed(node: NodeProto) -> bool:
    """Return whether the matrix of a product is stored as [out, D]."""
    return bool(attribute(node, "transB", 0))


class Quantizer:
    """Rewriting of one graph, or of the body of a loop.

    Rounding loses NaN, which is added to the results again. A step has the output UNDEFINED
    instead, which takes less time.
    """

    def __init__(self, graph: Graph, bounds: ValueBounds, is_step: bool = False) -> None:
        self.graph = graph
        self.bounds = bounds
        self.is_step = is_step
        self.rounded: list[str] = []
        self.nodes: list[NodeProto] = []
        self.tables: dict[str, tuple[str, str]] = {}  # integers and scales by rows
        self.quantized: dict[tuple[str, bool], tuple[str, str]] = {}  # likewise, by columns

    def rewrite(self, defined: Collection[str] = ()) -> None:
        """Replace the products; NaN need not be added to those of `defined` values."""
        products = {node.output[0] for node in products_of(self.graph)}
        for node in self.graph.nodes:
            if not products.isdisjoint(node.output):
                self._product(node, node.input[0] not in defined)
                continue
            if node.op_type == "Scan":
                self._loop(node)
            elif node.op_type == "Gather":
                self._table(node)
            self.nodes.append(node)
        if self.is_step and self.rounded:
            last = self.constant(np.array([-1]))
            sums = [
                self.op("ReduceSum", name, last, keepdims=0) for name in dict.fromkeys(self.rounded)
            ]
            self.op("Sum", *(self.op("Reshape", name, last) for name in sums), result=UNDEFINED)
            self.graph.outputs.append(declare(UNDEFINED, FLOAT, ["rows"]))
        self.graph.nodes = self.nodes
        self.graph.prune()

    def op(self, kind: str, *inputs: str, result: str = "", **attributes: object) -> str:
        result = result or self.graph.fresh(f"int8.{kind}")
        self.nodes.append(make(kind, inputs, [result], **attributes))
        return result

    def constant(self, array: Array | np.generic) -> str:
        return self.graph.weight(np.asarray(array), "int8")

    def _quantized(self, weight: str, is_transposed: bool) -> tuple[str, str]:
        """Return a matrix [D, out] in int8, with the scales [out]."""
        key = weight, is_transposed
        if key not in self.quantized:
            array = self.graph.weights[weight]
            rows, scales = quantize_rows(array if is_transposed else array.T)
            names = self.constant(np.ascontiguousarray(rows.T)), self.constant(scales[:, 0])
            self.quantized[key] = names
        return self.quantized[key]

    def _product(self, node: NodeProto, guarded: bool) -> None:
        """Replace a product with a constant matrix."""
        source = node.input[0]
        bias = node.input[2] if len(node.input) > 2 else None
        matrix = self._quantized(node.input[1], is_transposed(node))
        bound = self.bounds.get(source)
        if bound:
            product = self.bounded(source, bound, matrix, bias)
        else:
            product = self._by_rows(source, matrix, bias)
        self.rounded.append(source)
        if guarded and not self.is_step:
            total = self.op("ReduceSum", source, self.constant(np.array([-1])), keepdims=1)
            lost = self.op("Mul", total, self.constant(np.float32(0)))
            product = self.op("Add", product, lost)
        self.op("Identity", product, result=node.output[0])

    def bounded(self, source: str, bound: float, weight: tuple[str, str], bias: str | None) -> str:
        """Return the product of an input that is rounded with a fixed scale."""
        scale = self.constant(np.float32(bound / 127))
        zero = self.constant(np.array(ZERO, np.uint8))
        rows = self.op("QuantizeLinear", source, scale, zero)
        return self._multiply(rows, scale, weight, bias)

    def _multiply(self, rows: str, scale: str, weight: tuple[str, str], bias: str | None) -> str:
        """Return `W x + b` of unsigned rows x = scale (r - ZERO), in one pass over the results."""
        zero = self.constant(np.array(ZERO, np.uint8))
        inputs = [rows, weight[0], scale, weight[1], zero, *(["", bias] if bias else [])]
        return self.op(PRODUCT, *inputs, domain=CONTRIB)

    def _by_rows(self, source: str, matrix: tuple[str, str], bias: str | None) -> str:
        """Return the product of an input that is rounded with a scale for each row."""
        last = self.constant(np.array([-1]))
        largest = self.op("ReduceMax", self.op("Abs", source), last, keepdims=1)
        scales = self.op("Mul", largest, self.constant(np.float32(1 / 127)))
        scales = self.op("Max", scales, self.constant(np.float32(1e-30)))
        rounded = self.op("Round", self.op("Div", source, scales))
        shifted = self.op("Add", rounded, self.constant(np.float32(ZERO)))
        rows = self.op("Cast", shifted, to=UINT8)
        product = self._multiply(rows, self.constant(np.float32(1)), matrix, None)
        product = self.op("Mul", product, scales)
        return product if bias is None else self.op("Add", product, bias)

    def _table(self, node: NodeProto) -> None:
        """Store a table in int8; the rows that are taken of it are floats."""
        table = self.graph.weights.get(node.input[0], _NO_WEIGHT)
        if table.ndim != 2 or table.dtype != np.float32 or attribute(node, "axis", 0):
            return
        if node.input[0] not in self.tables:
            parts = quantize_rows(table)
            self.tables[node.input[0]] = self.constant(parts[0]), self.constant(parts[1])
        integers, scales = (
            self.op("Gather", name, node.input[1]) for name in self.tables[node.input[0]]
        )
        node.CopyFrom(make("Mul", [self.op("Cast", integers, to=FLOAT), scales], node.output))

    def _loop(self, node: NodeProto) -> None:
        """Rewrite the body of a loop."""
        body, states, bounds = loop_of(self.graph, node)
        body._count = self.graph._count
        Quantizer(body, bounds).rewrite(states)
        self.graph._count = body._count
        bodies(node)[0].CopyFrom(body.proto({}))
