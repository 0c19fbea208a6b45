"""Sums of gradients over the ranks, exchanged in buckets while the backward pass continues.

`DistributedDataParallel` would do the same, but every rank would have to complete each backward
pass that it begins: after an out-of-memory error on one rank the others would wait for ever. Nor
does it permit a rank without a pair, and its mean over ranks is not the mean over target tokens.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from seq2seq.runtime.process_group import ProcessGroup

BUCKET_BYTES = 25 * 2**20  # the default of DistributedDataParallel


class GradientExchange:
    """Gradients of parameters summed over the ranks, in the same buckets and order on all ranks.

    Buckets are filled from the last parameter, which a backward pass reaches first, to the first.
    The sum of a bucket starts once its gradients are complete and all earlier sums have started.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        group: ProcessGroup,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._group = group
        self._buckets = _buckets(list(parameters)[::-1], bucket_bytes)
        self._sums: list[tuple[Tensor, Callable[[], None]]] = []  # started, and how to wait
        self._complete: set[nn.Parameter] = set()
        self._is_last_pass = False
        for bucket in self._buckets:
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(self._gradient_is_complete)

    def expect_last_pass(self, is_last: bool) -> None:
        """Declare whether the next backward pass completes the gradients of this step.

        A pass that is repeated, as after an out-of-memory error, is declared again. Sums that have
        started are kept: they are of complete gradients, which another pass only repeats, with
        other dropout.
        """
        self._complete.clear()
        self._is_last_pass = is_last

    def finish(self, extra: Sequence[Tensor], in_place: bool = False) -> list[Tensor]:
        """Wait for all sums, and replace each gradient by its sum; return the sums of `extra`.

        A parameter without a gradient on this rank adds zeros. With `in_place`, sums are copied
        into the tensors of the gradients.
        """
        self._is_last_pass = False
        while len(self._sums) < len(self._buckets):
            self._start_next()
        flat = torch.cat([tensor.flatten() for tensor in extra])
        self._sums.append((flat, self._group.start_sum(flat)))
        for _, wait in self._sums:
            wait()
        *buffers, summed = (buffer for buffer, _ in self._sums)
        self._sums.clear()
        for bucket, buffer in zip(self._buckets, buffers, strict=True):
            gradients = _split_as(buffer, bucket)
            if in_place:
                for parameter, gradient in zip(bucket, gradients, strict=True):
                    assert parameter.grad is not None, "kept between steps"
                    parameter.grad.copy_(gradient)
                continue
            for parameter, gradient in zip(bucket, gradients, strict=True):
                parameter.grad = gradient
        return _split_as(summed, extra)

    def _gradient_is_complete(self, parameter: Tensor) -> None:
        if not self._is_last_pass:
            return
        self._complete.add(parameter)  # type: ignore[arg-type]
        while len(self._sums) < len(self._buckets) and self._is_next_complete():
            self._start_next()

    def _is_next_complete(self) -> bool:
        return self._complete.issuperset(self._buckets[len(self._sums)])

    def _start_next(self) -> None:
        """Start the sum of the next bucket."""
        bucket = self._buckets[len(self._sums)]
        gradients = [
            torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in bucket
        ]
        buffer = torch.cat([gradient.flatten() for gradient in gradients])
        self._sums.append((buffer, self._group.start_sum(buffer)))


def _buckets(parameters: Sequence[nn.Parameter], most: int) -> list[list[nn.Parameter]]:
    """Divide parameters, in order, into buckets of at most that many bytes, or of one parameter."""
    buckets: list[list[nn.Parameter]] = []
    filled = most
    for weight in parameters:
        if not buckets or filled + weight.nbytes > most:
            buckets.append([])
            filled = 0
        buckets[-1].append(weight)
        filled += weight.nbytes
    return buckets


def _split_as(buffer: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Divide a flat buffer into views shaped like the tensors."""
    parts = buffer.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
