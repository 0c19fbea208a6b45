"""CUDA graphs: record the kernels of a function once, then launch all of them together."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.runtime.device import total_memory
from seq2seq.runtime.errors import is_out_of_memory

MAX_GRAPHS = 256  # each takes some MB of host memory
MAX_MEMORY_SHARE = 0.4  # share of the device's memory beyond which nothing more is captured
MAX_UNUSED_SHARE = 0.1  # share of it that may be kept unused when a capture begins


class _Captured(NamedTuple):
    inputs: list[Tensor]  # that the graph reads
    graph: "torch.cuda.CUDAGraph"
    outputs: Any  # that it writes


class Graphs:
    """Functions of tensors on one device, captured as CUDA graphs when called for the second time.

    All graphs share a memory pool, so that they take about as much as the largest of them. What a
    graph returns is valid until the next call. On other devices, and where capturing is impossible
    or would exceed MAX_GRAPHS or MAX_MEMORY_SHARE, functions are called as they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captures = device.type == "cuda"
        self._seen: set[Hashable] = set()
        self._captured: dict[Hashable, _Captured] = {}
        self._pool: Any = None
        self._reserved = 0  # bytes that captures took
        self.note: str | None = None  # why functions are no longer captured

    def call(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """Call a function on the inputs, copied to the device; return its result.

        Equal keys mean the same function of inputs of the same shapes, which reads and writes no
        other tensors than those of the call before, and waits for no result. Random numbers are
        those of the generator's current seed. Raises an error that is out of memory as it is.
        """
        captured = self._captured.get(key)
        if captured is None and self._captures and key in self._seen:
            captured = self._capture(key, function, inputs)
        if captured is None:
            if self._captures:
                self._seen.add(key)
            return function(*(_copied(tensor, self._device) for tensor in inputs))
        for static, tensor in zip(captured.inputs, inputs, strict=True):
            static.copy_(_pinned(tensor, self._device), non_blocking=True)
        captured.graph.replay()
        return captured.outputs

    def clear(self) -> None:
        """Forget all graphs, and free their memory."""
        if self._captured:
            torch.cuda.synchronize(self._device)
        self._captured.clear()
        self._seen.clear()
        self._pool = None
        self._reserved = 0

    def _capture(
        self, key: Hashable, function: Callable[..., Any], inputs: Sequence[Tensor]
    ) -> _Captured | None:
        """Capture a function; None if that is impossible, as `note` then says."""
        limit = MAX_MEMORY_SHARE * total_memory(self._device)
        if len(self._captured) >= MAX_GRAPHS or self._reserved > limit:
            self._stop(f"{len(self._captured)} shapes take as much memory as they may")
            return None
        reserved = torch.cuda.memory_reserved(self._device)
        unused = reserved - torch.cuda.memory_allocated(self._device)
        if unused > MAX_UNUSED_SHARE * total_memory(self._device):  # which a graph cannot use
            torch.cuda.empty_cache()
            reserved = torch.cuda.memory_reserved(self._device)
        try:
            captured = self._record(function, inputs)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise
            self._stop(" ".join(str(error).split("\n")[0].split()))
            return None
        self._reserved += max(0, torch.cuda.memory_reserved(self._device) - reserved)
        self._captured[key] = captured
        return captured

    def _record(self, function: Callable[..., Any], inputs: Sequence[Tensor]) -> _Captured:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()
        statics = [_copied(tensor, self._device) for tensor in inputs]
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool)
            try:
                outputs = function(*statics)
            except BaseException:
                with suppress(RuntimeError):  # the error of the function says more
                    graph.capture_end()
                raise
            graph.capture_end()
        current.wait_stream(self._stream)
        return _Captured(statics, graph, outputs)

    def _stop(self, reason: str) -> None:
        self._captures = False
        self.note = reason


def _copied(tensor: Tensor, device: torch.device) -> Tensor:
    return _pinned(tensor, device).to(device, non_blocking=True)


def _pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor from which a copy to the device need not wait."""
    return tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
