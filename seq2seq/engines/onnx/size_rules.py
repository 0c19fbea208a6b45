"""Rules by which the sizes of an operator's results follow from those of its inputs.

RULES has one for each operator of a model. It holds for all sizes of a graph's inputs; where the
results would depend on anything else, SizeError is raised. A rule without a docstring follows the
definition of the operator by ONNX.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from onnx import NodeProto, TensorProto, numpy_helper

from seq2seq.engines.onnx.graph import attribute
from seq2seq.engines.onnx.size import (
    MAX_ROWS,
    ONE,
    UNKNOWN,
    Dims,
    InputSizes,
    Size,
    SizeError,
    product,
)

_MAX_CONTENT = 64  # entries of a value that sizes are computed from
_ALL = (1 << 31) - 1  # from this end on, a slice of an axis has all entries to the last
_LARGEST = InputSizes(MAX_ROWS, MAX_ROWS, 1 << 20)  # of all inputs
_MAX_ENTRY = 1 << 62


class Value(NamedTuple):
    """Dimensions of a value, its entries if they are few and known, and its type.

    Entries are known of 64-bit integers alone: other types would round, or overflow.
    """

    dims: Dims
    content: Dims | None = None
    kind: int = TensorProto.UNDEFINED

    @property
    def size(self) -> Size:
        """Return the number of entries."""
        return product(self.dims)

    def known(self) -> Dims:
        """Return the entries; raises SizeError if they are unknown."""
        if self.content is None:
            raise SizeError(UNKNOWN)
        return self.content

    def numbers(self) -> list[int]:
        """Return entries that do not depend on the inputs; raises SizeError for others."""
        numbers = [entry.number for entry in self.known()]
        if None in numbers:
            raise SizeError(UNKNOWN)
        return [number for number in numbers if number is not None]


def _with_usable_content(value: Value) -> Value:
    """Return a value without its entries if it has two axes or more: no size is read from it."""
    return value if len(value.dims) < 2 else Value(value.dims)


def tensor_value(tensor: TensorProto) -> Value:
    """Return the size of a weight, whose bytes have been compared with it, and small contents."""
    dims = tuple(map(Size, tensor.dims))
    kind = tensor.data_type
    count = math.prod(tensor.dims)
    if count > _MAX_CONTENT or len(dims) > 1 or kind != TensorProto.INT64:
        return Value(dims, kind=kind)
    array = numpy_helper.to_array(tensor).reshape(-1)
    return Value(dims, tuple(Size(int(entry)) for entry in array), kind)


Rule = Callable[[NodeProto, Sequence[Value]], list[Value]]


def broadcast(*shapes: Dims) -> Dims:
    """Return the dimensions of an operator by entries; raises SizeError if they do not fit."""
    rank = max(map(len, shapes), default=0)
    padded = [(ONE,) * (rank - len(dims)) + dims for dims in shapes]
    return tuple(map(_broadcast_size, zip(*padded, strict=True)))


def _broadcast_size(sizes: Sequence[Size]) -> Size:
    """Return the size of an axis by those of several values: all are equal, or 1."""
    wide = [size for size in sizes if size != ONE]
    if not all(size.same(wide[0]) for size in wide):
        raise SizeError("has values whose sizes do not fit together")
    bounds = [size for size in wide if not size.is_exact]  # one of no entries has none joined
    return next(iter([*bounds, *wide]), ONE)


def _axis(number: int, rank: int) -> int:
    """Return an axis from 0 on, for one that may count from the last; raises SizeError."""
    if not -rank <= number < max(rank, 1):
        raise SizeError("has an axis that its value lacks")
    return number % rank if rank else 0


def _axes(node: NodeProto, inputs: Sequence[Value], rank: int) -> list[int] | None:
    """Return the axes of an operator, by its second input or attribute, or None."""
    numbers = inputs[1].numbers() if len(inputs) > 1 else attribute(node, "axes")
    return None if numbers is None else sorted({_axis(number, rank) for number in numbers})


def _by_entry(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = broadcast(*(value.dims for value in inputs))
    return [Value(dims, _computed(node.op_type, [value.content for value in inputs]))]


def _computed(kind: str, contents: Sequence[Dims | None]) -> Dims | None:
    """Return the entries of a sum, product or quotient, if they are known for all sizes."""
    operation = {"Add": Size.plus, "Mul": Size.times, "Div": Size.over}.get(kind)
    if operation is None or len(contents) != 2 or None in contents:
        return None
    first, second = (content or () for content in contents)  # neither is None
    length = max(len(first), len(second))
    if min(len(first), len(second)) == 1:
        first *= length // len(first)
        second *= length // len(second)
    if len(first) != len(second):
        return None
    try:
        entries = tuple(operation(*pair) for pair in zip(first, second, strict=True))
    except SizeError:
        return None
    return entries if all(map(_is_computed, entries)) else None


def _is_computed(entry: Size) -> bool:
    """Return whether 64 bits hold an entry for inputs of all sizes."""
    grows = entry.factor > 0 or not any(entry.powers)
    return entry.is_exact and grows and abs(entry.at(_LARGEST)) <= _MAX_ENTRY


def _like_first(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    first = inputs[0] if node.op_type == "Identity" else Value(inputs[0].dims)
    return [first] + [Value(first.dims) for _ in node.output[1:]]


def _cast(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    if attribute(node, "to") == TensorProto.STRING:
        raise SizeError("has texts")
    return [inputs[0]]


def _reshape(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    source = inputs[0]
    dims = list(inputs[1].known())
    if not attribute(node, "allowzero", 0):  # a size of 0 is that of the source
        dims = [source.dims[n] if size == Size(0) else size for n, size in enumerate(dims)]
    inferred_axes = [axis for axis, size in enumerate(dims) if size.number == -1]
    if inferred_axes:
        inferred = inferred_axes[0]
        dims[inferred] = source.size.over(product(dims[:inferred] + dims[inferred + 1 :]))
    if any(size.factor < 0 for size in dims) or not product(dims).same(source.size):
        raise SizeError("has a value of another number of entries than its shape")
    return [_with_usable_content(Value(tuple(dims), source.content))]


def _flatten(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims
    axis = attribute(node, "axis", 1)
    axis = axis + len(dims) if axis < 0 else axis
    return [Value((product(dims[:axis]), product(dims[axis:])))]


def _squeeze(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    source = inputs[0]
    axes = _axes(node, inputs, len(source.dims))
    if axes is None or any(source.dims[axis] != ONE for axis in axes):
        raise SizeError("squeezes an axis that may have several entries")
    dims = tuple(dim for axis, dim in enumerate(source.dims) if axis not in axes)
    return [_with_usable_content(Value(dims, source.content))]


def _unsqueeze(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    source = inputs[0]
    numbers = inputs[1].numbers()
    rank = len(source.dims) + len(numbers)
    axes = {_axis(number, rank) for number in numbers}
    if len(axes) != len(numbers):
        raise SizeError("has an axis twice")
    source_dims = iter(source.dims)
    dims = tuple(ONE if axis in axes else next(source_dims) for axis in range(rank))
    return [_with_usable_content(Value(dims, source.content))]


def _transpose(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims
    order = attribute(node, "perm") or list(range(len(dims)))[::-1]
    if sorted(order) != list(range(len(dims))):
        raise SizeError("has an order of axes that its value lacks")
    return [Value(tuple(dims[axis] for axis in order))]


def _slice(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    source = inputs[0]
    starts = inputs[1].numbers()
    ends = inputs[2].known()
    rank = len(source.dims)
    axes = inputs[3].numbers() if len(inputs) > 3 else list(range(len(starts)))
    steps = inputs[4].numbers() if len(inputs) > 4 else [1] * len(starts)
    dims = list(source.dims)
    content = source.content
    for start, end, number, step in zip(starts, ends, axes, steps, strict=True):
        axis = _axis(number, rank)
        dims[axis] = _sliced(source.dims[axis], start, end, step)
        if content is not None and end.number is not None and step > 0:
            content = content[slice(start, end.number, step)]
        else:
            content = None
    return [Value(tuple(dims), content)]


def _sliced(size: Size, start: int, end: Size, step: int) -> Size:
    """Return the number of entries of a slice of an axis, or a bound of it.

    It is exact for numbers alone, and from the first entry on for all of an axis, for its first
    entry and for all but its last.
    """
    end_number = end.number
    if size.number is not None and end_number is not None and step > 0:
        return Size(len(range(*slice(start, end_number, step).indices(size.number))))
    if start != 0 or step != 1:
        return size.bound()
    if end_number is None:
        if end.same(size):
            return size
        counts_from_last = end.offset < 0  # for some inputs, at least
        return size.bound() if counts_from_last else end.bound()
    is_at_least_1 = size.offset >= 0  # as the sizes of inputs are
    if end_number == 1 and size.number is None and is_at_least_1:
        return ONE if size.is_exact else ONE.bound()
    if end_number == -1 and is_at_least_1:
        return size.plus(Size(-1))
    return size if end_number >= _ALL else size.bound()


def _split(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims
    count = len(node.output)
    axis = _axis(attribute(node, "axis", 0), len(dims))
    if len(inputs) > 1:
        parts = list(map(Size, inputs[1].numbers()))
        total = dims[axis].number
        if total is None or sum(part.factor for part in parts) != total or len(parts) != count:
            raise SizeError("has parts of other sizes than their sum")
    else:
        parts = [dims[axis].over(Size(count))] * count
    return [Value((*dims[:axis], part, *dims[axis + 1 :])) for part in parts]


def _concat(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    rank = len(inputs[0].dims)
    axis = _axis(attribute(node, "axis", 0), rank)
    total = Size(0)
    for value in inputs:
        total = total.plus(value.dims[axis])
    without_axis = [(*value.dims[:axis], ONE, *value.dims[axis + 1 :]) for value in inputs]
    if any(len(dims) != rank for dims in without_axis):
        raise SizeError("joins values of other ranks")
    dims = list(broadcast(*without_axis))
    dims[axis] = total
    contents = [value.content for value in inputs]
    content: Dims | None = None
    if None not in contents and sum(map(len, filter(None, contents))) <= _MAX_CONTENT:
        content = tuple(chain.from_iterable(filter(None, contents)))
    return [_with_usable_content(Value(tuple(dims), content))]


def _gather(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    source, indices = inputs
    axis = _axis(attribute(node, "axis", 0), len(source.dims))
    dims = (*source.dims[:axis], *indices.dims, *source.dims[axis + 1 :])
    content = None
    if source.content is not None and indices.content is not None:
        content = tuple(source.content[place] for place in indices.numbers())
    return [_with_usable_content(Value(dims, content))]


def _gather_elements(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    return [Value(inputs[1].dims)]


def _gather_nd(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    source = inputs[0].dims
    indices = inputs[1].dims
    depth = indices[-1].number
    batched = attribute(node, "batch_dims", 0)
    if depth is None or not 0 < depth <= len(source) - batched:
        raise SizeError(UNKNOWN)
    return [Value((*indices[:-1], *source[batched + depth :]))]


def _expand(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    return [Value(broadcast(inputs[0].dims, _lengths(inputs[1])))]


def _lengths(value: Value) -> Dims:
    """Return entries as dimensions of a result."""
    if any(size.factor < 0 for size in value.known()):
        raise SizeError("has a value of a negative size")
    return value.known()


def _tile(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    pairs = zip(inputs[0].dims, _lengths(inputs[1]), strict=True)
    return [Value(tuple(dim.times(count) for dim, count in pairs))]


def _pad(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    if attribute(node, "mode", b"constant") != b"constant":  # others read entries that may lack
        raise SizeError("has a Pad of another mode than models have")
    dims = list(inputs[0].dims)
    pads = inputs[1].numbers()
    axes = inputs[3].numbers() if len(inputs) > 3 else list(range(len(dims)))
    if len(pads) != 2 * len(axes) or min(pads, default=0) < 0:
        raise SizeError(UNKNOWN)
    for place, number in enumerate(axes):
        axis = _axis(number, len(dims))
        dims[axis] = dims[axis].plus(Size(pads[place] + pads[place + len(axes)]))
    return [Value(tuple(dims))]


def _constant_of_shape(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = _lengths(inputs[0])
    tensor = attribute(node, "value")
    entry = Value((), (Size(0),)) if tensor is None else tensor_value(tensor)
    count = product(dims).number
    content = None
    if entry.content is not None and count is not None and count <= _MAX_CONTENT:
        content = entry.content * count
    return [_with_usable_content(Value(dims, content))]


def _range(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    start, end, step = (value.known()[0] for value in inputs)
    if start != Size(0) or step != ONE or end.factor < 0:
        raise SizeError("has a Range other than from 0 by 1")
    return [Value((end,))]


def _shape(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims[attribute(node, "start", 0) : attribute(node, "end")]
    is_known = all(dim.is_exact for dim in dims)
    return [Value((Size(len(dims)),), dims if is_known else None)]


def _size(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    count = inputs[0].size
    return [Value((), (count,) if count.is_exact else None)]


def _reduce(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims
    axes = _axes(node, inputs, len(dims))
    if not axes:
        axes = [] if attribute(node, "noop_with_empty_axes", 0) else list(range(len(dims)))
    return [Value(_reduced(dims, axes, bool(attribute(node, "keepdims", 1))))]


def _reduced(dims: Dims, axes: Sequence[int], keep: bool) -> Dims:
    """Return the dimensions after a reduction over axes, which are 1 or, unless kept, absent."""
    if keep:
        return tuple(ONE if axis in axes else dim for axis, dim in enumerate(dims))
    return tuple(dim for axis, dim in enumerate(dims) if axis not in axes)


def _arg(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims
    axes = [_axis(attribute(node, "axis", 0), len(dims))]
    return [Value(_reduced(dims, axes, bool(attribute(node, "keepdims", 1))))]


def _layer_norm(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = inputs[0].dims
    first = _axis(attribute(node, "axis", -1), len(dims))
    statistics = _reduced(dims, range(first, len(dims)), keep=True)
    return [Value(dims), *(Value(statistics) for _ in node.output[1:])]


def _topk(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    dims = list(inputs[0].dims)
    (count,) = inputs[1].numbers()
    axis = _axis(attribute(node, "axis", -1), len(dims))
    dims[axis] = Size(count)
    return [Value(tuple(dims)) for _ in node.output]


def _matmul(_node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    first, second = (value.dims for value in inputs[:2])
    if not first or not second or not first[-1].same(second[max(-2, -len(second))]):
        raise SizeError("multiplies values whose sizes do not fit together")
    rows = first[-2:-1]
    columns = second[-1:] if len(second) > 1 else ()
    return [Value((*broadcast(first[:-2], second[:-2]), *rows, *columns))]


def _gemm(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    first, second = (value.dims for value in inputs[:2])
    if attribute(node, "transA", 0):
        first = first[::-1]
    if attribute(node, "transB", 0):
        second = second[::-1]
    if len(first) != 2 or len(second) != 2 or not first[1].same(second[0]):
        raise SizeError("multiplies values whose sizes do not fit together")
    return [Value((first[0], second[1]))]


def _einsum(node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
    sizes = sizes_of_letters(node, inputs)
    output = attribute(node, "equation").decode().replace(" ", "").partition("->")[2]
    return [Value(tuple(sizes[letter] for letter in output))]


def sizes_of_letters(node: NodeProto, inputs: Sequence[Value]) -> dict[str, Size]:
    """Return the size of each letter of an equation such as nsh,nh->ns."""
    terms, arrow, _ = attribute(node, "equation").decode().replace(" ", "").partition("->")
    sizes: dict[str, Size] = {}
    for letters, value in zip(terms.split(","), inputs, strict=True):
        for letter, dim in zip(letters, value.dims, strict=True):
            sizes[letter] = _broadcast_size((sizes.get(letter, ONE), dim))
    if not arrow or not "".join(sizes).isalpha():
        raise SizeError("has an equation that no model has")
    return sizes


_BOOLEAN = "Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor Not IsNaN IsInf"
_FIXED_KINDS = {
    **dict.fromkeys(_BOOLEAN.split(), TensorProto.BOOL),
    **dict.fromkeys(("Shape", "Size", "ArgMax", "ArgMin"), TensorProto.INT64),
    "MatMulInteger": TensorProto.INT32,
    "MatMulIntegerToFloat": TensorProto.FLOAT,
}
_KIND_GIVEN_BY = {"Where": 1, "DequantizeLinear": 1, "QuantizeLinear": 2}  # another than the first
_FLOATING = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}


def kinds_of(node: NodeProto, inputs: Sequence[Value]) -> list[int]:
    """Return the types of an operator's results."""
    kind = node.op_type
    place = _KIND_GIVEN_BY.get(kind, 0)
    first = inputs[place].kind if place < len(inputs) else TensorProto.UINT8  # of QuantizeLinear
    if kind == "ConstantOfShape":
        tensor = attribute(node, "value")
        first = TensorProto.FLOAT if tensor is None else tensor.data_type
    elif kind == "Cast":
        first = attribute(node, "to")
    else:
        first = _FIXED_KINDS.get(kind, first)
    return [first, *(TensorProto.INT64 if kind == "TopK" else first for _ in node.output[1:])]


