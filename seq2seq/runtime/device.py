"""Devices: selection, memory, determinism and the precision of float32 products."""

import ctypes
import hashlib
import os
import re
import resource
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.runtime.errors import UserError

_TOLERANCE = 1e-5  # maximum relative error of a float32 product
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # options of mallopt(3)
_GIB = 1 << 30
_MMAP_THRESHOLDS = _GIB, 32 << 20  # glibc before 2022 accepts only the second
_CLOCK_RESOLUTION = 1e-6  # seconds; a coarser clock of CPU time cannot measure a product
DETERMINISTIC = "SEQ2SEQ_DETERMINISTIC"  # environment variable
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES = (":4096:8", ":16:8")  # with other values the reduction order of cuBLAS may vary


def choose_device(name: str) -> torch.device:
    """Return the device called `auto` (CUDA if available), `cpu`, `cuda`, `cuda:N` or `mps`.

    On a CPU, enable oneDNN's float32 kernels (torch's "medium" precision, up to twice as fast) if a
    test product shows that they do not round to bfloat16, as they do on processors with AMX. CUDA
    always computes in full float32, never TF32. Processes forked from now on use one thread, since
    OpenMP's others do not exist there. Raises UserError if there is no such device.
    """
    device = _find(name)
    check_fork(device.type == "cuda" and torch.cuda._is_in_bad_fork())
    _use_one_thread_after_fork()
    if device.type == "cpu":
        _keep_memory()
        torch.set_float32_matmul_precision("medium")
        if product_is_exact(torch.matmul):
            return device
    torch.backends.cudnn.allow_tf32 = False  # its LSTM does not obey the next setting
    torch.set_float32_matmul_precision("highest")
    return device


def check_fork(is_forked: bool) -> None:
    """Raise UserError in a process that was forked from one that uses a GPU: its driver fails."""
    if is_forked:
        text = "a GPU cannot be used in a process forked from one that uses it; start processes"
        raise UserError(f"{text} by multiprocessing.get_context('spawn'), or use the CPU")


_is_forked = False


@cache
def _use_one_thread_after_fork() -> None:
    """Set one thread in forked processes, which would wait for this one's threads for ever."""
    os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    global _is_forked
    _is_forked = True
    torch.set_num_threads(1)


def may_use_threads() -> bool:
    """Return whether this process may compute in several threads: not if it was forked."""
    return not _is_forked


