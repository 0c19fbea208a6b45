"""A simulated accelerator: tensors that report another device and hold their values on the CPU.

Inside `simulated()`, every operation on the device `lazy` runs on the CPU and fails as it would on
CUDA: tensors of two devices in one operation, and operators that only CPUs have. Copies to the host
are recorded, since each makes a GPU wait, and operations that launch kernels are counted. Unlike
torch's `FakeTensorMode`, tensors have values, so that a search runs as usual, and results
can be compared with those of the CPU. Autograd works, too, which for a fake CUDA device needs a
build of torch with CUDA.

torch has no autocast for this device; it is off.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from seq2seq.runtime import device as runtime_device

DEVICE = torch.device("lazy:0")
_PACKAGE = Path(__file__).resolve().parent.parent / "seq2seq"
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
        with torch.inference_mode(False):  # a view of a normal tensor is a normal one
            made = Tensor._make_wrapper_subclass(
                cls,
                inner.size(),
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device=DEVICE,
            )
        made.inner = inner
        return made

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
        found = _run(func, args, kwargs or {}, self.reads)
        on_device = any(isinstance(each, SimulatedTensor) for each in tree_leaves(found))
        if on_device and not _is_view(func) and "empty" not in func.__name__:
            self.launches[func.__name__.partition(".")[0]] += 1
        for each in () if self._float64 else tree_leaves(found):
            if isinstance(each, SimulatedTensor) and each.dtype == torch.float64:
                raise Float64(f"{func}: the device has no float64")
        return found


def _run(func: Any, args: Any, kwargs: dict[str, Any], reads: list[str] | None) -> Any:
    """Run one operation on the values of its arguments."""
    name = func.__name__.partition(".")[0]
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    simulated = [each for each in tensors if isinstance(each, SimulatedTensor)]
    target = None if (found := kwargs.get("device")) is None else torch.device(found)
    on_device = bool(simulated) if target is None else target.type == DEVICE.type
    if simulated:
        _check(func, name, [each for each in tensors if not isinstance(each, SimulatedTensor)])
        if reads is not None and (not on_device or _waits(name, args)):
            reads.append(_place())
    if target is not None and on_device:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner = tree_map_only(SimulatedTensor, lambda each: each.inner, (args, kwargs))
    found = func(*inner[0], **inner[1])
    if not on_device:
        return found
    written = _written(func, args, kwargs)
    if written:
        return written[0] if len(written) == 1 else tuple(written)
    return tree_map_only(Tensor, SimulatedTensor, found)


def _check(func: Any, name: str, others: list[Tensor]) -> None:
    """Refuse what CUDA would refuse: numbers may come from the CPU, other tensors may not."""
    if func.namespace != "aten" or any(word in name for word in _CPU_ONLY):
        raise CpuOnly(f"{func}: exists on CPUs only")
    if name not in _BETWEEN and any(each.dim() for each in others):
        raise DeviceMismatch(f"{func}: tensors of {DEVICE} and of the CPU")


def _waits(name: str, args: Any) -> bool:
    """Return whether an operation needs values, or the size of its result, on the host."""
    masks = tree_leaves(args[1:]) if name == "index" else []
    return name.startswith(_HOST_READS) or any(
        isinstance(each, Tensor) and each.dtype == torch.bool for each in masks
    )


def _is_view(func: Any) -> bool:
    """Return whether an operation returns memory of its argument without writing to it."""
    aliases = [each.alias_info for each in func._schema.returns]
    return any(each is not None and not each.is_write for each in aliases)


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments that an operation changes in place and returns."""
    if not func._schema.returns:
        return []
    named = {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)}
    named |= kwargs
    return [
        named[each.name]
        for each in func._schema.arguments
        if each.alias_info is not None and each.alias_info.is_write and each.name in named
    ]


def _place() -> str:
    """Return the innermost line of the package that is running, as `file:line`."""
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if _PACKAGE in path.parents:
            return f"{path.relative_to(_PACKAGE)}:{frame.lineno}"
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
