"""Search engine over a plain torch model: greedy, beam and sampling wait for a GPU once a step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, Ids
from seq2seq.engines.engine import (
    MAY_NOT_END,
    MUST_END,
    Array,
    Best,
    Mask,
    Rows,
    Sampling,
    StepOptions,
    spread,
)
from seq2seq.runtime.device import empty_cache, has_float64

MAX_POSITIONS = 16_384  # source positions at once of long sentences on CPU
BLOCK, MIN_BLOCKS = 64, 32  # tokens of a block of the vocabulary on CUDA, and blocks at least
MAX_SLOTS = 1024
GPU_FACTOR = 4  # a GPU, where a step takes equally long for few rows, has more slots


class Model(Protocol):
    """All that the engine calls on a model: a `Seq2Seq`, an `Ensemble` or a test double.

    Memory and state are opaque, but for `select(rows)` and `put(rows, other, taken)`.
    """

    def encode(self, src: Tensor, src_lengths: Tensor) -> Any:
        """Encode source ids [B, S] with lengths [B], end-of-sentence included."""

    def start(self, encoded: Any) -> tuple[Any, Any]:
        """Return memory and initial state, both the caller's to overwrite."""

    def step(self, ids: Tensor, state: Any, memory: Any) -> Any:
        """Advance N = B * K hypotheses, given their last ids [N], by one target position.

        The result has `outputs` to project, the next `state`, and `attention_weights` [N, S] and
        `head_weights` [N, M, S] of M heads, or None.
        """

    def project(self, outputs: Any) -> Tensor:
        """Return logits [N, V], which the caller may overwrite, for the outputs of N rows."""


Weights = tuple[Tensor | None, Tensor | None]  # attention weights, and those of heads


class TorchStep:
    """Result of one step: log-probabilities on the device, attention weights once copied."""

    def __init__(self, rows: Rows, values: Tensor, weights: Weights) -> None:
        self.rows, self.values, self.weights = rows, values, weights
        self.attention: Array | None = None
        self.heads: Array | None = None


