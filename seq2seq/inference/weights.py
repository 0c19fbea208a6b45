"""Inference-only weight formats that replace parameters: float32 by layout, and int8 for CPU."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.runtime.device import product_is_exact, shortest_time
from seq2seq.runtime.errors import UserError

COLUMN_BLOCK = 768  # inputs that MKL sums at once, a multiple of its own blocks of 384
PACKED_ROWS = 64  # input rows for which the layout is optimized; it serves any number
INT8_MAX = 127  # the largest entry of a row is quantized to it
MIN_ROWS, MIN_COLUMNS = 8, 32  # oneDNN multiplies smaller int8 inputs in a scalar loop
ZERO_POINT = 128  # represents zero in unsigned inputs
MAX_SLOWDOWN = 10  # oneDNN to torch._int_mm; hundreds without int8 instructions
MAX_INT8_TIME_RATIO = 1.5  # int8 to float32 products; tens for scalar loops

# Operators convert Python numbers to tensors each time, which takes longer than small operations.
_LARGEST = torch.tensor(float(INT8_MAX))
_SIGN_BIT = torch.tensor(ZERO_POINT, dtype=torch.uint8)

Multiply = Callable[[Tensor], Tensor]  # int8 inputs [N, in] -> scaled products [N, out]


class InferenceWeight(ABC):
    """Weight [out, in] in an inference-only format, which `F.linear` takes as it takes a tensor."""

    @abstractmethod
    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        """Return `inputs @ weight.T + bias`: [N, in] -> [N, out]."""

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor:
        """Dispatch `F.linear` to `product`; torch calls this for functions of such a weight."""
        del types
        assert function is F.linear, f"{cls.__name__} cannot be given to {function}"
        inputs: Tensor
        weight: InferenceWeight
        inputs, weight, bias = (*args, *(kwargs or {}).values(), None)[:3]
        if inputs.dim() == 2:
            return weight.product(inputs, bias)
        return weight.product(inputs.flatten(0, -2), bias).view(*inputs.shape[:-1], -1)


class PackedWeight(InferenceWeight):
    """Float32 weight in oneDNN's own layout, which oneDNN otherwise makes for every product."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_ROWS)

    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self.weight, bias, "none", [], ""
        )
        return product

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the plain weight: the layout belongs to this process and processor."""
        return _packed_if_exact, (self.weight.to_dense(),)


def _packed_if_exact(weight: Tensor) -> PackedWeight | Tensor:
    return PackedWeight(weight) if prepacking_is_exact() else weight


def prepacking_is_exact() -> bool:
    """Check that packed products are those of plain weights: oneDNN's, in float32.

    `choose_device` sets the precision "medium" where oneDNN computes plain float32 products too;
    elsewhere, as on processors with AMX, packed products would round differently.
    """
    return torch.get_float32_matmul_precision() == "medium" and _packs_exactly()


@cache
def _packs_exactly() -> bool:
    try:
        return product_is_exact(lambda left, right: PackedWeight(right.t()).product(left, None))
    except (AttributeError, NotImplementedError, RuntimeError):  # operators of other torch builds
        return False


class ColumnWeight(InferenceWeight):
    """Float32 weight stored by columns, in blocks of inputs whose products are summed in order.

    MKL rounds products with it alike for any number of rows but one, and with plain weights only
    for 16 rows or more. A product of a few rows takes half the time.
    """

    def __init__(self, weight: Tensor) -> None:
        blocks = weight.detach().split(COLUMN_BLOCK, dim=1)
        self.blocks = [block.t().contiguous() for block in blocks]

    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        parts, sums = [inputs], bias
        if len(self.blocks) > 1:
            parts = inputs.split(COLUMN_BLOCK, dim=1)
        for part, block in zip(parts, self.blocks, strict=True):
            sums = part @ block if sums is None else torch.addmm(sums, part, block)
        assert sums is not None, "a weight has at least one block"
        return sums


def by_columns(weight: Tensor) -> ColumnWeight | Tensor:
    """Store a weight by columns if its products stay bitwise the same, as they do in MKL."""
    is_exact = torch.backends.mkl.is_available() and _columns_are_exact(*weight.shape)
    return ColumnWeight(weight) if is_exact else weight


@cache
def _columns_are_exact(out_size: int, size: int) -> bool:
    """Compare products with weights of one shape; kernels are chosen by shape alone."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(out_size, size, generator=generator)
    for rows in (16, 64):
        inputs, bias = torch.randn(rows, size, generator=generator), weight[:, 0].contiguous()
        for terms in (None, bias):
            product = ColumnWeight(weight).product(inputs, terms)
            if not torch.equal(product, F.linear(inputs, weight, terms)):
                return False
    return True


class Int8Weight(InferenceWeight):
    """Weight [out, in] quantized to int8 with one scale per row.

    Inputs are quantized row by row at run time. Integer products are exact, so the result of a row
    does not depend on the number of rows.
    """

    def __init__(self, weight: Tensor) -> None:
        integers, scale = quantize(weight)
        self.multiply = int8_multiplier(integers, scale.squeeze(1))

    def __deepcopy__(self, _memo: object) -> "Int8Weight":
        return self  # it never changes

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Translator with int8=True cannot be pickled; load it in the other process instead: "
            "Translator.load(run, int8=True)"
        )

    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        integers, scale = quantize(inputs)
        sums = self.multiply(integers)
        return sums.mul_(scale) if bias is None else torch.addcmul(bias, sums, scale, out=sums)


