"""Quantize the products of traced graphs to int8.

Weights have one scale for each output. Inputs are rounded to int8, too: with a fixed scale if they
are within known bounds, and with one scale for each row otherwise, so that the result for a row
does not depend on the others. Embedding tables are stored in int8, with a scale for each row.
"""

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, TensorProto

from seq2seq.engines.onnx import graph as graphs
from seq2seq.engines.onnx.graph import Array, Bounds, Graph, make

UNDEFINED = "undefined"  # output [N]: NaN where a rounded value was NaN
ZERO = 128  # zero point of rounded inputs, which are unsigned


def quantize_graphs(encoder: Graph, decoder: Graph) -> None:
    """Replace the products of both graphs by int8 ones, in place."""
    bounds = graphs.bounds_of(encoder, {})
    names = {value.name for value in decoder.inputs}
    encoded = {value.name: bounds[value.name] for value in encoder.outputs if value.name in bounds}
    states = {f"{value.name}": f"next_{value.name}" for value in decoder.inputs}
    results = {value.name for value in decoder.outputs}
    successors = {name: after for name, after in states.items() if after in results}
    input_bounds = {
        name: max(bound, 1.0) if name in successors else bound
        for name, bound in encoded.items()
        if name in names
    }
    _Quantizer(encoder, bounds).run_encoder()
    _Quantizer(decoder, graphs.recurrent_bounds(decoder, input_bounds, successors)).run_step()


def quantize_rows(array: Array) -> tuple[Array, Array]:
    """Return int8 rows of weights [out, D] and the scale of each row [out, 1]."""
    largest = np.maximum(array.max(axis=1, keepdims=True), -array.min(axis=1, keepdims=True))
    scales = np.maximum(largest / np.float32(127), np.float32(1e-30))
    with np.errstate(invalid="ignore"):  # infinite weights keep an infinite scale
        rows = array * (1 / scales)
        return np.rint(rows, out=rows).astype(np.int8), scales