class TorchEngine:
    """A model, or an `Ensemble`, on one device; see `Engine` for the calls."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self.model, self.device = model, device
        self._limit = MAX_SLOTS

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the model."""
        return type(self), (self.model, self.device)

    @property
    def vocabulary_size(self) -> int:
        return self._trial.values.shape[1]

    @property
    def attends(self) -> bool:
        return self._trial.weights[0] is not None

    @property
    def has_heads(self) -> bool:
        return self._trial.weights[1] is not None

    @cached_property
    def _trial(self) -> TorchStep:
        """The first step for an empty source, to see which outputs the model has."""
        options = StepOptions(attention=True, heads=True)
        return self.step(self.spread(self.encode([[]], 1), 1, options), np.array([BOS_ID]))

    def workers(self, sentences: int) -> int:  # noqa: ARG002
        return 1

    def slots(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        """Return the number of slots; longer sentences, which are rare, get fewer.

        It depends on the padded width alone, so that the shapes of all operations do, too: kernels
        are chosen by shape, and a sentence has the same result beside any others.
        """
        rows = 64 if width <= 32 else 32 if width <= 64 else max(1, min(16, MAX_POSITIONS // width))
        rows *= 1 if self.device.type == "cpu" else GPU_FACTOR
        return max(1, min(rows, self._limit))

    def shrink(self) -> bool:
        self._limit //= 2
        empty_cache(self.device)
        return self._limit > 0

    @torch.inference_mode()
    def encode(self, sources: Sequence[Ids], width: int) -> Rows:
        src, lengths = pad_sources(sources, width)
        encoded = self.model.encode(src.to(self.device), lengths.to(self.device))
        return Rows(*self.model.start(encoded), len(sources))

    @torch.inference_mode()
    def spread(self, rows: Rows, beam_size: int, options: StepOptions) -> Rows:
        state = rows.state
        if beam_size > 1:
            state = state.select(self._tensor(np.arange(rows.count).repeat(beam_size)))
        return Rows(rows.memory, state, rows.count, beam_size, options)

    @torch.inference_mode()
    def put(self, rows: Rows, slots: Array, encoded: Rows, sentences: Array) -> Rows:
        rows.memory.put(self._tensor(slots), encoded.memory, self._tensor(sentences))
        hypotheses = self._tensor(spread(slots, rows.size))
        rows.state.put(hypotheses, encoded.state, self._tensor(sentences.repeat(rows.size)))
        return rows

    @torch.inference_mode()
    def keep(self, rows: Rows, slots: Array) -> Rows:
        memory = rows.memory.select(self._tensor(slots))
        state = rows.state.select(self._tensor(spread(slots, rows.size)))
        return Rows(memory, state, len(slots), rows.size, rows.options)

    @torch.inference_mode()
    def select(self, rows: Rows, parents: Array) -> Rows:
        return replace(rows, state=rows.state.select(self._tensor(parents)))

    @torch.inference_mode()
    def step(self, rows: Rows, ids: Array) -> TorchStep:
        state, values, weights = self._advance(rows, rows.state, self._tensor(ids))
        return TorchStep(replace(rows, state=state), values, weights)

    def _advance(self, rows: Rows, state: Any, ids: Tensor) -> tuple[Any, Tensor, Weights]:
        """Return the next state, log-probabilities [N, V], and weights as far as they are read."""
        options = rows.options
        step = self.model.step(ids, state, rows.memory)
        values = self.model.project(step.outputs)
        if not options.log_probs or values.dtype == torch.float64:
            values = values.float()
        if options.log_probs and values.dtype == torch.float32:
            values = torch.log_softmax(values, -1, out=values)  # in place: it is large
        elif options.log_probs:
            values = torch.log_softmax(values, -1, dtype=torch.float32)
        for tokens in _slices(options.forbidden_ids):
            values[:, tokens] = -torch.inf
        weights = (
            step.attention_weights if options.attention else None,
            step.head_weights if options.heads else None,
        )
        return step.state, values, weights

    @torch.inference_mode()
    def mask(self, step: TorchStep, mask: Mask) -> None:
        values = step.values
        if mask.scaled is not None:
            places = self._tensor(mask.scaled[0]), self._tensor(mask.scaled[1])
            values[places] *= mask.scaled[2]
        if mask.forbidden is not None:
            rows, forbidden = map(self._tensor, mask.forbidden)
            values[rows] = values[rows].masked_fill_(forbidden, -torch.inf)
        by_slot = values.view(len(mask.ends), -1, values.shape[1])
        if len(slots := np.flatnonzero(mask.ends == MAY_NOT_END)):
            by_slot[self._tensor(slots), :, EOS_ID] = -torch.inf
        if len(slots := np.flatnonzero(mask.ends == MUST_END)):
            last = self._tensor(slots)
            ends = by_slot[last, :, EOS_ID]
            by_slot[last] = -torch.inf
            by_slot[last, :, EOS_ID] = ends

    @torch.inference_mode()
    def best(self, step: TorchStep, scores: Array, count: int) -> Best:
        return Best(*self._on_host(step, *best_of(step.values, self._tensor(scores), count)))

    @torch.inference_mode()
    def draw(self, step: TorchStep, sampling: Sampling, numbers: Array) -> Best:
        tokens = drawn(step.values, sampling, numbers)
        log_probs = step.values.gather(1, tokens[:, None])
        zeros = torch.zeros_like(tokens)
        parts = (part[:, None] for part in (zeros, tokens))
        return Best(*self._on_host(step, log_probs, *parts, log_probs))

    @torch.inference_mode()
    def log_probs(self, step: TorchStep, rows: Array, tokens: Array) -> Array:
        values = step.values[self._tensor(rows), self._tensor(tokens)]
        return self._on_host(step, values)[0]

    def _on_host(self, step: TorchStep, *parts: Tensor) -> list[Array]:
        """Copy parts, and the attention weights of a step, to the host at once."""
        weights = [part for part in step.weights if part is not None]
        arrays = host_arrays([*parts, *(part.float() for part in weights)])
        left = iter(arrays[len(parts) :])
        if weights:
            step.attention, step.heads = (
                None if part is None else next(left) for part in step.weights
            )
            step.weights = None, None
        return arrays[: len(parts)]

    def _tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(values).to(self.device)


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
    chosen = (part.view(groups, -1).gather(1, places) for part in (tokens, log_probs))
    return best, places // log_probs.shape[1], *chosen


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


def host_arrays(tensors: Sequence[Tensor]) -> list[Array]:
    """Copy float32 and integer tensors of one device to the host, waiting for a GPU once.

    Integers are copied as int32, in the bits of float32.
    """
    if tensors[0].device.type == "cpu":
        return [tensor.numpy() for tensor in tensors]
    return split(joined(tensors).cpu().numpy(), tensors)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return float32 tensors and, in the bits of float32, integers as one tensor."""
    flat = [tensor.flatten() for tensor in tensors]
    return torch.cat(
        [part if part.is_floating_point() else part.int().view(torch.float32) for part in flat]
    )


def split(values: Array, tensors: Sequence[Tensor]) -> list[Array]:
    """Return the values of `joined` tensors as arrays of their shapes."""
    arrays, start = [], 0
    for tensor in tensors:
        part = values[start : start + tensor.numel()]
        start += tensor.numel()
        if not tensor.is_floating_point():
            part = part.view(np.int32).astype(np.int64)
        arrays.append(part.reshape(tuple(tensor.shape)))
    return arrays


def _slices(ids: Sequence[int]) -> list[slice]:
    """Return ids as slices of consecutive ones; a list would be copied to the device."""
    slices: list[slice] = []
    for i in sorted(set(ids)):
        if slices and slices[-1].stop == i:
            slices[-1] = slice(slices[-1].start, i + 1)
        else:
            slices.append(slice(i, i + 1))
    return slices


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
        before = probs.cumsum(dim=-1) - probs  # probability of the more probable tokens
        probs = probs.masked_fill(before >= sampling.top_p, 0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probs).scatter_(1, order, probs)


def draw(probs: Tensor, numbers: Tensor) -> Tensor:
    """Invert the distribution function of each row [N, V] at a number in [0, 1) [N]: tokens [N]."""
    sums = probs.cumsum(dim=-1)
    places = torch.searchsorted(sums, numbers[:, None] * sums[:, -1:], right=True)
    last = (
        probs.shape[-1] - 1 - (probs.flip(-1) > 0).int().argmax(dim=-1)
    )  # the last possible token
    return torch.minimum(places[:, 0], last)


class Parts(tuple[Any, ...]):
    """Memory or state of each model, whose rows move together."""

    def select(self, rows: Tensor) -> "Parts":
        """Select rows in every model's part."""
        return Parts(part.select(rows) for part in self)

    def put(self, rows: Tensor, source: "Parts", taken: Tensor | slice) -> None:
        """Overwrite `rows` by the rows `taken` of `source` in every model's part."""
        for part, source_part in zip(self, source, strict=True):
            part.put(rows, source_part, taken)


class EnsembleStep(NamedTuple):
    """Result of one step of every model for N rows."""

    outputs: tuple[Any, ...]  # [N, R] per model
    state: Parts
    attention_weights: Tensor | None  # [N, S], the mean over models with attention
    head_weights: None = None  # the heads of different models do not correspond


class Ensemble:
    """Models over the same vocabularies; `project` returns the log of their mean probability.

    The mean of log-probabilities (a log-linear ensemble) would rule out every token that one model
    finds impossible.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        self.models = tuple(models)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Any, ...]:
        """Encode source ids [B, S] with lengths [B] by each model."""
        return tuple(model.encode(src, src_lengths) for model in self.models)

    def start(self, encoded: tuple[Any, ...]) -> tuple[Parts, Parts]:
        """Return the memory and the initial state of each model."""
        starts = [model.start(part) for model, part in zip(self.models, encoded, strict=True)]
        return Parts(memory for memory, _ in starts), Parts(state for _, state in starts)

    def step(self, ids: Tensor, state: Parts, memory: Parts) -> EnsembleStep:
        """Advance every model by the same ids [N]."""
        steps = [
            model.step(ids, own_state, own_memory)
            for model, own_state, own_memory in zip(self.models, state, memory, strict=True)
        ]
        weights = [step.attention_weights for step in steps if step.attention_weights is not None]
        return EnsembleStep(
            tuple(step.outputs for step in steps),
            Parts(step.state for step in steps),
            torch.stack(weights).mean(0) if weights else None,
        )

    def project(self, outputs: tuple[Any, ...]) -> Tensor:
        """Return the log of the mean probability [N, V] for each model's outputs [N, R]."""
        log_probs = torch.stack(
            [
                model.project(part).float().log_softmax(dim=-1)
                for model, part in zip(self.models, outputs, strict=True)
            ]
        )
        return log_probs.logsumexp(dim=0) - math.log(len(self.models))
