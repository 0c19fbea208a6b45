"""The logistic function, the same wherever a number stands, and the hyperbolic tangent by it."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

LANES = 32  # numbers that torch computes at once
GRAIN = 32_768  # fewer are never shared among threads


def sigmoid_(values: Tensor) -> Tensor:
    """The logistic function `1 / (1 + e^-x)` in place: on a CPU the same bits in any company.

    What does not fill a vector torch computes in another way, and where threads part that hangs on
    how many numbers there are. Rows of a multiple of LANES numbers are cut such that threads part
    between vectors.
    """
    width = values.shape[-1]
    whole = values.device.type != "cpu" or values.numel() <= GRAIN or width % LANES > 0
    if whole or not (values.dim() == 2 or values.is_contiguous()):
        return values.sigmoid_()
    rows = values.view(-1, width)
    sizes = _even_parts(*rows.shape, torch.get_num_threads())
    for part in rows.split(sizes) if len(sizes) > 1 else (rows,):
        part.sigmoid_()
    return values


@cache
def _even_parts(rows: int, width: int, threads: int) -> list[int]:
    """Into how many rows each to cut so many, lest threads part within a vector."""
    sizes = []
    while rows:
        fitting = (n for n in range(rows, 0, -1) if _parts_evenly(n * width, threads))
        size = next(fitting, rows)  # the latter where a single row is too long
        sizes.append(size)
        rows -= size
    return sizes


def _parts_evenly(count: int, threads: int) -> bool:
    """Whether torch's threads take whole vectors of so many numbers."""
    tasks = min(threads, -(-count // GRAIN))
    return -(-count // tasks) % LANES == 0


def tanh(values: Tensor) -> Tensor:
    """`tanh x = 2 s(2x) - 1`, s the logistic function.

    On a CPU that is some five times as fast as torch's own, and as exact but for the last digit of
    one; numbers too coarse for it are given to torch's.
    """
    if not _gains(values):
        return values.tanh()
    result: Tensor = _Tanh.apply(values)  # type: ignore[no-untyped-call]
    return result


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        result = _shifted(sigmoid_(torch.mul(values, 2)))
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (grad,), (result,) = grads, ctx.saved_tensors
        return torch.addcmul(grad, grad * result, result, value=-1)  # g (1 - tanh^2)


def tanh_into(values: Tensor, out: Tensor) -> Tensor:
    """`tanh` written over `out`, which may be `values`; no gradient."""
    if not _gains(values):
        return torch.tanh(values, out=out)
    return _shifted(sigmoid_(torch.mul(values, 2, out=out)))


def _gains(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


def _shifted(halves: Tensor) -> Tensor:
    return halves.mul_(2).sub_(1)
