"""Search engine on CUDA: a step with its choice of states and its best continuations is one graph.

Steps are lazy: parents, ids, scores and ends are copied to the device together, the CUDA graph of
their shapes is replayed, and its results are copied back together. A step with other masks, and a
draw, continue from its log-probabilities as on any device. Memory and states lie in tensors that
searches of the same shape use in turn.
"""

import itertools
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines.engine import (
    MAY_NOT_END,
    MUST_END,
    Array,
    Best,
    Mask,
    Rows,
    StepOptions,
    spread,
)
from seq2seq.engines.torch.engine import (
    MAX_SLOTS,
    Model,
    TorchEngine,
    Weights,
    best_of,
    joined,
    split,
)
from seq2seq.runtime.cuda_graphs import Graphs

SLOTS = (1, 8, 64, 256, MAX_SLOTS)  # few numbers: a step with each is captured by itself
MAX_POSITIONS = 1 << 17  # padded source positions of all slots
_NUMBERS = itertools.count()


class _Tensors(NamedTuple):
    """Memory and state in place."""

    number: int  # graphs that read and write them have it in their key
    memory: Any
    state: Any


@dataclass(eq=False)
class StaticRows(Rows):
    """Rows whose tensors stay the same; states are those of `parents` [N] once the step is run."""

    number: int = 0
    parents: Array | None = None


class LazyStep:
    """A step that is run once its values are read."""

    def __init__(self, engine: "CapturedEngine", rows: StaticRows, ids: Array) -> None:
        self.rows: StaticRows = rows
        self.ids, self._engine = ids, engine
        self.ends: Array | None = None  # [B], of a mask that consists of it
        self.outputs: tuple[Tensor, Weights] | None = None
        self.attention: Array | None = None
        self.heads: Array | None = None

    @property
    def values(self) -> Tensor:
        """Return the log-probabilities [N, V]."""
        if self.outputs is None:
            self._engine.run(self)
        assert self.outputs is not None, "set by the engine"
        return self.outputs[0]

    @property
    def weights(self) -> Weights:
        """Return the attention weights as far as they are read."""
        _ = self.values
        assert self.outputs is not None, "set by the engine"
        return self.outputs[1]

    @weights.setter
    def weights(self, weights: Weights) -> None:
        self.outputs = self.values, weights


