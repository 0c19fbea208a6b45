"""What the ranks of a run tell one another: figures, lines, gradients, and when to stop.

Of a single process everything comes back as it was given. torch is imported inside functions, as
the command line asks of ranks before it loads anything heavy.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seq2seq.runtime.distributed import count, distributed_errors, gather

if TYPE_CHECKING:
    from torch import Tensor


def added(values: Sequence[float]) -> list[float]:
    """The sums of each of the values over the ranks."""
    return [sum(column) for column in zip(*gather(values), strict=True)]


def interleaved(lines: Sequence[str]) -> list[str]:
    """All lines in order, given the lines that are this rank's `share`."""
    if count() == 1:
        return list(lines)
    import json

    import torch
    import torch.distributed as dist

    own = torch.frombuffer(bytearray(json.dumps(list(lines)).encode()), dtype=torch.uint8)
    sizes = [int(size) for (size,) in gather([len(own)])]
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(own)] = own
    rows = [torch.empty_like(padded) for _ in sizes]
    with distributed_errors():
        dist.all_gather(rows, padded)
    shares = [
        json.loads(row[:size].numpy().tobytes()) for row, size in zip(rows, sizes, strict=True)
    ]
    return [
        shares[n % len(shares)][n // len(shares)] for n in range(sum(len(part) for part in shares))
    ]


def add_up(tensors: Sequence["Tensor"]) -> "Sequence[Tensor]":
    """The sums of the tensors over the ranks, to the bit the same on all; one message."""
    if count() == 1:
        return tensors
    import torch
    import torch.distributed as dist

    buffer = torch.cat([tensor.flatten() for tensor in tensors])
    with distributed_errors():
        dist.all_reduce(buffer)
    parts = buffer.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


class StopSync:
    """What may end training at any update, known to all ranks at the same one.

    Signals that reached any of them, and the time by the clock of rank 0.
    """

    def __init__(self, stops: list[int], seconds: Callable[[], float]) -> None:
        self._stops, self._seconds = stops, seconds
        self._agreed = count() > 1
        self._told_stops: list[int] = []
        self._told_seconds = 0.0
        self.after_update(0, None)

    def after_update(
        self, tokens: int, max_micro_batch_positions: int | None
    ) -> tuple[int, int | None]:
        """Tell the others, and hear; returns the tokens of all and the least of largest pieces."""
        if not self._agreed:
            return tokens, max_micro_batch_positions
        stop = self._stops[0] if self._stops else 0
        rows = gather([tokens, max_micro_batch_positions or 0, stop, self._seconds()])
        all_tokens, pieces, stops, seconds = zip(*rows, strict=True)
        self._told_stops = [int(number) for number in stops if number]
        self._told_seconds = seconds[0]
        least = min((int(piece) for piece in pieces if piece), default=None)
        return int(sum(all_tokens)), least

    @property
    def stops(self) -> list[int]:
        """The signals that ask for an end."""
        return self._told_stops if self._agreed else self._stops

    @property
    def seconds(self) -> float:
        """The time trained."""
        return self._told_seconds if self._agreed else self._seconds()
