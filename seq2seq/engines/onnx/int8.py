"""Quantize the products of traced graphs to int8.

Weights have one scale for each output. Inputs are rounded to int8, too: with a fixed scale if they
are within known bounds, and with one scale for each row otherwise, so that the result for a row
does not depend on the others. Rows of an embedding table are multiplied as they are stored.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto

from seq2seq.engines.onnx.graph import (
    CONTRIB,
    FLOAT,
    Array,
    Bounds,
    Graph,
    attribute,
    bounds_of,
    declare,
    loop_body,
    make,
    rank_of,
    recurrent_bounds,
    types_of,
)

UNDEFINED = "undefined"  # output [N]: NaN where a rounded value was NaN
ZERO = 128  # zero point of rounded inputs, which are unsigned


class TableRows(NamedTuple):
    """Rows of a table in int8, with the scale of each."""

    integers: str  # [..., E], unsigned
    scales: str  # [..., 1]
    width: int


def quantize_graphs(encoder: Graph, decoder: Graph) -> None:
    """Replace the products of both graphs by int8 ones, in place."""
    bounds = bounds_of(encoder, {})
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
    _Quantizer(decoder, recurrent_bounds(decoder, input_bounds, successors)).run_step()


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
        self.producers = graph.producers()
        self.nodes: list[NodeProto] = []
        self.rounded: list[str] = []  # values whose rounding loses NaN
        self.loops: list[str] = []  # results [S, B, H] of loops that round their states
        self.tables: dict[str, TableRows] = {}
        self.quantized: dict[tuple[str, bool, int, int], tuple[str, str]] = {}
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
            elif node.op_type == "Mul":
                self._scaled_table(node)
            self.nodes.append(node)
        self.graph.nodes = self.nodes

    def run_step(self) -> None:
        """Rewrite the graph of a step; it has the output UNDEFINED."""
        self.rewrite()
        if self.rounded:
            sums = [self._sum(name, [-1], flat=True) for name in dict.fromkeys(self.rounded)]
            self._op("Identity", self._total(sums), result=UNDEFINED)
            self.graph.outputs.append(declare(UNDEFINED, FLOAT, ["rows"]))
        self.graph.nodes = self.nodes
        self.graph.prune()

    def run_encoder(self) -> None:
        """Rewrite the graph of the encoder; the first state is NaN where a rounded value was."""
        types = types_of(self.graph)
        self.rewrite()
        ranks = {name: rank_of(types, name) or 2 for name in self.rounded}
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
        return node.input[1], node.op_type == "Gemm" and bool(attribute(node, "transB", 0))

    def _quantized(self, weight: tuple[str, bool], start: int, end: int) -> tuple[str, str]:
        """Return rows `start` to `end` of a matrix [D, out] in int8, with the scales [out]."""
        key = (*weight, start, end)
        if key not in self.quantized:
            array = self.graph.weights[weight[0]]
            by_output = array if weight[1] else array.T
            rows, scales = quantize_rows(by_output[:, start:end])
            names = self._constant(np.ascontiguousarray(rows.T)), self._constant(scales[:, 0])
            self.quantized[key] = names
        return self.quantized[key]

    def _product(self, node: NodeProto, weight: tuple[str, bool]) -> None:
        """Replace a product with a constant matrix."""
        array = self.graph.weights[weight[0]]
        depth = array.shape[1] if weight[1] else array.shape[0]
        bias = node.input[2] if len(node.input) > 2 else None
        terms, vector, start, end = self._of_tables(node.input[0], weight, depth)
        if vector is not None:
            terms.append(
                self._rounded_product(vector, weight, start, end, bias if not terms else None)
            )
            bias = bias if len(terms) > 1 else None
        if bias is not None:
            terms.append(bias)
        if len(terms) == 1:
            self._op("Identity", terms[0], result=node.output[0])
            return
        for name in terms[1:-1]:
            terms[0] = self._op("Add", terms[0], name)
        self._op("Add", terms[0], terms[-1], result=node.output[0])

    def _of_tables(
        self, source: str, weight: tuple[str, bool], depth: int
    ) -> tuple[list[str], str | None, int, int]:
        """Return products with rows of tables, and the other input with its rows of the matrix."""
        if source in self.tables:
            return [self._table_product(source, weight, 0, depth)], None, 0, 0
        node = self.producers.get(source)
        parts = list(node.input) if node is not None and node.op_type == "Concat" else []
        start, end, terms = 0, depth, []
        if len(parts) > 1 and parts[0] in self.tables:
            start = self.tables[parts[0]].width
            terms.append(self._table_product(parts.pop(0), weight, 0, start))
        elif len(parts) > 1 and parts[-1] in self.tables:
            end -= self.tables[parts[-1]].width
            terms.append(self._table_product(parts.pop(), weight, end, depth))
        if not terms:
            return terms, source, start, end
        vector = parts[0] if len(parts) == 1 else self._op("Concat", *parts, axis=-1)
        part_bounds = [self.bounds.get(name) for name in parts]
        if None not in part_bounds:
            self.bounds[vector] = max(bound for bound in part_bounds if bound is not None)
        return terms, vector, start, end

    def _table_product(self, source: str, weight: tuple[str, bool], start: int, end: int) -> str:
        rows = self.tables[source]
        factor = self._constant(np.float32(1))
        product = self._multiply(rows.integers, factor, self._quantized(weight, start, end), None)
        return self._op("Mul", product, rows.scales)

    def _multiply(
        self, rows: str, scale: str, weight: tuple[str, str], bias: str | None, result: str = ""
    ) -> str:
        """Return `W x + b` of unsigned rows x = scale (r - ZERO), in one pass over the results."""
        zero = self._constant(np.array(ZERO, np.uint8))
        inputs = [rows, weight[0], scale, weight[1], zero, *(["", bias] if bias else [])]
        return self._op("MatMulIntegerToFloat", *inputs, result=result, domain=CONTRIB)

    def _rounded_product(
        self, source: str, weight: tuple[str, bool], start: int, end: int, bias: str | None
    ) -> str:
        matrix, bound = self._quantized(weight, start, end), self.bounds.get(source)
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
        if not guarded:
            return product
        total = self._op("ReduceSum", source, self._constant(np.array([-1])), keepdims=1)
        lost = self._op("Mul", total, self._constant(np.float32(0)))
        return self._op("Add", product, lost)

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
        """Take rows of a table in int8 wherever they are multiplied; elsewhere as floats."""
        table = self.graph.weights.get(node.input[0])
        if (
            table is None
            or table.ndim != 2
            or attribute(node, "axis", 0)
            or table.dtype != np.float32
        ):
            return
        key = (node.input[0], True, -1, -1)
        if key not in self.quantized:
            integers, scales = quantize_rows(table)
            unsigned = integers.view(np.uint8) ^ 128
            self.quantized[key] = self._constant(unsigned), self._constant(scales)
        names = self.quantized[key]
        integers_, scales_ = (self._op("Gather", name, node.input[1]) for name in names)
        self.tables[node.output[0]] = TableRows(integers_, scales_, table.shape[1])
        floats = self._op("Cast", integers_, to=FLOAT)
        signed = self._op("Sub", floats, self._constant(np.float32(ZERO)))
        node.CopyFrom(make("Mul", [signed, scales_], node.output))

    def _scaled_table(self, node: NodeProto) -> None:
        """Follow rows of a table that are multiplied by a constant."""
        rows = self.tables.get(node.input[0])
        factor = self.graph.weights.get(node.input[1])
        if rows is not None and factor is not None and factor.ndim == 0:
            scales = self._op("Mul", rows.scales, node.input[1])
            self.tables[node.output[0]] = rows._replace(scales=scales)

    def _loop(self, node: NodeProto) -> None:
        """Rewrite the body of a loop."""
        body, successors = loop_body(self.graph.weights, node)
        body._count = self.graph._count
        bounds = recurrent_bounds(body, dict.fromkeys(successors, 1.0), successors)
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
