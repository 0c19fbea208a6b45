"""Search engine over torch models: a step with its choice of states and continuations is one call.

Steps are lazy: parents, ids, scores and ends are copied to the device together, and their results
are copied back together, so that a GPU waits once a step. On CUDA the call is a graph of these
shapes, which is replayed. A step with other masks, and a draw, continue from its log-probabilities.
Memory and states lie in tensors that searches of the same shape use in turn.
"""

import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines import engine
from seq2seq.engines.engine import Array, Best, Engine, EngineStep, Mask, Rows, Sampling
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runtime.cuda_graphs import Graphs
from seq2seq.runtime.device import check_fork, empty_cache, has_float64

CPU_POSITIONS = 16_384  # source positions at once of long sentences on CPU
SLOTS = (1, 8, 64, 256, 1024)  # elsewhere few numbers: a step with each is captured by itself
MAX_POSITIONS = 1 << 17  # padded source positions of all these slots
BLOCK = 64  # tokens of a block of the vocabulary on CUDA
MIN_BLOCKS = 32  # of a vocabulary that is searched by blocks
Model = Seq2Seq | Ensemble
_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(eq=False)
class StaticRows(Rows):
    """Rows whose tensors stay the same; states are those of `parents` [N] once the step is run."""

    token: object = None  # graphs that read and write the tensors have it in their key
    parents: Array | None = None


class TorchStep(EngineStep):
    """A step that is run once its values are read; its attention weights come with them."""

    def __init__(self, engine: "TorchEngine", rows: StaticRows, ids: Array) -> None:
        self.rows = rows
        self.ids = ids
        self._engine = engine
        self.ends: Array | None = None  # [B], of a mask that consists of it
        self.weights: dict[str, Tensor] = {}  # attention and heads, until they are copied

    def __getattr__(self, name: str) -> Any:
        """Run the step when its `values` [N, V] are first read."""
        if name != "values":
            raise AttributeError(name)
        self._engine.run(self)
        return self.values

    @property
    def was_run(self) -> bool:
        """Return whether the values are there already."""
        return "values" in vars(self)

    def read(self, packed: Tensor, parts: Sequence[Tensor]) -> list[Array]:
        """Return joined parts as arrays of the host, but for the attention weights, the last."""
        arrays = _unpacked(packed.cpu().numpy(), parts)
        count = len(arrays) - len(self.weights)
        for name, array in zip(self.weights, arrays[count:], strict=True):
            setattr(self, name, array)
        self.weights = {}
        return arrays[:count]


def _locked(method: _Method) -> _Method:
    """Let each call wait for those of other threads."""

    @wraps(method)
    def call(self: Any, *arguments: Any) -> Any:
        check_fork(self.device.type != "cpu" and self.process != os.getpid())
        with self.lock, torch.inference_mode():
            return method(self, *arguments)

    return cast(_Method, call)