def product_is_exact(product: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Check the product of two float32 matrices against float64: relative error below 1e-5."""
    left, right = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(1))
    exact = left.double() @ right.double()
    error = (product(left, right) - exact).abs().max() / exact.abs().max()
    return bool(error < _TOLERANCE)


def resolve_precision(name: str, device: torch.device) -> str:
    """Return the precision called `auto` on a device: bf16 if that is faster, else float32."""
    if name != "auto":
        return name
    if device.type == "cuda":
        with torch.cuda.device(device):  # that of the process may be another
            faster = bool(torch.cuda.is_bf16_supported(including_emulation=False))
    else:
        faster = device.type == "cpu" and _bf16_time() < 1
    return "bf16" if faster else "float32"


def emulates(precision: str, device: torch.device) -> bool:
    """Return whether products of a precision take longer than those of float32 on this CPU."""
    return device.type == "cpu" and precision == "bf16" and _bf16_time() > 1


@cache
def _bf16_time() -> float:
    """Return how many times as long as a float32 product one of bf16 takes on this CPU.

    It is measured once per process, so that all runs of a comparison have the same precision, and
    in CPU time, so that other work on the machine does not decide it.
    """
    left, right = torch.ones(2, 256, 256)
    short = left.bfloat16(), right.bfloat16()
    is_fine = time.get_clock_info("thread_time").resolution < _CLOCK_RESOLUTION
    clock = time.thread_time if is_fine else time.perf_counter
    bf16_seconds = shortest_time(lambda: short[0] @ short[1], clock)
    return bf16_seconds / shortest_time(lambda: left @ right, clock)


def shortest_time(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the shortest of five times of a call, in s, on one thread: it waits for no core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return min(timeit.repeat(work, timer=clock, repeat=5, number=1))
    finally:
        torch.set_num_threads(threads)


def derive_seed(*parts: int) -> int:
    """Return a seed that is a pure function of its parts, such as (seed, step, micro-batch)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")


@contextmanager
def tensor_cores_for_lstm(device: torch.device, precision: str) -> Iterator[None]:
    """Let cuDNN's LSTM compute on tensor cores in bf16, in forward and backward passes.

    Where TF32 is off, as after `choose_device`, torch also forbids them for bf16. No float32 LSTM
    may run meanwhile: it would round to TF32.
    """
    cudnn = torch.backends.cudnn
    allowed = torch.backends.cudnn.allow_tf32
    if device.type == "cuda" and precision != "float32":
        cudnn.allow_tf32 = True
    try:
        yield
    finally:
        cudnn.allow_tf32 = allowed


@contextmanager
def deterministic(device: torch.device, reproducible: bool | None = None) -> Iterator[None]:
    """Make CUDA results bitwise reproducible if asked for, by default by SEQ2SEQ_DETERMINISTIC=1.

    Raises UserError if CUDA is already initialized: cuBLAS reads its setting only at the start.
    """
    if reproducible is None:
        reproducible = os.environ.get(DETERMINISTIC, "") not in ("", "0")
    if device.type != "cuda" or not reproducible:
        yield
        return
    if os.environ.get(_WORKSPACE) not in _WORKSPACES:
        if torch.cuda.is_initialized():
            remedy = f"Restart it with {_WORKSPACE}={_WORKSPACES[0]} in its environment."
            raise UserError(f"{DETERMINISTIC}: CUDA is already in use in this process. {remedy}")
        os.environ[_WORKSPACE] = _WORKSPACES[0]
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    settings = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic = True
    cudnn.benchmark = False
    memory.fill_uninitialized_memory = False  # never read: filling it only costs time
    try:
        yield
    finally:
        algorithms, cudnn.deterministic, cudnn.benchmark = settings
        torch.use_deterministic_algorithms(algorithms)
        memory.fill_uninitialized_memory = fills


def total_memory(device: torch.device) -> int:
    """Return the memory of a GPU or of the machine, in bytes."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_memory(device: torch.device) -> int:
    """Return the peak memory reserved on a GPU, or of this process, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    status = Path("/proc/self/status")  # ru_maxrss would include that of the parent process
    if status.exists() and (peak := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        return 1024 * int(peak[1])
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maximum if sys.platform == "darwin" else 1024 * maximum


def synchronize(device: torch.device) -> None:
    """Wait for all work on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64; Apple's GPUs do not."""
    return device.type != "mps"


def values_of(*tensors: Tensor) -> list[Any]:
    """Return the values of tensors of one device as nested lists, waiting for a GPU once."""
    if tensors[0].device.type == "cpu" or not has_float64(tensors[0].device):
        return [tensor.tolist() for tensor in tensors]
    flat = [tensor.flatten().double() for tensor in tensors]  # exact: ids are small
    parts = torch.cat(flat).cpu().split([tensor.numel() for tensor in tensors])
    return [
        part.to(tensor.dtype).view(tensor.shape).tolist()
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def empty_cache(device: torch.device) -> None:
    """Return memory that torch or the C library keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
    else:
        trim_memory()


def trim_memory() -> None:
    """Return freed memory to the operating system, to avoid fragmentation of the heap."""
    _c_library("malloc_trim", 0)


def _find(name: str) -> torch.device:
    if name == "cpu":  # asks no driver: CUDA would not work in processes forked afterwards
        return torch.device(name)
    count = torch.cuda.device_count()
    missing_device = ""
    if name == "auto":
        return torch.device("cuda" if count else "cpu")
    valid = re.fullmatch("cpu|mps|cuda(?::(0|[1-9][0-9]*))?", name)
    if valid is None:
        raise UserError("must be auto, cpu, cuda, cuda:N or mps", argument="device", value=name)
    if name == "mps" and not torch.backends.mps.is_available():
        missing_device = "no GPU by Apple"
    if name.startswith("cuda") and int(valid[1] or 0) >= count:
        missing_device = f"{count or 'no'} CUDA device{'s' * (count > 1)}"
    if missing_device:
        text = f"this machine has {missing_device}; use cpu or auto"
        raise UserError(text, argument="device", value=name)
    return torch.device(name)


def _keep_memory() -> None:
    """Make the process keep freed memory, in huge pages where available, and cache fewer kernels.

    By default glibc returns every large block to the system and maps it again page by page, which
    takes a tenth of the training time. oneDNN and torch each cache the kernels of the last thousand
    product sizes: hundreds of megabytes that fragment the heap. Training pads its large
    products to sizes that recur, so that 256 kernels suffice, of 80 MB.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")  # oneDNN, at the first product
    os.environ.setdefault("LRU_CACHE_CAPACITY", "16")  # torch, at the first product
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch, at the first large block
    # Without a threshold, the other options would only turn off glibc's dynamic one.
    if any(_c_library("mallopt", _MMAP_THRESHOLD, size) for size in _MMAP_THRESHOLDS):
        _c_library("mallopt", _TRIM_THRESHOLD, _GIB)
        _c_library("mallopt", _TOP_PAD, _GIB >> 4)


def _c_library(function: str, *arguments: int) -> int:
    """Call a function of glibc; return 0 if the C library does not have it."""
    call = getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
    return int(call(*arguments)) if call is not None else 0