class CapturedEngine(TorchEngine):
    """A model, or an `Ensemble`, on a CUDA device; see `Engine` for the calls.

    Several threads may search at once; each call waits for those of others.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        super().__init__(model, device)
        self._graphs, self._lock = Graphs(device), threading.RLock()
        self._unused: dict[Any, list[_Tensors]] = defaultdict(list)

    def slots(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        most = min(self._limit, MAX_POSITIONS // width)
        sizes = [size for size in SLOTS if size <= most] or [1]
        return next((size for size in sizes if size >= count), sizes[-1])

    def shrink(self) -> bool:
        with self._lock:
            self._graphs.clear()
            self._unused.clear()
            return super().shrink()

    @torch.inference_mode()
    def encode(self, sources: Sequence[Ids], width: int) -> Rows:

        def start(src: Tensor, lengths: Tensor) -> Any:
            return self.model.start(self.model.encode(src, lengths))

        src, lengths = pad_sources(sources, width)
        with self._lock:
            memory, state = self._graphs.call(("encode", src.shape), start, src, lengths)
            return Rows(_copied(memory), _copied(state), len(sources))

    @torch.inference_mode()
    def spread(self, rows: Rows, beam_size: int, options: StepOptions) -> StaticRows:
        with self._lock:
            return self._placed(super().spread(rows, beam_size, options))

    @torch.inference_mode()
    def put(self, rows: Rows, slots: Array, encoded: Rows, sentences: Array) -> Rows:
        with self._lock:
            return super().put(rows, slots, encoded, sentences)

    @torch.inference_mode()
    def keep(self, rows: Rows, slots: Array) -> StaticRows:
        assert isinstance(rows, StaticRows), "made by spread"
        hypotheses = spread(slots, rows.size)
        if rows.parents is not None:
            hypotheses = rows.parents[hypotheses]
        with self._lock:
            memory = rows.memory.select(self._tensor(slots))
            state = rows.state.select(self._tensor(hypotheses))
            return self._placed(Rows(memory, state, len(slots), rows.size, rows.options))

    def select(self, rows: Rows, parents: Array) -> Rows:
        assert isinstance(rows, StaticRows), "made by spread"
        rows.parents = parents
        return rows

    def step(self, rows: Rows, ids: Array) -> Any:
        assert isinstance(rows, StaticRows), "made by spread"
        return LazyStep(self, rows, ids)

    def mask(self, step: Any, mask: Mask) -> None:
        if mask.scaled is None and mask.forbidden is None:
            step.ends = mask.ends if mask.ends.any() else None
            return
        with self._lock:
            super().mask(step, mask)

    @torch.inference_mode()
    def best(self, step: Any, scores: Array, count: int) -> Best:
        with self._lock:
            # Without forbidden ids, as with phrases, a step is read several times.
            if step.outputs is None and step.rows.options.forbidden_ids:
                return Best(*self.run(step, scores.astype(np.float32), count))
            self._apply_ends(step)
            return super().best(step, scores, count)

    def draw(self, step: Any, *arguments: Any) -> Best:
        with self._lock:
            self._apply_ends(step)
            return super().draw(step, *arguments)

    def log_probs(self, step: Any, rows: Array, tokens: Array) -> Array:
        with self._lock:
            self._apply_ends(step)
            return super().log_probs(step, rows, tokens)

    def _apply_ends(self, step: LazyStep) -> None:
        """Mask the log-probabilities of a step whose mask its graph did not apply."""
        if step.outputs is None and step.ends is not None:
            super().mask(step, Mask(step.ends))  # type: ignore[arg-type]
            step.ends = None

    @torch.inference_mode()
    def run(self, step: LazyStep, scores: Array | None = None, count: int = 0) -> list[Array]:
        """Run a step; return the parts of `Best` if scores are given."""
        rows = step.rows
        parts = [step.ids]
        if rows.size > 1:
            unchanged = np.arange(len(step.ids))
            parts.append(unchanged if rows.parents is None else rows.parents)
        if scores is not None:
            parts += [scores.ravel().view(np.int32), *(() if step.ends is None else (step.ends,))]
        inputs = np.concatenate([part.astype(np.int32, copy=False) for part in parts])
        shape = None if scores is None else scores.shape
        key = rows.number, rows.options, shape, count, step.ends is None
        advance = partial(self._run, rows, shape, count)
        with self._lock:
            chosen, packed, *step_outputs = self._graphs.call(
                key, advance, torch.from_numpy(inputs)
            )
            step.outputs, rows.parents = tuple(step_outputs), None
            if packed is None:
                return []
            arrays = split(packed.cpu().numpy(), chosen)
        if len(arrays) > 4:
            weights = iter(arrays[4:])
            options = rows.options
            step.attention = next(weights) if options.attention else None
            step.heads = next(weights, None) if options.heads else None
            step.outputs = step.outputs[0], (None, None)
        return arrays[:4]

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
        chosen = [*best_of(values, scores, count), *(_floats(weights))]
        return chosen, joined(chosen), values, weights

    def _placed(self, rows: Rows) -> StaticRows:
        """Return the rows in tensors that no search uses now."""
        shapes = tuple(part.shape for part in (*_tensors(rows.memory), *_tensors(rows.state)))
        unused = self._unused[rows.count, rows.size, shapes]
        if unused:
            tensors = unused.pop()
            for old, new in zip(
                _tensors(tensors[1:]), _tensors((rows.memory, rows.state)), strict=True
            ):
                old.copy_(new)
        else:
            tensors = _Tensors(next(_NUMBERS), rows.memory, rows.state)
        number, memory, state = tensors
        placed = StaticRows(memory, state, rows.count, rows.size, rows.options, number)
        weakref.finalize(placed, unused.append, tensors).atexit = False
        return placed


def _mask_ends(values: Tensor, ends: Tensor) -> None:
    """Rule out end-of-sentence, or all else, in log-probabilities [B, K, V] of slots [B]."""
    eos = values[:, :, EOS_ID].masked_fill((ends == MAY_NOT_END)[:, None], -torch.inf)
    values.masked_fill_((ends == MUST_END)[:, None, None], -torch.inf)
    values[:, :, EOS_ID] = eos


def _floats(weights: Weights) -> list[Tensor]:
    return [part.float() for part in weights if part is not None]


def _tensors(parts: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, such as a memory or the states of an ensemble."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif part is not None:
            yield from _tensors(part)


def _copied(parts: Any) -> Any:
    """Return a copy of the tensors of nested tuples."""
    if isinstance(parts, Tensor):
        return parts.clone()
    if parts is None:
        return None
    copies = [_copied(part) for part in parts]
    kind: Any = type(parts)
    return kind(*copies) if hasattr(parts, "_fields") else kind(copies)


def engine_for(model: Model, device: torch.device) -> TorchEngine:
    """Return the engine of a model on its device."""
    return (CapturedEngine if device.type == "cuda" else TorchEngine)(model, device)
