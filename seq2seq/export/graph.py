"""Builder of ONNX graphs: operators by name, weights stored once, products in float32 or int8."""

from collections.abc import Sequence
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


def without_onnx_form(part: str) -> UserError:
    """Return the refusal of a part of a model that the graphs do not have."""
    return UserError(f"export: {part} has no ONNX form; use the run folder")


class Graph:
    """One ONNX graph under construction; values are their names.

    With `int8` the weights of linear layers are int8, with one scale per output. Their inputs are
    rounded to int8 with one scale per row, so the result for a row does not depend on the others.
    """

    def __init__(self, name: str, int8: bool = False) -> None:
        self.name, self.int8 = name, int8
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[object, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._results: set[str] = set()  # names that operators gave
        self._renamed: dict[str, str] = {}  # results by the names of the outputs that they are
        self._count = 0
        self._kept: list[Tensor] = []  # their addresses are keys
        self._parent: Graph | None = None

    def child(self, name: str) -> Self:
        """Return the graph of a loop's body, which shares the weights of this one."""
        child = type(self)(name, self.int8)
        child._parent, child._initializers, child._kept = self, self._initializers, self._kept
        return child

    def input(self, name: str, dims: Dims, dtype: int = FLOAT) -> str:
        """Declare an input; strings among the dimensions are names of variable sizes."""
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
        return names

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
        return self._initializer((array.dtype.str, array.shape, array.tobytes()), array)

    def scalar(self, value: int) -> str:
        """Return an int64 scalar."""
        return self.constant(np.array(value, np.int64))

    def weight(self, tensor: Tensor) -> str:
        """Return a weight in float32; a tensor that is used twice, as tied ones are, is one."""
        self._kept.append(tensor)
        key = tensor.data_ptr(), tuple(tensor.shape)
        return self._initializer(key, _numpy(tensor))

    def linear(
        self, inputs: str, weight: Tensor, bias: Tensor | None = None, bound: float | None = None
    ) -> str:
        """Return `W x + b` of inputs [N, D], for W [out, D].

        Inputs are within [-bound, bound] if that is given: in int8 their scale is then fixed.
        """
        if self.int8:
            return self._int8_linear(inputs, weight, bias, bound)
        operands = [inputs, self.weight(weight)]
        if bias is not None:
            operands.append(self.weight(bias))
        return self.op("Gemm", *operands, transB=1)

    def _int8_linear(
        self, inputs: str, weight: Tensor, bias: Tensor | None, bound: float | None
    ) -> str:
        zero = self.constant(np.array(128, np.uint8))
        if bound is not None:
            scale = self.constant(bound / 127)
            rows = self.op("QuantizeLinear", inputs, scale, zero)
            return self._int8_product(rows, scale, zero, weight, bias)
        largest = self.op("ReduceMax", self.op("Abs", inputs), self.constant([-1]), keepdims=1)
        row_scales = self.op("Div", largest, self.constant(127.0))  # [N, 1]
        row_scales = self.op("Max", row_scales, self.constant(1e-30))
        rounded = self.op("Round", self.op("Div", inputs, row_scales))
        shifted = self.op("Add", rounded, self.constant(128.0))
        rows = self.op("Cast", shifted, to=TensorProto.UINT8)
        product = self._int8_product(rows, self.constant(1.0), zero, weight)
        result = self.op("Mul", product, self.op("Add", row_scales, self._nan_or_zero(rounded)))
        return result if bias is None else self.op("Add", result, self.weight(bias))

    def _nan_or_zero(self, values: str) -> str:
        """Return NaN for rows [N, D] that contain NaN, and 0 for others: [N, 1].

        ReduceMax ignores NaN unless the complete row is, and a cast makes it an integer.
        """
        total = self.op("ReduceSum", values, self.constant([-1]), keepdims=1)
        return self.op("Mul", total, self.constant(0.0))

    def _int8_product(
        self, rows: str, scale: str, zero: str, weight: Tensor, bias: Tensor | None = None
    ) -> str:
        """Return `W x + b` of unsigned rows x = scale (r - zero), in one pass over the results."""
        quantized, scales = quantize(weight)
        given = [rows, self.constant(quantized.T), scale, self.constant(scales[:, 0]), zero, ""]
        if bias is not None:
            given.append(self.weight(bias))
        return self.op("MatMulIntegerToFloat", *given, domain=CONTRIB)

    def table(self, tensor: Tensor) -> str:
        """Return a weight that is read row by row or by float32 products: int8 times a scale."""
        if not self.int8:
            return self.weight(tensor)
        quantized, scales = quantize(tensor.flatten(0, -2))
        stored = self.op("Cast", self.constant(quantized.reshape(tensor.shape)), to=FLOAT)
        return self.op("Mul", stored, self.constant(scales.reshape(*tensor.shape[:-1], 1)))

    def rows(self, table: Tensor, ids: str, factor: float = 1.0) -> str:
        """Return the rows `ids` [...] of a table [V, D] times a factor: [..., D]."""
        if not self.int8:
            found = self.op("Gather", self.weight(table), ids)
            return found if factor == 1 else self.op("Mul", found, self.constant(factor))
        quantized, scales = quantize(table)
        found = self.op("Gather", self.constant(quantized), ids)
        of_rows = self.op("Gather", self.constant(scales * np.float32(factor)), ids)
        return self.op("Mul", self.op("Cast", found, to=FLOAT), of_rows)

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
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        weights = [] if self._parent else list(self._initializers.values())
        return helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, weights)

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


def quantize(weight: Tensor) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 weights [out, D] and the scale of each row [out, 1]."""
    array = _numpy(weight)
    scales = np.maximum(np.abs(array).max(axis=1, keepdims=True) / 127, np.float32(1e-30))
    return np.rint(array / scales).astype(np.int8), scales.astype(np.float32)


def _numpy(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().to("cpu", torch.float32).numpy()
    return array