class TorchEngine(Engine):
    """A model, or an `Ensemble`, on one device; see `Engine` for the calls.

    Several threads may search at once; each call waits for those of others.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model = model
        self.device = device
        self.process = os.getpid()  # a forked one cannot use the device
        self.lock = threading.RLock()
        self._graphs = Graphs(device)
        self._limit = SLOTS[-1]  # of slots; halved when memory runs out
        self._unused: dict[Any, list[StaticRows]] = defaultdict(list)  # by shapes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the model."""
        return type(self), (self.model, self.device)

    def slot_count(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        """Return the number of slots; longer sentences, which are rare, get fewer.

        On a CPU it depends on the padded width alone, so that the shapes of all operations do, too:
        kernels are chosen by shape, and a sentence has the same result beside any others.
        """
        if self.device.type == "cpu":
            rows = 64 if width <= 32 else 32 if width <= 64 else min(16, CPU_POSITIONS // width)
            return max(1, min(rows, self._limit))
        max_rows = min(self._limit, MAX_POSITIONS // width)
        sizes = [size for size in SLOTS if size <= max_rows] or [1]
        return next((size for size in sizes if size >= count), sizes[-1])

    @_locked
    def shrink(self) -> bool:
        self._graphs.clear()
        self._unused.clear()
        self._limit //= 2
        empty_cache(self.device)
        return self._limit > 0

    @_locked
    def encode(self, sources: Sequence[Ids], width: int) -> Rows:
        src, lengths = pad_sources(sources, width)
        memory, state = self._graphs.call(("encode", src.shape), self._start, src, lengths)
        places = self.places(np.arange(len(sources)))
        return Rows(memory.select(places), state.select(places), len(sources))

    def _start(self, src: Tensor, lengths: Tensor) -> tuple[Any, Any]:
        encoded: Any = self.model.encode(src, lengths)
        return self.model.start(encoded)

    def places(self, rows: Array) -> Tensor:
        return torch.from_numpy(rows).to(self.device)

    @_locked
    def spread(self, rows: Rows, beam_size: int, options: engine.StepOptions) -> StaticRows:
        return self._in_unused_tensors(super().spread(rows, beam_size, options))

    put = _locked(Engine.put)

    @_locked
    def keep(self, rows: Any, slots: Array) -> StaticRows:
        current = rows if rows.parents is None else super().select(rows, rows.parents)
        return self._in_unused_tensors(super().keep(current, slots))

    def select(self, rows: Any, parents: Array) -> StaticRows:
        rows.parents = parents
        return cast(StaticRows, rows)

    def step(self, rows: Any, ids: Array) -> TorchStep:
        return TorchStep(self, rows, ids)

    @_locked
    def mask(self, step: TorchStep, mask: Mask) -> None:
        ends = mask.ends if mask.ends.any() else None
        if mask.scaled is None and mask.forbidden is None:
            step.ends = ends
            return
        if mask.scaled is not None:
            places = self.places(mask.scaled[0]), self.places(mask.scaled[1])
            step.values[places] *= mask.scaled[2]
        if mask.forbidden is not None:
            rows, forbidden = map(self.places, mask.forbidden)
            step.values[rows] = step.values[rows].masked_fill_(forbidden, -torch.inf)
        if ends is not None:
            _mask_ends(step.values, self.places(ends))

    @_locked
    def best(self, step: TorchStep, scores: Array, count: int) -> Best:
        # Without forbidden ids, as with phrases, a step is read several times.
        if not step.was_run and step.rows.options.forbidden_ids:
            return Best(*self.run(step, scores.astype(np.float32), count))
        return Best(*self._copied_to_host(step, *best_of(step.values, self.places(scores), count)))

    @_locked
    def draw(self, step: TorchStep, sampling: Sampling, numbers: Array) -> Best:
        tokens = drawn(step.values, sampling, numbers)[:, None]
        log_probs = step.values.gather(1, tokens)
        return Best(
            *self._copied_to_host(step, log_probs, torch.zeros_like(tokens), tokens, log_probs)
        )

    @_locked
    def log_probs(self, step: TorchStep, rows: Array, tokens: Array) -> Array:
        return self._copied_to_host(step, step.values[self.places(rows), self.places(tokens)])[0]

    def _copied_to_host(self, step: TorchStep, *parts: Tensor) -> list[Array]:
        """Copy parts, and the attention weights of a step, to the host at once."""
        tensors = [*parts, *step.weights.values()]
        return step.read(_packed(tensors), tensors)

    @_locked
    def run(self, step: TorchStep, scores: Array | None = None, count: int = 0) -> list[Array]:
        """Run a step; return the parts of `Best` if scores are given."""
        rows: Any = step.rows
        parts = _input_parts(step, scores)
        inputs = np.concatenate([part.astype(np.int32, copy=False) for part in parts.values()])
        shape = None if scores is None else scores.shape
        key = rows.token, rows.options, tuple(parts), shape, count
        sizes = {name: len(part) for name, part in parts.items()}
        advance = partial(self._run, rows, sizes, shape, count)
        results = self._graphs.call(key, advance, torch.from_numpy(inputs))
        columns, packed, step.values, step.weights = results
        rows.parents = None  # states are now those of the parents
        return [] if packed is None else step.read(packed, columns)

    def _run(
        self,
        rows: StaticRows,
        sizes: dict[str, int],
        shape: tuple[int, int] | None,
        count: int,
        inputs: Tensor,
    ) -> tuple[Any, ...]:
        """Run a step on its packed inputs, in place; return its results, and these joined."""
        parts = dict(zip(sizes, inputs.split([*sizes.values()]), strict=True))
        state = rows.state
        if "parents" in parts:
            state = state.select(parts["parents"].long())
        state, values, weights = self._advance(rows, state, parts["ids"].long())
        for buffer, next_value in zip(tensors_of(rows.state), tensors_of(state), strict=True):
            buffer.copy_(next_value)
        if "ends" in parts:
            _mask_ends(values, parts["ends"])
        if shape is None:
            return [], None, values, weights
        scores = parts["scores"].view(torch.float32).view(shape)
        columns = [*best_of(values, scores, count), *weights.values()]
        return columns, _packed(columns), values, weights

    def _advance(
        self, rows: Rows, state: Any, ids: Tensor
    ) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """Return the next state, log-probabilities [N, V], and weights as far as they are read."""
        options = rows.options
        step = self.model.step(ids, state, rows.memory)
        values = self.model.project(step.outputs)  # type: ignore[arg-type]
        if not options.log_probs or values.dtype == torch.float64:
            values = values.float()
        if options.log_probs and values.dtype == torch.float32:
            values = torch.log_softmax(values, -1, out=values)  # in place: it is large
        elif options.log_probs:
            values = torch.log_softmax(values, -1, dtype=torch.float32)
        values.index_fill_(1, _ids_on_device(options.forbidden_ids, self.device), -torch.inf)
        weights = {}
        if options.attention and step.attention_weights is not None:
            weights["attention"] = step.attention_weights
        if options.heads and step.head_weights is not None:
            weights["heads"] = step.head_weights
        return step.state, values, weights

    def _in_unused_tensors(self, rows: Rows) -> StaticRows:
        """Return the rows in tensors that no search uses now, on a CPU in those that they have."""
        static = StaticRows(rows.memory, rows.state, rows.count, rows.size, rows.options, object())
        if self.device.type == "cpu":  # others might take much memory
            return static
        tensors = [*tensors_of((rows.memory, rows.state))]
        unused_rows = self._unused[rows.count, rows.size, tuple(part.shape for part in tensors)]
        if unused_rows:
            static = unused_rows.pop()
            for old, new in zip(tensors_of((static.memory, static.state)), tensors, strict=True):
                old.copy_(new)
        static_rows = replace(static, options=rows.options)
        weakref.finalize(static_rows, unused_rows.append, static).atexit = False
        return static_rows


def _input_parts(step: TorchStep, scores: Array | None) -> dict[str, Array]:
    """Return what a step reads, as integers by name: copied together, the device waits once."""
    rows: Any = step.rows
    parts = {"ids": step.ids}
    if rows.size > 1:
        unchanged = np.arange(len(step.ids))
        parts["parents"] = unchanged if rows.parents is None else rows.parents
    if step.ends is not None:
        parts["ends"] = step.ends
    if scores is not None:
        parts["scores"] = scores.ravel().view(np.int32)  # the bits of float32
    return parts


def _mask_ends(values: Tensor, ends: Tensor) -> None:
    """Rule out end-of-sentence, or all else, in the log-probabilities [N, V] of slots [B]."""
    by_slot = values.view(len(ends), -1, values.shape[1])
    eos = by_slot[:, :, EOS_ID].masked_fill((ends == engine.MAY_NOT_END)[:, None], -torch.inf)
    ruled_out = values.new_zeros(len(ends)).masked_fill_(ends == engine.MUST_END, -torch.inf)
    by_slot += ruled_out[:, None, None]  # on a CPU in a seventh of the time of `masked_fill_`
    by_slot[:, :, EOS_ID] = eos


def tensors_of(parts: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, such as a memory or the states of an ensemble."""
    for part in parts:
        if isinstance(part, Tensor):
            yield part
        elif part is not None:
            yield from tensors_of(part)


def best_of(values: Tensor, scores: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return what `Best` holds, for log-probabilities [N, V] and scores [G, K']."""
    groups, size = scores.shape
    if size == count == 1:
        value, token = values.max(dim=-1, keepdim=True)
        return value + scores, torch.zeros_like(token), token, value
    log_probs, tokens = _topk(values, min(count, values.shape[1]))  # [N, M]
    totals = log_probs.view(groups, size, -1) + scores[:, :, None]
    totals = totals.flatten(1)
    best, places = totals.topk(min(count, totals.shape[1]), dim=-1)
    columns = (part.view(groups, -1).gather(1, places) for part in (tokens, log_probs))
    return best, places // log_probs.shape[1], *columns


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest of values [N, V] and their places, as `topk`: [N, count].

    On CUDA `topk` passes over wide rows several times. The largest values are in those blocks of
    which they are the largest: a single pass finds the blocks.
    """
    rows, width = values.shape
    if not values.is_cuda or width < MIN_BLOCKS * BLOCK or count > width // BLOCK:
        largest, places = values.topk(count, dim=-1)
        return largest, places
    padded = F.pad(values, (0, -width % BLOCK), value=-torch.inf) if width % BLOCK else values
    by_block = padded.view(rows, -1, BLOCK)
    blocks = by_block.amax(-1).topk(count).indices  # [N, count]
    candidates = by_block.gather(1, blocks[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    largest, places = candidates.topk(count)
    return largest, blocks.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors as one of float32, which is exact for integers below 2^24, such as tokens."""
    return torch.cat([tensor.flatten().float() for tensor in tensors])


def _unpacked(values: Array, tensors: Sequence[Tensor]) -> list[Array]:
    """Return the values of joined tensors as arrays of their shapes."""
    arrays = []
    start = 0
    for tensor in tensors:
        part = values[start : start + tensor.numel()].reshape(tuple(tensor.shape))
        start += tensor.numel()
        arrays.append(part if tensor.is_floating_point() else part.astype(np.int64))
    return arrays


@cache
def _ids_on_device(ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return ids on a device, once: a copy would wait there."""
    return torch.tensor(ids, dtype=torch.long, device=device)


def drawn(log_probs: Tensor, sampling: Sampling, numbers: Array) -> Tensor:
    """Return a token for each row of log-probabilities [N, V], drawn at numbers [N] in [0, 1)."""
    device = log_probs.device
    where = device if has_float64(device) else torch.device("cpu")
    probs = truncated(log_probs.to(where), sampling)
    return draw(probs, torch.from_numpy(numbers).to(where)).to(device)


def truncated(log_probs: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution [N, V] to draw from, in float64: temperature, top-k, then top-p.

    Top-p (Holtzman et al. 2020) keeps the smallest set of most probable tokens whose probability,
    after temperature and top-k, is at least p. Of equally probable tokens the first are kept.
    """
    values = log_probs.double()
    values = (values - values.amax(-1, keepdim=True)) / sampling.temperature
    best, order = values.sort(dim=-1, descending=True, stable=True)
    if sampling.top_k:
        best[:, sampling.top_k :] = -torch.inf
    probs = best.softmax(dim=-1)
    if sampling.top_p < 1:
        more_probable = probs.cumsum(dim=-1) - probs  # probability of the more probable tokens
        probs = probs.masked_fill(more_probable >= sampling.top_p, 0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probs).scatter_(1, order, probs)


def draw(probs: Tensor, numbers: Tensor) -> Tensor:
    """Invert the distribution function of each row [N, V] at a number in [0, 1) [N]: tokens [N]."""
    sums = probs.cumsum(dim=-1)
    places = torch.searchsorted(sums, numbers[:, None] * sums[:, -1:], right=True)
    after_last = (probs.flip(-1) > 0).int().argmax(dim=-1)  # tokens after the last possible one
    return torch.minimum(places[:, 0], probs.shape[-1] - 1 - after_last)
