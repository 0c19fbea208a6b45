"""What the machine can do: its best rate of a plain product."""

import time

import torch

SIZE = 4096


def ceiling(precision: str, device: str) -> float:
    """GFLOP/s of a product of two square matrices, the best of all precision settings.

    On CUDA float32 is what it says: other settings would be TF32, which no training here uses.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2, SIZE, SIZE, device=device).to(dtype)
    settings = ("highest",) if device == "cuda" else ("highest", "high", "medium")
    return max(_rate(left, right, setting) for setting in settings)


def _rate(left: torch.Tensor, right: torch.Tensor, setting: str) -> float:
    torch.set_float32_matmul_precision(setting)
    repeats = 2 if left.device.type == "cpu" else 50
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(repeats):
            product = left @ right
        product[0, 0].item()  # waits for the device
        seconds.append(time.perf_counter() - began)
    return 2 * SIZE**3 * repeats / min(seconds) / 1e9