class _Quantizer:
    """Rewriting of one graph, or of the body of a loop."""

    def __init__(self, graph: Graph, bounds: Bounds, inner: bool = False) -> None:
        self.graph, self.bounds, self.inner = graph, bounds, inner
        self.nodes: list[NodeProto] = []
        self.rounded: list[str] = []  # values whose rounding loses NaN
        self.loops: list[str] = []  # results [S, B, H] of loops that round their states
        self.tables: dict[str, tuple[str, str]] = {}  # integers and scales by rows
        self.quantized: dict[tuple[str, bool], tuple[str, str]] = {}  # likewise, by columns
        self.inputs = {value.name for value in graph.inputs}

    def rewrite(self) -> None:
        for node in self.graph.nodes:
            if node.op_type == "Scan":
                self._loop(node)
            elif (weight := self._weight(node)) is not None:
                self._product(node, weight)
                continue
            elif node.op_type == "Gather":
                self._table(node)
            self.nodes.append(node)
        self.graph.nodes = self.nodes

    def run_step(self) -> None:
        """Rewrite the graph of a step; it has the output UNDEFINED."""
        self.rewrite()
        if self.rounded:
            sums = [self._sum(name, [-1], flat=True) for name in dict.fromkeys(self.rounded)]
            self._op("Identity", self._total(sums), result=UNDEFINED)
            self.graph.outputs.append(graphs.declare(UNDEFINED, graphs.FLOAT, ["rows"]))
        self.graph.nodes = self.nodes
        self.graph.prune()

    def run_encoder(self) -> None:
        """Rewrite the graph of the encoder; the first state is NaN where a rounded value was."""
        types = graphs.types_of(self.graph)
        self.rewrite()
        ranks = {name: graphs.rank_of(types, name) or 2 for name in self.rounded}
        sums = [self._sum(name, list(range(1, rank))) for name, rank in ranks.items()]
        sums += [self._sum(name, [0, 2]) for name in self.loops]
        if sums:
            total = self._op("Mul", self._total(sums), self._constant(np.float32(0)))
            column = self._op("Unsqueeze", total, self._constant(np.array([1, 2])))
            self._replace_output("hidden", column)
        self.graph.nodes = self.nodes
        self.graph.prune()

    def _replace_output(self, name: str, column: str) -> None:
        """Add a column to an output."""
        before = self.graph.fresh("hidden")
        for node in self.nodes:
            node.input[:] = [before if value == name else value for value in node.input]
            node.output[:] = [before if value == name else value for value in node.output]
        self._op("Add", before, column, result=name)

    def _sum(self, name: str, axes: Sequence[int], flat: bool = False) -> str:
        total = self._op("ReduceSum", name, self._constant(np.array(axes)), keepdims=0)
        return self._op("Reshape", total, self._constant(np.array([-1]))) if flat else total

    def _total(self, names: Sequence[str]) -> str:
        total = names[0]
        for name in names[1:]:
            total = self._op("Add", total, name)
        return total

    def _op(self, kind: str, *inputs: str, result: str = "", **attributes: object) -> str:
        result = result or self.graph.fresh(f"int8.{kind}")
        self.nodes.append(make(kind, inputs, [result], **attributes))
        return result

    def _constant(self, array: Array | np.generic) -> str:
        return self.graph.weight(np.asarray(array), "int8")

    def _weight(self, node: NodeProto) -> tuple[str, bool] | None:
        """Return the matrix [D, out] of a product, and whether it is stored transposed."""
        if node.op_type not in ("MatMul", "Gemm") or node.input[0] in self.graph.weights:
            return None
        array = self.graph.weights.get(node.input[1])
        if array is None or array.ndim != 2 or min(array.shape) == 1:
            return None
        return node.input[1], node.op_type == "Gemm" and bool(graphs.attribute(node, "transB", 0))

    def _quantized(self, weight: str, is_transposed: bool) -> tuple[str, str]:
        """Return a matrix [D, out] in int8, with the scales [out]."""
        key = weight, is_transposed
        if key not in self.quantized:
            array = self.graph.weights[weight]
            rows, scales = quantize_rows(array if is_transposed else array.T)
            names = self._constant(np.ascontiguousarray(rows.T)), self._constant(scales[:, 0])
            self.quantized[key] = names
        return self.quantized[key]

    def _product(self, node: NodeProto, weight: tuple[str, bool]) -> None:
        """Replace a product with a constant matrix."""
        source, bias = node.input[0], node.input[2] if len(node.input) > 2 else None
        matrix, bound = self._quantized(*weight), self.bounds.get(source)
        guarded = self.inner and source not in self.inputs
        if not guarded:
            self.rounded.append(source)
        if bound:
            scale = self._constant(np.float32(bound / 127))
            zero = self._constant(np.array(ZERO, np.uint8))
            rows = self._op("QuantizeLinear", source, scale, zero)
            product = self._multiply(rows, scale, matrix, bias)
        else:
            product = self._by_rows(source, matrix, bias)
        if guarded:
            total = self._op("ReduceSum", source, self._constant(np.array([-1])), keepdims=1)
            lost = self._op("Mul", total, self._constant(np.float32(0)))
            product = self._op("Add", product, lost)
        self._op("Identity", product, result=node.output[0])

    def _multiply(self, rows: str, scale: str, weight: tuple[str, str], bias: str | None) -> str:
        """Return `W x + b` of unsigned rows x = scale (r - ZERO), in one pass over the results."""
        zero = self._constant(np.array(ZERO, np.uint8))
        inputs = [rows, weight[0], scale, weight[1], zero, *(["", bias] if bias else [])]
        return self._op("MatMulIntegerToFloat", *inputs, domain=graphs.CONTRIB)

    def _by_rows(self, source: str, matrix: tuple[str, str], bias: str | None) -> str:
        """Return the product of an input that is rounded with a scale for each row."""
        last = self._constant(np.array([-1]))
        largest = self._op("ReduceMax", self._op("Abs", source), last, keepdims=1)
        scales = self._op("Mul", largest, self._constant(np.float32(1 / 127)))
        scales = self._op("Max", scales, self._constant(np.float32(1e-30)))
        rounded = self._op("Round", self._op("Div", source, scales))
        shifted = self._op("Add", rounded, self._constant(np.float32(ZERO)))
        rows = self._op("Cast", shifted, to=TensorProto.UINT8)
        product = self._multiply(rows, self._constant(np.float32(1)), matrix, None)
        product = self._op("Mul", product, scales)
        return product if bias is None else self._op("Add", product, bias)

    def _table(self, node: NodeProto) -> None:
        """Store a table in int8; the rows that are taken of it are floats."""
        table = self.graph.weights.get(node.input[0])
        if (
            table is None
            or table.ndim != 2
            or graphs.attribute(node, "axis", 0)
            or table.dtype != np.float32
        ):
            return
        if node.input[0] not in self.tables:
            parts = quantize_rows(table)
            self.tables[node.input[0]] = self._constant(parts[0]), self._constant(parts[1])
        integers, scales = (
            self._op("Gather", name, node.input[1]) for name in self.tables[node.input[0]]
        )
        node.CopyFrom(
            make("Mul", [self._op("Cast", integers, to=graphs.FLOAT), scales], node.output)
        )

    def _loop(self, node: NodeProto) -> None:
        """Rewrite the body of a loop."""
        body, successors = graphs.loop_body(self.graph.weights, node)
        body._count = self.graph._count
        bounds = graphs.recurrent_bounds(body, dict.fromkeys(successors, 1.0), successors)
        inner = _Quantizer(body, bounds, inner=True)
        inner.rewrite()
        body.nodes = inner.nodes
        self.graph._count = body._count
        (place,) = (place for place, item in enumerate(node.attribute) if item.HasField("g"))
        node.attribute[place].g.CopyFrom(body.proto({}))
        count = len(successors)
        names = [value.name for value in body.inputs[:count]]
        self.loops += [
            node.output[count + place] for place, name in enumerate(names) if name in inner.rounded
        ]