def check_division(node: NodeProto, inputs: Sequence[Value]) -> None:
    """Raise SizeError for integers over -1 or 0, by which a processor cannot divide all of them."""
    dividend, divisor = inputs
    if dividend.kind in _FLOATING:
        return
    for size in divisor.content or (Size(0),):
        smallest = size.at(InputSizes(1, 1, 1)) if size.number is None else abs(size.number)
        if smallest == 0 or size.number == -1:
            raise SizeError(f"has the operator {node.op_type} of integers over an unknown one")


_BY_ENTRY = (
    "Add Sub Mul Div Pow Mod Max Min Sum Mean Where Equal Greater GreaterOrEqual Less LessOrEqual "
    "And Or Xor PRelu"
)
_LIKE_FIRST = (
    "Identity Abs Neg Sign Not Exp Log Sqrt Reciprocal Tanh Sigmoid Softmax LogSoftmax Relu "
    "LeakyRelu Elu Selu Celu Softplus Softsign HardSigmoid HardSwish Mish Erf Sin Cos Atan Floor "
    "Ceil Round Clip IsNaN IsInf QuantizeLinear DequantizeLinear ScatterElements CumSum Trilu "
    "LpNormalization"
)
_REDUCE = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_BY_ENTRY.split(), _by_entry),
    **dict.fromkeys(_LIKE_FIRST.split(), _like_first),
    **dict.fromkeys((f"Reduce{kind}" for kind in _REDUCE.split()), _reduce),
    **dict.fromkeys(("MatMul", "MatMulInteger", "MatMulIntegerToFloat"), _matmul),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    "Cast": _cast,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "LayerNormalization": _layer_norm,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
    "TopK": _topk,
}
