"""Engine on ONNX Runtime: arrays of the host, steps of one thread each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID, PAD_ID, Ids
from seq2seq.engines.engine import (
    DEFAULT_OPTIONS,
    MAY_NOT_END,
    MUST_END,
    Array,
    Best,
    Mask,
    Sampling,
    StepOptions,
)
from seq2seq.engines.onnx.network import (
    ATTENTION,
    HEADS,
    LOG_PROBS,
    Arrays,
    Network,
    Stepped,
    threads,
)
from seq2seq.engines.onnx.topk import TopK

MAX_ROWS = 320  # hypotheses searched together


@dataclass
class HostRows:
    """Memory, a row per sentence, and state, a row per hypothesis, of each network."""

    memory: list[Arrays]
    state: list[Arrays]
    count: int  # sentences
    size: int = 1  # hypotheses per sentence
    options: StepOptions = DEFAULT_OPTIONS


@dataclass
class HostStep:
    """Result of one step."""

    rows: HostRows
    values: Array  # [N, V], log-probabilities, or logits if only the best is read
    undefined: Array  # [N], rows whose log-probabilities are not numbers
    attention: Array | None
    heads: Array | None = None
    outputs: Array | None = None  # [N, R], of which the values are approximate logits


class OnnxEngine:
    """A model, or an ensemble by the mean of probabilities; see `Engine` for the calls.

    Every call is batch-invariant, as those of `Network` are, and may be made from several threads.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = list(networks)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the graphs: sessions belong to this process."""
        return OnnxEngine, (self.networks,)

    @property
    def vocabulary_size(self) -> int:
        """Return the number of target tokens, V."""
        return int(self.networks[0].outputs[LOG_PROBS][1])

    @property
    def attends(self) -> bool:
        """Return whether steps have attention weights."""
        return any(ATTENTION in network.outputs for network in self.networks)

    @property
    def has_heads(self) -> bool:
        """Return whether steps have attention weights of several heads."""
        return len(self.networks) == 1 and HEADS in self.networks[0].outputs

    def workers(self, sentences: int) -> int:
        """Return how many threads of Python should search batches of their own side by side."""
        return min(threads(), sentences)

    @cached_property
    def _topk(self) -> TopK:
        return TopK(self.vocabulary_size)

    def slots(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        """Return the number of slots for `count` sentences."""
        return min(count, max(1, MAX_ROWS // beam_size))

    def shrink(self) -> bool:
        """Return False: batches are small."""
        return False

    def encode(self, sources: Sequence[Ids], width: int) -> HostRows:
        """Return one row for each source."""
        src = np.full((len(sources), width), PAD_ID, np.int64)
        for row, ids in zip(src, sources, strict=True):
            row[: len(ids)], row[len(ids)] = ids, EOS_ID
        lengths = np.array([len(ids) + 1 for ids in sources])
        memory, state = zip(
            *(network.encode(src, lengths) for network in self.networks), strict=True
        )
        return HostRows(list(memory), list(state), len(sources))

    def spread(self, rows: HostRows, beam_size: int, options: StepOptions) -> HostRows:
        """Return slots of K hypotheses."""
        state = rows.state
        if beam_size > 1:
            state = _select(state, np.arange(rows.count).repeat(beam_size))
        return HostRows(rows.memory, state, rows.count, beam_size, options)

    def put(self, rows: HostRows, slots: Array, encoded: HostRows, sentences: Array) -> HostRows:
        """Overwrite the rows of slots by those of encoded sentences."""
        _put(rows.memory, slots, encoded.memory, sentences)
        hypotheses = sentences.repeat(rows.size)
        _put(rows.state, _hypotheses(slots, rows.size), encoded.state, hypotheses)
        return rows

    def keep(self, rows: HostRows, slots: Array) -> HostRows:
        """Return the rows of these slots."""
        memory = _select(rows.memory, slots)
        state = _select(rows.state, _hypotheses(slots, rows.size))
        return replace(rows, memory=memory, state=state, count=len(slots))

    def select(self, rows: HostRows, parents: Array) -> HostRows:
        """Return the rows whose states are those of `parents` [N]."""
        return replace(rows, state=_select(rows.state, parents))

    def step(self, rows: HostRows, ids: Array) -> HostStep:
        """Advance all rows, given their last ids [N]."""
        options = rows.options
        read = [ATTENTION] * options.attention + [HEADS] * options.heads
        log_probs = options.log_probs or len(self.networks) > 1
        steps = [
            network.step(ids, state, memory, log_probs, read)
            for network, state, memory in zip(self.networks, rows.state, rows.memory, strict=True)
        ]
        state = [step.state for step in steps]
        step = steps[0] if len(steps) == 1 else _mean(steps)
        step.values[:, list(options.forbidden_ids)] = -np.inf
        return HostStep(replace(rows, state=state), step.values, step.undefined, *step[3:])

    def mask(self, step: HostStep, mask: Mask) -> None:
        """Change the log-probabilities of a step."""
        values = step.values
        if mask.scaled is not None:
            values[mask.scaled[:2]] *= np.float32(mask.scaled[2])
        if mask.allowed is not None:
            allowed = values[mask.allowed]
            values[np.unique(mask.allowed[0])] = -np.inf
            values[mask.allowed] = allowed
        if mask.forbidden is not None:
            values[mask.forbidden] = -np.inf
        by_slot = values.reshape(len(mask.ends), -1, values.shape[1])
        by_slot[mask.ends == MAY_NOT_END, :, EOS_ID] = -np.inf
        for slot in np.flatnonzero(mask.ends == MUST_END):
            ends = by_slot[slot, :, EOS_ID].copy()
            by_slot[slot] = -np.inf
            by_slot[slot, :, EOS_ID] = ends

    def best(self, step: HostStep, scores: Array, count: int) -> Best:
        """Return the best continuations of groups of hypotheses."""
        values, (groups, size) = step.values, scores.shape
        if size == count == 1:
            tokens, log_probs = self._argmax(step)
            best = Best(log_probs + scores, np.zeros_like(tokens), tokens, log_probs)
        else:
            totals, places = self._topk(values, scores, count)
            parents, tokens = np.divmod(places, values.shape[1])
            log_probs = values[parents + np.arange(groups)[:, None] * size, tokens]
            best = Best(totals, parents, tokens, log_probs)
        undefined = step.undefined.reshape(groups, size).any(axis=1)
        best.scores[undefined], best.log_probs[undefined] = np.nan, np.nan
        return best

    def _argmax(self, step: HostStep) -> tuple[Array, Array]:
        """Return the best token of each row, and its log-probability or logit: [N, 1], [N, 1]."""
        approximate = self.networks[0].approximate if step.outputs is not None else None
        if approximate is not None and step.outputs is not None:
            tokens, values = approximate.argmax(step.values, step.outputs)
            return tokens[:, None], values[:, None]
        places = step.values.argmax(axis=1)[:, None]
        return places, np.take_along_axis(step.values, places, 1)

    def draw(self, step: HostStep, sampling: Sampling, numbers: Array) -> Best:
        """Draw a token for each row."""
        tokens = _drawn(_truncated(step.values, sampling), numbers)[:, None]
        log_probs = np.take_along_axis(step.values, tokens, 1)
        log_probs[step.undefined] = np.nan
        return Best(log_probs, np.zeros_like(tokens), tokens, log_probs)

    def log_probs(self, step: HostStep, rows: Array, tokens: Array) -> Array:
        """Return the log-probabilities [M] of places."""
        values: Array = step.values[rows, tokens]
        return values


def _mean(steps: Sequence[Stepped]) -> Stepped:
    """Return the log of the mean probability and the mean attention weights of networks."""
    values = steps[0].values
    for step in steps[1:]:
        values = np.logaddexp(values, step.values)
    values -= np.float32(np.log(len(steps)))
    undefined = np.any([step.undefined for step in steps], axis=0)
    weights = [step.attention for step in steps if step.attention is not None]
    mean = np.mean(weights, axis=0) if weights else None
    return Stepped(values, {}, undefined, mean)


def _select(parts: Sequence[Arrays], rows: Array) -> list[Arrays]:
    return [{name: part.take(rows, axis=0) for name, part in arrays.items()} for arrays in parts]


def _put(parts: Sequence[Arrays], rows: Array, sources: Sequence[Arrays], taken: Array) -> None:
    for target, source in zip(parts, sources, strict=True):
        for name, part in target.items():
            part[rows] = source[name][taken]


def _hypotheses(slots: Array, size: int) -> Array:
    """Return the rows of slots [M]: [M * K]."""
    rows: Array = (slots[:, None] * size + np.arange(size)).ravel()
    return rows


def _truncated(log_probs: Array, sampling: Sampling) -> Array:
    """Return the distribution [N, V] to draw from, in float64: temperature, top-k, then top-p.

    Top-p (Holtzman et al. 2020) keeps the smallest set of most probable tokens whose probability,
    after temperature and top-k, is at least p. Of equally probable tokens the first are kept.
    """
    values = log_probs.astype(np.float64)
    values = (values - values.max(axis=1, keepdims=True)) / sampling.temperature
    order = np.argsort(-values, axis=1, kind="stable")
    probs = np.exp(np.take_along_axis(values, order, 1))
    if sampling.top_k:
        probs[:, sampling.top_k :] = 0
    probs /= probs.sum(axis=1, keepdims=True)
    if sampling.top_p < 1:
        before = probs.cumsum(axis=1) - probs  # probability of the more probable tokens
        probs[before >= sampling.top_p] = 0
        probs /= probs.sum(axis=1, keepdims=True)
    by_token: Array = np.empty_like(probs)
    np.put_along_axis(by_token, order, probs, 1)
    return by_token


def _drawn(probs: Array, numbers: Array) -> Array:
    """Invert the distribution function of each row [N, V] at a number in [0, 1) [N]: tokens [N]."""
    sums = probs.cumsum(axis=1)
    places = (sums <= numbers[:, None] * sums[:, -1:]).sum(axis=1)
    last = probs.shape[1] - 1 - (probs[:, ::-1] > 0).argmax(axis=1)  # the last possible token
    tokens: Array = np.minimum(places, last)
    return tokens
