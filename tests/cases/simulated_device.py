"""A simulated accelerator: tensors that report another device and hold their values on the CPU.

Inside `simulated()`, every operation on the device `lazy` runs on the CPU and fails as it would on
CUDA: tensors of two devices in one operation, and operators that only CPUs have. Copies to the host
are recorded, since each makes a GPU wait, and operations that launch kernels are counted. Unlike
torch's `FakeTensorMode`, tensors have values, so that a search runs as usual, and results
can be compared with those of the CPU. Autograd works, too, which for a fake CUDA device needs a
build of torch with CUDA.

torch has no autocast for this device; it is off.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.runtime import device as runtime_device

DEVICE = torch.device("lazy:0")
_PACKAGE = f"{Path(__file__).resolve().parents[2] / 'seq2seq'}{os.sep}"
_CPU_ONLY = ("mkldnn", "mkl", "onednn", "quantized", "_weight_int8pack_mm")
_HOST_READS = (  # `item` and `is_nonzero` as such in inference mode
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "nonzero",
    "masked_select",
    "unique",
    "bincount",
)
_BETWEEN = ("_to_copy", "copy_")  # copies between devices


class DeviceMismatch(RuntimeError):
    """Error of an operation on tensors of two devices."""


class CpuOnly(RuntimeError):
    """Error of an operation that exists on CPUs only."""


class Float64(TypeError):
    """Error of float64 on a device without it, such as Apple's GPUs."""


class SimulatedTensor(Tensor):
    """Tensor that reports DEVICE; its values are those of a CPU tensor."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "SimulatedTensor":
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        kind = {"dtype": inner.dtype, "device": DEVICE}
        # A view of a normal tensor is a normal one.
        no_simulation = (
            torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
        )
        with no_simulation:
            wrapper = Tensor._make_wrapper_subclass(cls, inner.size(), **layout, **kind)
        wrapper.inner = inner
        return wrapper

    def __repr__(self) -> str:
        return f"SimulatedTensor({self.inner})"

    def tolist(self) -> Any:
        """Return the values as numbers in lists: a copy to the host."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, None)


