"""Devices, their memory, and the precision of their float32 products."""

import ctypes
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from seq2seq.runtime.errors import UserError

_TOLERANCE = 1e-5  # largest relative error of a float32 product
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # options of mallopt(3)
_GIB = 1 << 30
_MMAP_THRESHOLDS = _GIB, 32 << 20  # glibc before 2022 accepts at most the second
_MUCH_SLOWER = 1.5  # ratio of bfloat16 to float32 time from which to warn
_OUT_OF_MEMORY = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc"
    "|STATUS_ALLOC_FAILED"  # cuBLAS and cuDNN
)
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC = (":4096:8", ":16:8")  # with others, cuBLAS may reduce in a varying order


def choose_device(name: str) -> torch.device:
    """Return the device called `auto` (CUDA if available), `cpu`, `cuda` or `cuda:N`.

    On a CPU, enables oneDNN's float32 kernels (torch's "medium" precision, about twice as fast on
    some processors) if they measure as exact as float32: on processors with AMX the same setting
    rounds to bfloat16, on CUDA to TF32. Raises UserError if there is no such device.
    """
    device = _named(name)
    if device.type == "cpu":
        _keep_memory()
    exact = device.type == "cpu" and _medium_is_exact()
    torch.set_float32_matmul_precision("medium" if exact else "highest")
    return device


def product_is_exact(product: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check a product of two float32 matrices against float64, within a relative 1e-5."""
    left, right = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(1))
    exact = left.double() @ right.double()
    error = (product(left, right) - exact).abs().max() / exact.abs().max()
    return bool(error < _TOLERANCE)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if a Python, CPU or CUDA allocation failed; torch has no type for all of them."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))


def bf16_note(device: torch.device, precision: str) -> str | None:
    """Return a warning if bfloat16 is slow on this CPU; many multiply it in a plain loop."""
    if precision != "bf16" or device.type != "cpu":
        return None
    left, right = torch.ones(2, 256, 256)
    short = left.bfloat16(), right.bfloat16()
    ratio = shortest_time(lambda: short[0] @ short[1]) / shortest_time(lambda: left @ right)
    if ratio < _MUCH_SLOWER:
        return None
    return (
        f"training.precision: products in bf16 take {ratio:.1f} times as long as in float32 on "
        "this processor; set float32"
    )


def shortest_time(work: Callable[[], object]) -> float:
    """Return the shortest of five times of a call, in seconds, on one thread.

    With several threads it would measure how long they wait for a free core.
    """
    seconds, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(5):
            began = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return min(seconds)


@contextmanager
def deterministic(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Make results on CUDA bitwise reproducible, if wanted; on a CPU they always are.

    Raises UserError if CUDA has already started, as cuBLAS reads its setting only then.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    if os.environ.get(_WORKSPACE) not in _DETERMINISTIC:
        if torch.cuda.is_initialized():
            raise UserError(
                "training.deterministic: CUDA is already in use in this process. "
                f"Restart it with {_WORKSPACE}={_DETERMINISTIC[0]} in its environment."
            )
        os.environ[_WORKSPACE] = _DETERMINISTIC[0]
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    before = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    memory.fill_uninitialized_memory = False  # such memory is never read: filling only costs time
    try:
        yield
    finally:
        algorithms, cudnn.deterministic, cudnn.benchmark = before
        torch.use_deterministic_algorithms(algorithms)
        memory.fill_uninitialized_memory = fills


@contextmanager
def memory_limit(device: torch.device, gigabytes: float | None) -> Iterator[None]:
    """Make allocations beyond a limit in GiB fail: of the CUDA device, or of this process.

    Raises UserError if the operating system has no such limit.
    """
    if gigabytes is None:
        yield
        return
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        number = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * _GIB / total), number)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, number)
        return
    if sys.platform != "linux":
        raise UserError("training.memory_gb: needs Linux or CUDA; remove the key")
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted, most = int(gigabytes * _GIB), before[1]
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def total_memory(device: torch.device) -> int | None:
    """Return the memory of a GPU, or of the machine, in bytes; None if the system hides it."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def trim_memory() -> None:
    """Return freed memory to the operating system; blocks of other sizes would not reuse it."""
    _c_library("malloc_trim", 0)


def _named(name: str) -> torch.device:
    count = torch.cuda.device_count()
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    kind, _, number = name.partition(":")
    if name not in ("cpu", "cuda") and not re.fullmatch("cuda:(0|[1-9][0-9]*)", name):
        raise UserError(f"--device {name}: must be auto, cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= count:
        found = f"{count} CUDA device{'s' if count > 1 else ''}" if count else "no CUDA device"
        raise UserError(f"--device {name}: this machine has {found}; use --device cpu or auto")
    return torch.device(name)


def _keep_memory() -> None:
    """Make the process keep the memory that it frees, in huge pages where available.

    By default glibc returns every large block to the system and maps it again page by page, which
    takes a tenth of the training time. oneDNN and torch each cache a kernel for each of the last
    thousand product sizes, hundreds of megabytes that fragment the heap; batches need some tens.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # read at the first product
    os.environ.setdefault("LRU_CACHE_CAPACITY", "16")  # torch's; read at the first product
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's; read at the first large block
    # If no threshold is accepted, the other options would only stop glibc from adapting its own.
    if any(_c_library("mallopt", _MMAP_THRESHOLD, most) for most in _MMAP_THRESHOLDS):
        _c_library("mallopt", _TRIM_THRESHOLD, _GIB)
        _c_library("mallopt", _TOP_PAD, _GIB >> 4)


def _c_library(function: str, *arguments: int) -> int:
    """Call a function of glibc; return 0 with another C library."""
    known = getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
    return int(known(*arguments)) if known is not None else 0


def _medium_is_exact() -> bool:
    torch.set_float32_matmul_precision("medium")
    return product_is_exact(torch.matmul)
