"""Where the arithmetic runs, and how exact its float32 products are."""

import ctypes
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from seq2seq.runtime.errors import UserError

_TOLERANCE = 1e-5  # relative error that a float32 product may have
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -3, -1, -2  # of mallopt(3)
_GIB = 1 << 30
_MMAP_THRESHOLDS = _GIB, 32 << 20  # glibc of before 2022 refuses more than the second
_MUCH_SLOWER = 1.5
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_REPEATABLE = (":4096:8", ":16:8")  # with other work spaces cuBLAS may add up in any order


def choose_device(name: str) -> torch.device:
    """`auto` (CUDA where there is one), `cpu`, `cuda` or `cuda:N`; UserError where it is not there.

    Lets the CPU take oneDNN's float32 kernels (torch's "medium" precision, about twice as fast on
    some processors) where they are as exact as float32, which is measured: on processors with AMX
    the same switch would round to bfloat16, on CUDA to TF32.
    """
    device = _named(name)
    if device.type == "cpu":
        _keep_memory()
    exact = device.type == "cpu" and _medium_is_exact()
    torch.set_float32_matmul_precision("medium" if exact else "highest")
    return device


def bf16_note(device: torch.device, precision: str) -> str | None:
    """What to say where a CPU takes longer in bfloat16: many multiply it in a plain loop."""
    if precision != "bf16" or device.type != "cpu":
        return None
    left, right = torch.ones(2, 256, 256)
    short = left.bfloat16(), right.bfloat16()
    times = quickest(lambda: short[0] @ short[1]) / quickest(lambda: left @ right)
    if times < _MUCH_SLOWER:
        return None
    return (
        f"training.precision: this processor takes {times:.1f} times as long for products in bf16 "
        "as in float32; set float32"
    )


def quickest(work: Callable[[], object]) -> float:
    """The seconds of the quickest of a few calls, on one thread: several may wait for a core."""
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
    """Let the same inputs give the same bits on CUDA too, if wanted; on a CPU they always do.

    cuBLAS looks once, as CUDA starts: raises UserError where it has started otherwise.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    if os.environ.get(_WORKSPACE) not in _REPEATABLE:
        if torch.cuda.is_initialized():
            raise UserError(
                "training.deterministic: this process has used CUDA already; "
                f"start it anew with {_WORKSPACE}={_REPEATABLE[0]} in its environment"
            )
        os.environ[_WORKSPACE] = _REPEATABLE[0]
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    before = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    memory.fill_uninitialized_memory = False  # none is read: it is only time
    try:
        yield
    finally:
        everywhere, cudnn.deterministic, cudnn.benchmark = before
        torch.use_deterministic_algorithms(everywhere)
        memory.fill_uninitialized_memory = fills


@contextmanager
def memory_limit(device: torch.device, gigabytes: float | None) -> Iterator[None]:
    """Let allocations beyond so many GiB fail: on CUDA the device's, else the whole process's.

    Raises UserError where the system knows no such limit.
    """
    if gigabytes is None:
        yield
        return
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory
        number = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * _GIB / whole), number)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, number)
        return
    if sys.platform != "linux":
        raise UserError("training.memory_gb: only Linux and CUDA can limit memory; leave it out")
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted, most = int(gigabytes * _GIB), before[1]
    limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


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
    """Let the process keep the memory that it frees, in huge pages where the system has them.

    By default glibc hands every large block back and asks for it anew, page by page: a tenth of
    the training time. oneDNN on the other hand keeps a kernel for each of the last thousand sizes
    of products, and torch once more: hundreds of megabytes of them, and small blocks everywhere
    between the large ones, where batches need some tens.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # read at the first product
    os.environ.setdefault("LRU_CACHE_CAPACITY", "16")  # torch's; likewise
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's own; read at the first large block
    # Where no threshold is taken the rest would only keep glibc from finding one by itself.
    if any(_c_library("mallopt", _MMAP_THRESHOLD, most) for most in _MMAP_THRESHOLDS):
        _c_library("mallopt", _TRIM_THRESHOLD, _GIB)
        _c_library("mallopt", _TOP_PAD, _GIB >> 4)


def trim_memory() -> None:
    """Give back what is kept since it was freed: where other sizes follow, little of it fits."""
    _c_library("malloc_trim", 0)


def _c_library(function: str, *arguments: int) -> int:
    """Call one of glibc's functions, where that is the C library; elsewhere the answer is 0."""
    known = getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
    return int(known(*arguments)) if known is not None else 0


def _medium_is_exact() -> bool:
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(2, 256, 256, generator=generator)
    exact = left.double() @ right.double()
    torch.set_float32_matmul_precision("medium")
    error = (left @ right - exact).abs().max() / exact.abs().max()
    return bool(error < _TOLERANCE)