class Simulation(TorchDispatchMode):
    """Runs operations on the simulated device.

    `reads` are places that read values on the host; `launches` counts operations by name, except
    views and empty tensors. Kernels that CUDA launches within one operation count as one.
    """

    def __init__(self, float64: bool = True) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.launches: Counter[str] = Counter()
        self._float64 = float64

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _run(func, args, kwargs or {}, self.reads)
        schema = _schema(func)
        on_device = [tensor for tensor in _tensors([result]) if isinstance(tensor, SimulatedTensor)]
        if on_device and not schema.is_view and "empty" not in schema.name:
            self.launches[schema.name] += 1
        if not self._float64 and any(tensor.dtype == torch.float64 for tensor in on_device):
            raise Float64(f"{func}: the device has no float64")
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let torch call this class as it is: nothing here is compiled."""
        return False


def _run(func: Any, args: Any, kwargs: dict[str, Any], reads: list[str] | None) -> Any:
    """Run one operation on the values of its arguments."""
    schema = _schema(func)
    tensors = _tensors([*args, *kwargs.values()])
    simulated = [argument for argument in tensors if isinstance(argument, SimulatedTensor)]
    device = kwargs.get("device")
    target = None if device is None else torch.device(device)
    on_device = bool(simulated) if target is None else target.type == DEVICE.type
    if simulated:
        _check(
            func,
            schema,
            [argument for argument in tensors if not isinstance(argument, SimulatedTensor)],
        )
        if reads is not None and (not on_device or _waits(schema.name, args)):
            reads.append(_place())
    if target is not None and on_device:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner = [_values(argument) for argument in args]
    result = func(*inner, **{name: _values(argument) for name, argument in kwargs.items()})
    if not on_device:
        return result
    if written := _written(schema, args, kwargs):
        return written[0] if len(written) == 1 else tuple(written)
    return _on_device(result)


# Arguments and results are tensors, lists of them and other values; torch's trees take longer.


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among values and in lists of them."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _tensors(value)
    return tensors


def _values(argument: Any) -> Any:
    """Return an argument with CPU tensors in place of simulated ones."""
    if isinstance(argument, SimulatedTensor):
        return argument.inner
    return [*map(_values, argument)] if isinstance(argument, list | tuple) else argument


def _on_device(result: Any) -> Any:
    """Return a result with simulated tensors in place of CPU ones."""
    if isinstance(result, Tensor):
        return SimulatedTensor(result)
    return type(result)(map(_on_device, result)) if isinstance(result, list | tuple) else result


class _Schema(NamedTuple):
    """Facts of the schema of an operation: reading it takes longer than a small operation.

    A view returns memory of its argument without writing to it. `written` are position and name of
    the arguments that the operation changes in place and returns.
    """

    name: str
    on_cpu_only: bool
    is_view: bool
    written: tuple[tuple[int, str], ...]


@cache
def _schema(func: Any) -> _Schema:
    name = func.__name__.partition(".")[0]
    schema = func._schema
    aliases = [argument.alias_info for argument in schema.returns]
    written = (
        (position, argument.name)
        for position, argument in enumerate(schema.arguments if schema.returns else ())
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return _Schema(
        name,
        on_cpu_only=func.namespace != "aten" or any(word in name for word in _CPU_ONLY),
        is_view=any(argument is not None and not argument.is_write for argument in aliases),
        written=tuple(written),
    )


def _check(func: Any, schema: _Schema, host_tensors: list[Tensor]) -> None:
    """Refuse what CUDA would refuse: numbers may come from the CPU, other tensors may not."""
    if schema.on_cpu_only:
        raise CpuOnly(f"{func}: exists on CPUs only")
    if schema.name not in _BETWEEN and any(tensor.dim() for tensor in host_tensors):
        raise DeviceMismatch(f"{func}: tensors of {DEVICE} and of the CPU")


def _waits(name: str, args: Any) -> bool:
    """Return whether an operation needs values, or the size of its result, on the host."""
    masks = _tensors(args[1:]) if name == "index" else []
    return name.startswith(_HOST_READS) or any(
        index_mask.dtype == torch.bool for index_mask in masks
    )


def _written(schema: _Schema, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments that an operation changes in place and returns."""
    return [
        args[position] if position < len(args) else kwargs[name]
        for position, name in schema.written
        if position < len(args) or name in kwargs
    ]


def _place() -> str:
    """Return the innermost line of the package that is running, as `file:line`."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE):
            return f"{path.removeprefix(_PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside the package"


class _NoAutocast(nullcontext[None]):
    """Replacement for `torch.autocast`, which does not support the device."""

    def __init__(self, *_arguments: object, **_settings: object) -> None:
        super().__init__()


@contextmanager
def simulated(float64: bool = True) -> Iterator[Simulation]:
    """Run operations on DEVICE as described above; yield the record of host reads.

    Commands use this device, whatever device they name.
    """
    with (
        mock.patch.object(runtime_device, "_find", return_value=DEVICE),
        mock.patch.object(torch, "autocast", _NoAutocast),
        mock.patch.object(torch, "get_autocast_dtype", return_value=torch.float32),
        mock.patch.object(torch, "is_autocast_enabled", return_value=False),
        Simulation(float64) as simulation,
    ):
        lifts = torch._C._only_lift_cpu_tensors()
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        torch._C._set_only_lift_cpu_tensors(True)  # copies by `torch.tensor` are recorded
        torch.__future__.set_swap_module_params_on_conversion(True)  # tied weights remain tied
        try:
            yield simulation
        finally:
            torch._C._set_only_lift_cpu_tensors(lifts)
            torch.__future__.set_swap_module_params_on_conversion(swaps)
