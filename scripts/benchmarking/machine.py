"""Name and peak speed of the machine, peak memory of a process, and isolated measurements."""

import math
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from seq2seq.runtime.device import peak_memory

SIZE = 4096  # rows and columns of the multiplied matrices

Result = TypeVar("Result")


def isolated(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a new process, so that its memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_mib(device: str) -> float:
    """Return the peak memory of this process, or of a GPU, in MiB; NaN if unknown."""
    return (peak_memory(torch.device(device)) or math.nan) / 2**20


def matmul_gflops(precision: str, device: str) -> float:
    """Return the GFLOP/s of a product of two square matrices, best of all precision settings.

    On CUDA, float32 excludes TF32, with which nothing is trained here.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2, SIZE, SIZE, device=device).to(dtype)
    settings = ("highest",) if device == "cuda" else ("highest", "high", "medium")
    return max(_gflops(left, right, setting) for setting in settings)


def _gflops(left: torch.Tensor, right: torch.Tensor, setting: str) -> float:
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


def machine_name(device: str) -> str:
    """Return the processor or GPU, the threads and the version of torch."""
    name = platform.processor() or platform.machine()
    if device == "cuda":
        name = torch.cuda.get_device_name()
    elif Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.split(":")[1].strip() for line in lines if "model name" in line), name)
    threads = os.environ.get("OMP_NUM_THREADS", str(torch.get_num_threads()))
    return f"{name}, {threads} threads, torch {torch.__version__}"
