"""Builder of ONNX graphs: operators by name, weights stored once, products in float32 or int8."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Self

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from seq2seq.runtime.errors import UserError

OPSET = 18  # ScatterElements with a maximum
CONTRIB = "com.microsoft"  # operators that every build of ONNX Runtime has beside ONNX's
IR_VERSION = 9
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Dims = Sequence[str | int]
_BELOW_ONE = frozenset({"Tanh", "Sigmoid", "Softmax"})
_MOVING = frozenset(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "ReverseSequence", "Split"))


def without_onnx_form(part: str) -> UserError:
    """Return the refusal of a part of a model that the graphs do not have."""
    return UserError(f"export: {part} has no ONNX form; use the run folder")


class Graph:
    """One ONNX graph under construction; values are their names.

    With `int8` the weights of linear layers are int8, with one scale per output. Their inputs are
    rounded to int8, too: with a fixed scale if they are within known bounds, which the graph infers
    from its operators, and with one scale per row otherwise. The result for a row therefore does
    not depend on the others.
    """

    def __init__(self, name: str, int8: bool = False) -> None:
        self.name, self.int8 = name, int8
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[object, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._results: set[str] = set()  # names that operators gave
        self._renamed: dict[str, str] = {}  # results by the names of the outputs that they are
        self._bounds: dict[str, float] = {}  # largest absolute value, where it is known
        self.rounded: list[str] = []  # values that fixed scales round, which loses NaN
        self._table_rows: dict[str, tuple[str, str]] = {}  # int8 rows of a table, and their scales
        self._count = 0
        self._kept: list[Tensor] = []  # their addresses are keys
        self._parent: Graph | None = None

    def child(self, name: str) -> Self:
        """Return the graph of a loop's body, which shares the weights of this one."""
        child = type(self)(name, self.int8)
        child._parent, child._initializers, child._kept = self, self._initializers, self._kept
        child._bounds = self._bounds
        return child

    def bound(self, value: str) -> float | None:
        """Return the largest absolute value that a value can have, if that is known."""
        return self._bounds.get(value)

    def set_bound(self, value: str, bound: float | None) -> None:
        """Declare that a value is within [-bound, bound], unless the bound is None or infinite."""
        if bound is not None and bound < math.inf:
            self._bounds[value] = bound

    def input(self, name: str, dims: Dims, dtype: int = FLOAT, bound: float | None = None) -> str:
        """Declare an input; strings among the dimensions are names of variable sizes.

        Its values are within [-bound, bound] if that is given.
        """
        self.set_bound(name, bound)
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(dims)))
        return name

    def output(self, value: str, name: str, dims: Dims, dtype: int = FLOAT) -> None:
        """Declare a value as the output `name`."""
        if value in self._results and value not in self._renamed:
            self._renamed[value] = name
        else:  # an input, a weight, or an output already
            self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(dims)))

    def ops(self, kind: str, *inputs: str, results: int, **attributes: Any) -> list[str]:
        """Add an operator with several results."""
        names = [self.fresh(kind) for _ in range(results)]
        self._results.update(names)
        self._nodes.append(helper.make_node(kind, inputs, names, **attributes))
        bound = self._inferred(kind, [self.bound(each) for each in inputs])
        for name in names:
            self.set_bound(name, bound)
        return names

    def _inferred(self, kind: str, known: Sequence[float | None]) -> float | None:
        """Return the largest absolute value of an operator's results, given that of its inputs."""
        if kind in _BELOW_ONE:
            return 1.0
        if kind in _MOVING:
            return known[0]
        read = known[1:] if kind == "Where" else known
        given = [each for each in read if each is not None]
        if kind not in ("Concat", "Where", "Mul") or len(given) < len(read):
            return None
        return math.prod(given) if kind == "Mul" else max(given)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; return its result."""
        (result,) = self.ops(kind, *inputs, results=1, **attributes)
        return result

    def constant(self, value: float | Sequence[int] | NDArray[Any]) -> str:
        """Return a constant: a float32 scalar, an int64 vector, or an array."""
        if isinstance(value, float):
            array = np.array(value, np.float32)
        else:
            array = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
        name = self._initializer((array.dtype.str, array.shape, array.tobytes()), array)
        if isinstance(value, float):
            self.set_bound(name, abs(value))
        return name

    def scalar(self, value: int) -> str:
        """Return an int64 scalar."""
        return self.constant(np.array(value, np.int64))

    def weight(self, tensor: Tensor) -> str:
        """Return a weight in float32; a tensor that is used twice, as tied ones are, is one."""
        self._kept.append(tensor)
        key = tensor.data_ptr(), tuple(tensor.shape)
        return self._initializer(key, _numpy(tensor))

    def linear(self, inputs: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """Return `W x + b` of inputs [N, D], for W [out, D]."""
        return self.linear_of_parts({inputs: weight}, bias)

    def linear_of_parts(self, parts: Mapping[str, Tensor], bias: Tensor | None = None) -> str:
        """Return `sum_p W_p x_p + b` of inputs [N, D_p], each with its weight [out, D_p].

        In int8, rows of a table are multiplied as they are stored, and the other inputs together.
        Inputs may have more dimensions there.
        """
        if not self.int8:
            operands = [self.concat(*parts), self.weight(_joined(parts.values()))]
            if bias is not None:
                operands.append(self.weight(bias))
            return self.op("Gemm", *operands, transB=1)
        terms = []
        others = {value: weight for value, weight in parts.items() if value not in self._table_rows}
        if others:
            terms.append(self._int8_linear(self.concat(*others), _joined(others.values()), bias))
        for value, weight in parts.items():
            if value in others:
                continue
            rows, scales = self._table_rows[value]
            product = self._int8_product(rows, self.constant(1.0), weight)
            terms.append(self.op("Mul", product, scales))
        if not others and bias is not None:
            terms.append(self.weight(bias))
        return self.sum(terms)

    def int8_products(self, inputs: str, weights: Sequence[Tensor]) -> list[str]:
        """Return `W_d x_d` [1, N, out] of inputs [directions, N, D] within known bounds, in int8.

        ONNX Runtime prepares weights once if they are matrices, but not if they are stacked.
        """
        rows, scale = self._rounded(inputs)
        parts = [rows] if len(weights) == 1 else self.split(rows, [1] * len(weights), axis=0)
        return [
            self._int8_product(part, scale, weight)
            for part, weight in zip(parts, weights, strict=True)
        ]

    def _zero(self) -> str:
        """Return the unsigned form of zero."""
        return self.constant(np.array(128, np.uint8))

    def _rounded(self, inputs: str) -> tuple[str, str]:
        """Return inputs within known bounds as unsigned integers, and their fixed scale."""
        self.rounded.append(inputs)
        scale = self.constant(self._bounds[inputs] / 127)
        return self.op("QuantizeLinear", inputs, scale, self._zero()), scale

    def _int8_linear(self, inputs: str, weight: Tensor, bias: Tensor | None) -> str:
        if self.bound(inputs):
            return self._int8_product(*self._rounded(inputs), weight, bias)
        largest = self.op("ReduceMax", self.op("Abs", inputs), self.constant([-1]), keepdims=1)
        row_scales = self.op("Div", largest, self.constant(127.0))  # [N, 1]
        row_scales = self.op("Max", row_scales, self.constant(1e-30))
        rounded = self.op("Round", self.op("Div", inputs, row_scales))
        shifted = self.op("Add", rounded, self.constant(128.0))
        rows = self.op("Cast", shifted, to=TensorProto.UINT8)
        product = self._int8_product(rows, self.constant(1.0), weight)
        result = self.op("Mul", product, self.op("Add", row_scales, self._nan_or_zero(rounded)))
        return result if bias is None else self.op("Add", result, self.weight(bias))

    def _nan_or_zero(self, values: str) -> str:
        """Return NaN for rows [N, D] that contain NaN, and 0 for others: [N, 1].

        ReduceMax ignores NaN unless the complete row is, and a cast makes it an integer.
        """
        total = self.op("ReduceSum", values, self.constant([-1]), keepdims=1)
        return self.op("Mul", total, self.constant(0.0))

    def _int8_product(
        self, rows: str, scale: str, weight: Tensor, bias: Tensor | None = None
    ) -> str:
        """Return `W x + b` of unsigned rows x = scale (r - zero), in one pass over the results."""
        quantized, scales = quantize(weight)
        of_columns = self.constant(scales[:, 0])
        given = [rows, self.constant(quantized.T), scale, of_columns, self._zero(), ""]
        if bias is not None:
            given.append(self.weight(bias))
        return self.op("MatMulIntegerToFloat", *given, domain=CONTRIB)

    def rows(self, table: Tensor, ids: str, factor: float = 1.0) -> str:
        """Return the rows `ids` [...] of a table [V, D] times a factor: [..., D]."""
        if not self.int8:
            found = self.op("Gather", self.weight(table), ids)
            return found if factor == 1 else self.op("Mul", found, self.constant(factor))
        quantized, scales = quantize(table)
        unsigned = (quantized.astype(np.int16) + 128).astype(np.uint8)
        found = self.op("Gather", self.constant(unsigned), ids)
        of_rows = self.op("Gather", self.constant(scales * np.float32(factor)), ids)
        signed = self.op("Sub", self.op("Cast", found, to=FLOAT), self.constant(128.0))
        values = self.op("Mul", signed, of_rows)
        self._table_rows[values] = found, of_rows
        return values

    def reshape(self, value: str, *dims: str | int) -> str:
        """Reshape a value; strings among the dimensions are vectors [1] that hold them."""
        fixed = [each for each in dims if isinstance(each, int)]
        if len(fixed) == len(dims):
            return self.op("Reshape", value, self.constant(fixed))
        parts = [self.constant([each]) if isinstance(each, int) else each for each in dims]
        return self.op("Reshape", value, self.op("Concat", *parts, axis=0))

    def size(self, value: str, axis: int) -> str:
        """Return the size of a value's axis (not the last, negative one) as a vector [1]."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def sum(self, values: Iterable[str]) -> str:
        """Add values in their order; a single one is returned."""
        return reduce(partial(self.op, "Add"), values)

    def concat(self, *values: str, axis: int = -1) -> str:
        """Concatenate values; a single one is returned."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Insert axes of size 1."""
        return self.op("Unsqueeze", value, self.constant(list(axes)))

    def split(self, value: str, sizes: Sequence[int], axis: int = -1) -> list[str]:
        """Split a value along an axis into parts of these sizes."""
        given = self.constant(list(sizes))
        return self.ops("Split", value, given, results=len(sizes), axis=axis)

    def graph(self) -> onnx.GraphProto:
        """Return the graph; the weights are those of the outermost one."""
        nodes = self._used()
        read = {name for node in nodes for name in _inputs_of(node)}
        for node in nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        given = [] if self._parent else self._initializers.values()
        weights = [each for each in given if each.name in read]
        return helper.make_graph(nodes, self.name, self._inputs, self._outputs, weights)

    def _used(self) -> list[onnx.NodeProto]:
        """Return the operators whose results are read, by others or as outputs."""
        outputs = {each.name for each in self._outputs}
        read = outputs | {value for value, name in self._renamed.items() if name in outputs}
        used = []
        for node in reversed(self._nodes):
            if read.isdisjoint(node.output):
                continue
            used.append(node)
            read.update(_inputs_of(node))
        return used[::-1]

    def model(self) -> onnx.ModelProto:
        """Return the finished graph as a model; raises onnx's error for an invalid one."""
        opsets = [helper.make_opsetid("", OPSET)]
        if self.int8:
            opsets.append(helper.make_opsetid(CONTRIB, 1))
        model = helper.make_model(self.graph(), opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model

    def _initializer(self, key: object, array: NDArray[Any]) -> str:
        if key not in self._initializers:
            name = self.fresh("weight")
            made = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            self._initializers[key] = made
        return self._initializers[key].name

    def fresh(self, kind: str) -> str:
        """Return a name that no other value has."""
        if self._parent is not None:
            return self._parent.fresh(kind)
        self._count += 1
        return f"{kind}_{self._count}"


def _inputs_of(node: onnx.NodeProto) -> set[str]:
    """Return the values that an operator reads, in the body of a loop, too."""
    bodies = [attribute.g.node for attribute in node.attribute]
    return {*node.input, *(name for body in bodies for inner in body for name in inner.input)}


def _joined(weights: Iterable[Tensor]) -> Tensor:
    """Return weights [out, D_p] as one [out, D]; a single one is returned."""
    parts = list(weights)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def quantize(weight: Tensor) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 weights [out, D] and the scale of each row [out, 1]."""
    array = _numpy(weight)
    scales = np.maximum(np.abs(array).max(axis=1, keepdims=True) / 127, np.float32(1e-30))
    return np.rint(array / scales).astype(np.int8), scales.astype(np.float32)


def _numpy(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().to("cpu", torch.float32).numpy()
    return array
