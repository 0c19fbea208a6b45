"""Search engine over a plain torch model: greedy, beam and sampling wait for a GPU once a step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.data.padding import pad_sources
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines import engine
from seq2seq.engines.engine import Array, Best, Engine, EngineStep, Mask, Parts, Rows, Sampling
from seq2seq.model import state as model_state
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runtime.device import empty_cache, has_float64

MAX_POSITIONS = 16_384  # source positions at once of long sentences on CPU
BLOCK, MIN_BLOCKS = 64, 32  # tokens of a block of the vocabulary on CUDA, and blocks at least
MAX_SLOTS = 1024
GPU_FACTOR = 4  # a GPU, where a step takes equally long for few rows, has more slots


Weights = tuple[Tensor | None, Tensor | None]  # attention weights, and those of heads


@dataclass
class TorchStep(EngineStep):
    """Result of one step: log-probabilities on the device, attention weights once copied."""

    weights: Weights = (None, None)  # on the device, until they are copied

    def read(self, arrays: list[Array]) -> list[Array]:
        """Take the weights, the last of arrays on the host; return the others."""
        count = len(floats(self.weights))
        left = iter(arrays[len(arrays) - count :])
        if count:
            self.attention, self.heads = (
                None if part is None else next(left) for part in self.weights
            )
            self.weights = None, None
        return arrays[: len(arrays) - count]


class TorchEngine(Engine):
    """A model, or an `Ensemble`, on one device; see `Engine` for the calls."""

    def __init__(self, model: "Model", device: torch.device) -> None:
        self.model, self.device = model, device
        self._limit = MAX_SLOTS

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the model."""
        return type(self), (self.model, self.device)

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
        src, lengths = (part.to(self.device) for part in pad_sources(sources, width))
        return Rows(*self._start(src, lengths), len(sources))

    def _start(self, src: Tensor, lengths: Tensor) -> tuple[Any, Any]:
        encoded: Any = self.model.encode(src, lengths)
        return self.model.start(encoded)

    def places(self, rows: Array) -> Tensor:
        return torch.from_numpy(rows).to(self.device)

    spread = torch.inference_mode()(Engine.spread)
    put = torch.inference_mode()(Engine.put)
    keep = torch.inference_mode()(Engine.keep)
    select = torch.inference_mode()(Engine.select)

    @torch.inference_mode()
    def step(self, rows: Rows, ids: Array) -> TorchStep:
        state, values, weights = self._advance(rows, rows.state, self.places(ids))
        return TorchStep(rows.of(rows.memory, state), values, weights=weights)

    def _advance(self, rows: Rows, state: Any, ids: Tensor) -> tuple[Any, Tensor, Weights]:
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
        values.index_fill_(1, _on_device(options.forbidden_ids, self.device), -torch.inf)
        weights = (
            step.attention_weights if options.attention else None,
            step.head_weights if options.heads else None,
        )
        return step.state, values, weights

    @torch.inference_mode()
    def mask(self, step: TorchStep, mask: Mask) -> None:
        values = step.values
        if mask.scaled is not None:
            places = self.places(mask.scaled[0]), self.places(mask.scaled[1])
            values[places] *= mask.scaled[2]
        if mask.forbidden is not None:
            rows, forbidden = map(self.places, mask.forbidden)
            values[rows] = values[rows].masked_fill_(forbidden, -torch.inf)
        by_slot = values.view(len(mask.ends), -1, values.shape[1])
        if len(slots := np.flatnonzero(mask.ends == engine.MAY_NOT_END)):
            by_slot[self.places(slots), :, EOS_ID] = -torch.inf
        if len(slots := np.flatnonzero(mask.ends == engine.MUST_END)):
            last = self.places(slots)
            ends = by_slot[last, :, EOS_ID]
            by_slot[last] = -torch.inf
            by_slot[last, :, EOS_ID] = ends

    @torch.inference_mode()
    def best(self, step: TorchStep, scores: Array, count: int) -> Best:
        return Best(*self._on_host(step, *best_of(step.values, self.places(scores), count)))

    @torch.inference_mode()
    def draw(self, step: TorchStep, sampling: Sampling, numbers: Array) -> Best:
        tokens = drawn(step.values, sampling, numbers)
        log_probs = step.values.gather(1, tokens[:, None])
        zeros = torch.zeros_like(tokens)
        parts = (part[:, None] for part in (zeros, tokens))
        return Best(*self._on_host(step, log_probs, *parts, log_probs))

    @torch.inference_mode()
    def log_probs(self, step: TorchStep, rows: Array, tokens: Array) -> Array:
        values = step.values[self.places(rows), self.places(tokens)]
        return self._on_host(step, values)[0]

    def _on_host(self, step: TorchStep, *parts: Tensor) -> list[Array]:
        """Copy parts, and the attention weights of a step, to the host at once."""
        return step.read(host_arrays([*parts, *floats(step.weights)]))


def floats(weights: Weights) -> list[Tensor]:
    """Return the weights that are read in float32."""
    return [part.float() for part in weights if part is not None]


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


@cache
def _on_device(ids: tuple[int, ...], device: torch.device) -> Tensor:
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


class Ensemble:
    """Models over the same vocabularies; `project` returns the log of their mean probability.

    The mean of log-probabilities (log-linear) would rule out what one model finds impossible.
    """

    def __init__(self, models: Iterable["Model"]) -> None:
        self.models = tuple(models)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Any, ...]:
        """Encode source ids [B, S] with lengths [B] by each model."""
        return tuple(model.encode(src, src_lengths) for model in self.models)

    def start(self, encoded: tuple[Any, ...]) -> tuple[Parts, Parts]:
        """Return the memory and the initial state of each model."""
        starts = [model.start(part) for model, part in zip(self.models, encoded, strict=True)]
        return Parts(memory for memory, _ in starts), Parts(state for _, state in starts)

    def step(self, ids: Tensor, state: Parts, memory: Parts) -> Any:
        """Advance every model by the same ids [N]; heads of different models do not correspond."""
        parts = zip(self.models, state, memory, strict=True)
        steps = [model.step(ids, *own_parts) for model, *own_parts in parts]
        outputs, states, weights, _ = zip(*steps, strict=True)
        attention = [part for part in weights if part is not None]
        mean = torch.stack(attention).mean(0) if attention else None
        step: Any = model_state.Step
        return step(outputs, Parts(states), mean)

    def project(self, outputs: tuple[Any, ...]) -> Tensor:
        """Return the log of the mean probability [N, V] for each model's outputs [N, R]."""
        log_probs = torch.stack(
            [
                model.project(part).float().log_softmax(dim=-1)
                for model, part in zip(self.models, outputs, strict=True)
            ]
        )
        return log_probs.logsumexp(dim=0) - math.log(len(self.models))


Model = Seq2Seq | Ensemble