def quantize(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows [N, M] as int8 [N, M], symmetric about zero, and the scale of each row [N, 1]."""
    largest = values.abs().amax(1, keepdim=True)
    scale = largest.clamp_(min=torch.finfo(values.dtype).tiny * INT8_MAX).div_(_LARGEST)
    return (values / scale).round_().to(torch.int8), scale


def int8_multiplier(integers: Tensor, scale: Tensor) -> Multiply:
    """Return a product with an int8 weight [out, in] of scale [out], by the faster kernel."""
    return (_onednn if _onednn_is_fast() else _int_mm)(integers, scale)


def _int_mm(integers: Tensor, scale: Tensor) -> Multiply:
    """Multiply by `torch._int_mm`."""
    missing = int(integers.shape[1] == 1)  # torch misreads a single column
    weight = F.pad(integers, (0, missing)).t()

    def multiply(inputs: Tensor) -> Tensor:
        products = torch._int_mm(F.pad(inputs, (0, 1)) if missing else inputs, weight)
        return products.to(scale.dtype).mul_(scale)

    return multiply


def _onednn(integers: Tensor, scale: Tensor) -> Multiply:
    """Multiply by oneDNN, with a prepacked weight that is scaled in the same kernel.

    Inputs are shifted by ZERO_POINT to unsigned, the only form that all processors with int8
    instructions multiply fast. Small matrices are padded.
    """
    columns = max(0, MIN_COLUMNS - integers.shape[1])
    weight = torch.ops.onednn.qlinear_prepack(F.pad(integers, (0, columns)), None)
    weight_terms = weight, scale, torch.zeros_like(scale, dtype=torch.int32), None

    def multiply(inputs: Tensor) -> Tensor:
        rows = inputs.shape[0]
        missing = max(0, MIN_ROWS - rows)
        if missing or columns:
            inputs = F.pad(inputs, (0, columns, 0, missing))
        unsigned = inputs.contiguous().view(torch.uint8) ^ _SIGN_BIT  # + 128
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, 1.0, ZERO_POINT, *weight_terms, 1.0, 0, scale.dtype, "none", [], ""
        )
        return products[:rows]

    return multiply


@cache
def _onednn_is_fast() -> bool:
    """Check that oneDNN's int8 product is available, exact, and not a scalar loop."""
    try:
        return _is_exact(_onednn) and _seconds(_onednn) < MAX_SLOWDOWN * _seconds(_int_mm)
    except (AttributeError, NotImplementedError, RuntimeError):  # operators of other torch builds
        return False


def _seconds(kernel: Callable[[Tensor, Tensor], Multiply]) -> float:
    multiply = kernel(torch.ones(256, 256, dtype=torch.int8), torch.ones(256))
    inputs = torch.ones(64, 256, dtype=torch.int8)
    return shortest_time(lambda: multiply(inputs))


def int8_is_exact() -> bool:
    """Check that this processor multiplies int8 without overflow; some accumulate in int16."""
    return _onednn_is_fast() or _is_exact(_int_mm)


def _is_exact(kernel: Callable[[Tensor, Tensor], Multiply]) -> bool:
    """Check products of several rows and of a single one, which may have a kernel of its own."""
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randint(-INT8_MAX, INT8_MAX + 1, (2, 64, 256), generator=generator)
    left[0], right[0] = INT8_MAX, INT8_MAX
    left[1], right[1] = INT8_MAX, -INT8_MAX
    scale = torch.linspace(1, 2, len(right))
    multiply, inputs = kernel(right.to(torch.int8), scale), left.to(torch.int8)
    exact = (left @ right.t()).to(scale.dtype) * scale
    return torch.equal(multiply(inputs), exact) and all(
        torch.equal(multiply(inputs[n : n + 1]), exact[n : n + 1]) for n in range(3)
    )


def check_int8(device: torch.device) -> None:
    """Raise UserError if int8 weights would be inexact or slower on this device."""
    if device.type != "cpu":
        raise UserError(f"--int8: runs on the CPU only, not on {device}; add --device cpu")
    if not int8_is_exact():
        raise UserError("--int8: int8 products overflow on this processor; remove the option")
    ratio = _int8_time_ratio()
    if ratio > MAX_INT8_TIME_RATIO:
        raise UserError(
            f"--int8: int8 products take {ratio:.1f} times as long as float32 products on this "
            "processor; remove the option"
        )


def _int8_time_ratio() -> float:
    """Time an int8 product of the sizes of search, relative to float32."""
    inputs, weight = torch.ones(64, 512), torch.ones(2048, 512)  # the most expensive product
    quantized = Int8Weight(weight)
    seconds = shortest_time(lambda: quantized.product(inputs, None))
    return seconds / shortest_time(lambda: inputs @ weight.t())
