"""Search engine on CUDA: a step with its choice of states and its best continuations is one graph.

Steps are lazy: parents, ids, scores and ends are copied to the device together, the CUDA graph of
their shapes is replayed, and its results are copied back together. A step with other masks, and a
draw, continue from its log-probabilities as on any device. Memory and states lie in tensors that
searches of the same shape use in turn.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines import engine
from seq2seq.engines.engine import Array, Best, Mask, Rows, StepOptions
from seq2seq.engines.torch import engine as plain
from seq2seq.engines.torch.engine import Model, TorchEngine
from seq2seq.runtime.cuda_graphs import Graphs

SLOTS = (1, 8, 64, 256, plain.MAX_SLOTS)  # few numbers: a step with each is captured by itself
MAX_POSITIONS = 1 << 17  # padded source positions of all slots
_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(eq=False)
class StaticRows(Rows):
    """Rows whose tensors stay the same; states are those of `parents` [N] once the step is run."""

    token: object = None  # graphs that read and write the tensors have it in their key
    parents: Array | None = None


class LazyStep(plain.TorchStep):
    """A step that is run once its values are read."""

    def __init__(self, engine: "CapturedEngine", rows: StaticRows, ids: Array) -> None:
        self.rows, self.ids, self._engine = rows, ids, engine
        self.ends: Array | None = None  # [B], of a mask that consists of it

    def __getattr__(self, name: str) -> Any:
        """Run the step, and apply its mask, for its values; the weights come with them."""
        if name != "values":
            raise AttributeError(name)
        self._engine.run(self)
        if self.ends is not None:
            TorchEngine.mask(self._engine, self, Mask(self.ends))
        return self.values


def _locked(method: _Method) -> _Method:
    """Let each call wait for those of other threads."""

    @wraps(method)
    def call(self: Any, *arguments: Any) -> Any:
        with self.lock, torch.inference_mode():
            return method(self, *arguments)

    return cast(_Method, call)


class CapturedEngine(TorchEngine):
    """A model, or an `Ensemble`, on a CUDA device; see `Engine` for the calls.

    Several threads may search at once; each call waits for those of others.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        super().__init__(model, device)
        self._graphs, self.lock = Graphs(device), threading.RLock()
        self._unused: dict[Any, list[StaticRows]] = defaultdict(list)

    def slots(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        most = min(self._limit, MAX_POSITIONS // width)
        sizes = [size for size in SLOTS if size <= most] or [1]
        return next((size for size in sizes if size >= count), sizes[-1])

    @_locked
    def shrink(self) -> bool:
        self._graphs.clear()
        self._unused.clear()
        return super().shrink()

    @_locked
    def encode(self, sources: Sequence[Ids], width: int) -> Rows:
        src, lengths = pad_sources(sources, width)
        memory, state = self._graphs.call(("encode", src.shape), self._start, src, lengths)
        copied = self.places(np.arange(len(sources)))
        return Rows(memory.select(copied), state.select(copied), len(sources))

    @_locked
    def spread(self, rows: Rows, beam_size: int, options: StepOptions) -> StaticRows:
        return self._placed(super().spread(rows, beam_size, options))

    put = _locked(TorchEngine.put)

    @_locked
    def keep(self, rows: Any, slots: Array) -> StaticRows:
        current = rows if rows.parents is None else super().select(rows, rows.parents)
        return self._placed(super().keep(current, slots))

    def select(self, rows: Any, parents: Array) -> StaticRows:
        rows.parents = parents
        return cast(StaticRows, rows)

    def step(self, rows: Any, ids: Array) -> LazyStep:
        return LazyStep(self, rows, ids)

    @_locked
    def mask(self, step: Any, mask: Mask) -> None:
        if mask.scaled is None and mask.forbidden is None:
            step.ends = mask.ends if mask.ends.any() else None
        else:
            super().mask(step, mask)

    @_locked
    def best(self, step: Any, scores: Array, count: int) -> Best:
        # Without forbidden ids, as with phrases, a step is read several times.
        if "values" not in vars(step) and step.rows.options.forbidden_ids:
            return Best(*self.run(step, scores.astype(np.float32), count))
        return super().best(step, scores, count)

    draw = _locked(TorchEngine.draw)
    log_probs = _locked(TorchEngine.log_probs)

    @_locked
    def run(self, step: LazyStep, scores: Array | None = None, count: int = 0) -> list[Array]:
        """Run a step; return the parts of `Best` if scores are given."""
        rows: Any = step.rows
        parts = [step.ids]
        if rows.size > 1:
            unchanged = np.arange(len(step.ids))
            parts.append(unchanged if rows.parents is None else rows.parents)
        if scores is not None:
            parts += [scores.ravel().view(np.int32), *(() if step.ends is None else (step.ends,))]
        inputs = np.concatenate([part.astype(np.int32, copy=False) for part in parts])
        shape = None if scores is None else scores.shape
        key = rows.token, rows.options, shape, count, step.ends is None
        advance = partial(self._run, rows, shape, count)
        results = self._graphs.call(key, advance, torch.from_numpy(inputs))
        chosen, packed, step.values, step.weights = results
        rows.parents = None
        if packed is None:
            return []
        return step.read(plain.split(packed.cpu().numpy(), chosen))

    def _run(
        self, rows: StaticRows, shape: tuple[int, int] | None, count: int, inputs: Tensor
    ) -> tuple[Any, ...]:
        """Run a step on its packed inputs, in place; return its results, and these joined."""
        total = rows.count * rows.size
        state = rows.state
        if rows.size > 1:
            state = state.select(inputs[total : 2 * total].long())
        state, values, weights = self._advance(rows, state, inputs[:total].long())
        for old, new in zip(_tensors(rows.state), _tensors(state), strict=True):
            old.copy_(new)
        if shape is None:
            return None, None, values, weights
        start = total if rows.size == 1 else 2 * total
        scores = inputs[start : start + total].view(torch.float32).view(shape)
        if len(ends := inputs[start + total :]):
            _mask_ends(values.view(rows.count, rows.size, -1), ends)
        chosen = [*plain.best_of(values, scores, count), *plain.floats(weights)]
        return chosen, plain.joined(chosen), values, weights

    def _placed(self, rows: Rows) -> StaticRows:
        """Return the rows in tensors that no search uses now."""
        tensors = [*_tensors((rows.memory, rows.state))]
        unused = self._unused[rows.count, rows.size, tuple(part.shape for part in tensors)]
        if unused:
            static = unused.pop()
            for old, new in zip(_tensors((static.memory, static.state)), tensors, strict=True):
                old.copy_(new)
        else:
            static = StaticRows(rows.memory, rows.state, rows.count, rows.size, token=object())
        placed = replace(static, options=rows.options)
        weakref.finalize(placed, unused.append, static).atexit = False
        return placed


def _mask_ends(values: Tensor, ends: Tensor) -> None:
    """Rule out end-of-sentence, or all else, in log-probabilities [B, K, V] of slots [B]."""
    eos = values[:, :, EOS_ID].masked_fill((ends == engine.MAY_NOT_END)[:, None], -torch.inf)
    values.masked_fill_((ends == engine.MUST_END)[:, None, None], -torch.inf)
    values[:, :, EOS_ID] = eos


def _tensors(parts: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, such as a memory or the states of an ensemble."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif part is not None:
            yield from _tensors(part)


def engine_for(model: Model, device: torch.device) -> TorchEngine:
    """Return the engine of a model on its device."""
    return (CapturedEngine if device.type == "cuda" else TorchEngine)(model, device)
