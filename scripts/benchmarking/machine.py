"""Peak speed of the machine, peak memory of a process, and isolated measurements."""

import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

SIZE = 4096  # rows and columns of the multiplied matrices

Result = TypeVar("Result")


def isolated(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a new process, so that its memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_mib(device: str = "cpu") -> float:
    """Return the peak memory of this process, or on CUDA of the device, in MiB."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_reserved(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


def matmul_gflops(precision: str, device: str) -> float:
    """Return the GFLOP/s of a product of two square matrices, best of all precision settings.

    On CUDA, float32 excludes TF32, with which nothing is trained here.
    """
    import torch

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2, SIZE, SIZE, device=device).to(dtype)
    settings = ("highest",) if device == "cuda" else ("highest", "high", "medium")
    return max(_gflops(left, right, setting) for setting in settings)


def _gflops(left: "torch.Tensor", right: "torch.Tensor", setting: str) -> float:
    import torch

    torch.set_float32_matmul_precision(setting)
    repeats = 2 if left.device.type == "cpu" else 50
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(repeats):
            product = left @ right
        product[0, 0].item()  # synchronises with the device
        seconds.append(time.perf_counter() - started)
    return 2 * SIZE**3 * repeats / min(seconds) / 1e9
