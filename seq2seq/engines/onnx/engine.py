"""Engine on ONNX Runtime: arrays of the host, steps of one thread each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from onnxruntime import InferenceSession

from seq2seq.data.vocabulary.vocabulary import EOS_ID, PAD_ID, Ids
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
from seq2seq.engines.onnx.graph import FLOAT, INT, Graph, declare, make
from seq2seq.engines.onnx.network import (
    ATTENTION,
    HEADS,
    LOG_PROBS,
    Arrays,
    Network,
    Stepped,
    session,
    threads,
)

MAX_ROWS = 320  # hypotheses searched together


@dataclass
class HostStep:
    """Result of one step."""

    rows: Rows
    values: Array  # [N, V], log-probabilities, or logits if only the best is read
    undefined: Array  # [N], rows whose log-probabilities are not numbers
    attention: Array | None
    heads: Array | None = None
    outputs: Array | None = None  # [N, R], of which the values are approximate logits


CHUNKS = range(32, 257)  # tokens per chunk of a row; the maxima of chunks are compared first


class TopK:
    """The `count` largest `scores + log_probs` of each sentence.

    Equal to sorting all of them, in a third of the time for large V: the largest sums lie in the
    chunks with the largest maxima, so only these chunks are sorted.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.size = vocabulary_size
        divisors = [chunk for chunk in CHUNKS if vocabulary_size % chunk == 0]
        self.chunk = min(divisors, key=lambda chunk: abs(chunk - 64), default=vocabulary_size)

    @cached_property
    def _plain(self) -> InferenceSession:
        return session(topk_graph().content())

    @cached_property
    def _chunked(self) -> InferenceSession:
        return session(_chunked_graph(self.size, self.chunk).content())

    def __call__(self, log_probs: Array, scores: Array, count: int) -> tuple[Array, Array]:
        """Return the largest sums [B, count], best first, and their places `k * V + token`.

        Takes log-probabilities [B K, V] and scores [B, K].
        """
        inputs = {"log_probs": log_probs, "scores": scores, "count": np.array([count])}
        batch, beam = scores.shape
        chunks = beam * (self.size // self.chunk)
        if chunks < 2 * count:
            best, places = self._plain.run(None, inputs)
            return best, places
        inputs["first"] = np.arange(batch)[:, None] * chunks
        best, chosen, places = self._chunked.run(None, inputs)
        ranks, within = np.divmod(places, self.chunk)
        return best, np.take_along_axis(chosen, ranks, 1) * self.chunk + within


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
        return int(self.networks[0].outputs[LOG_PROBS][1])

    @property
    def attends(self) -> bool:
        return any(ATTENTION in network.outputs for network in self.networks)

    @property
    def has_heads(self) -> bool:
        return len(self.networks) == 1 and HEADS in self.networks[0].outputs

    def workers(self, sentences: int) -> int:
        return min(threads(), sentences)

    @cached_property
    def _topk(self) -> TopK:
        return TopK(self.vocabulary_size)

    def slots(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        return min(count, max(1, MAX_ROWS // beam_size))

    def shrink(self) -> bool:
        return False

    def encode(self, sources: Sequence[Ids], width: int) -> Rows:
        src = np.full((len(sources), width), PAD_ID, np.int64)
        for row, ids in zip(src, sources, strict=True):
            row[: len(ids)], row[len(ids)] = ids, EOS_ID
        lengths = np.array([len(ids) + 1 for ids in sources])
        memory, state = zip(
            *(network.encode(src, lengths) for network in self.networks), strict=True
        )
        return Rows(list(memory), list(state), len(sources))

    def spread(self, rows: Rows, beam_size: int, options: StepOptions) -> Rows:
        state = rows.state
        if beam_size > 1:
            state = _select(state, np.arange(rows.count).repeat(beam_size))
        return Rows(rows.memory, state, rows.count, beam_size, options)

    def put(self, rows: Rows, slots: Array, encoded: Rows, sentences: Array) -> Rows:
        _put(rows.memory, slots, encoded.memory, sentences)
        hypotheses = sentences.repeat(rows.size)
        _put(rows.state, spread(slots, rows.size), encoded.state, hypotheses)
        return rows

    def keep(self, rows: Rows, slots: Array) -> Rows:
        memory = _select(rows.memory, slots)
        state = _select(rows.state, spread(slots, rows.size))
        return replace(rows, memory=memory, state=state, count=len(slots))

    def select(self, rows: Rows, parents: Array) -> Rows:
        return replace(rows, state=_select(rows.state, parents))

    def step(self, rows: Rows, ids: Array) -> HostStep:
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
        values = step.values
        if mask.scaled is not None:
            values[mask.scaled[:2]] *= np.float32(mask.scaled[2])
        if mask.forbidden is not None:
            for row, forbidden in zip(*mask.forbidden, strict=True):
                np.putmask(values[row], forbidden, -np.inf)
        by_slot = values.reshape(len(mask.ends), -1, values.shape[1])
        by_slot[mask.ends == MAY_NOT_END, :, EOS_ID] = -np.inf
        for slot in np.flatnonzero(mask.ends == MUST_END):
            ends = by_slot[slot, :, EOS_ID].copy()
            by_slot[slot] = -np.inf
            by_slot[slot, :, EOS_ID] = ends

    def best(self, step: HostStep, scores: Array, count: int) -> Best:
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
        tokens = _drawn(_truncated(step.values, sampling), numbers)[:, None]
        log_probs = np.take_along_axis(step.values, tokens, 1)
        log_probs[step.undefined] = np.nan
        return Best(log_probs, np.zeros_like(tokens), tokens, log_probs)

    def log_probs(self, step: HostStep, rows: Array, tokens: Array) -> Array:
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


def topk_graph() -> Graph:
    """Return the graph of the best continuations in beam search.

    It maps `log_probs` [B K, V], `scores` [B, K] and `count` [1] to `best` [B, count], the largest
    sums of a hypothesis's score and a token's log-probability, best first, and to `places` [B,
    count], which are `k * V + token`.
    """
    graph = _sums_graph()
    graph.outputs += [
        declare("best", FLOAT, ["batch", "count"]),
        declare("places", INT, ["batch", "count"]),
    ]
    graph.nodes += [
        make("Reshape", ["log_probs", "by_hypothesis"], ["values"]),
        make("Add", ["values", "of_hypotheses"], ["sums"]),
        make("Reshape", ["sums", "by_sentence"], ["flat"]),
        make("TopK", ["flat", "count"], ["best", "places"]),
    ]
    return graph


def _chunked_graph(size: int, chunk: int) -> Graph:
    """Return the graph of the best sums, among the chunks with the largest ones.

    It has the further input `first` [B, 1], the number of the first chunk of a sentence, and maps
    to `best` [B, count], the chunks `chosen` [B, count] and `places` [B, count] in these.
    """
    graph = _sums_graph()
    graph.inputs.append(declare("first", INT, ["batch", 1]))
    graph.outputs += [
        declare("best", FLOAT, ["batch", "count"]),
        declare("chosen", INT, ["batch", "count"]),
        declare("places", INT, ["batch", "count"]),
    ]
    graph.weights |= {"table": np.array([-1, chunk]), "per_row": np.array(size // chunk)}
    graph.nodes += [
        make("Reshape", ["log_probs", "table"], ["chunks"]),
        make("ReduceMax", ["chunks", "minus_one"], ["maxima"], keepdims=0),
        make("Reshape", ["maxima", "by_hypothesis"], ["largest"]),
        make("Add", ["largest", "of_hypotheses"], ["bounds"]),
        make("Reshape", ["bounds", "by_sentence"], ["all_bounds"]),
        make("TopK", ["all_bounds", "count"], ["best_bounds", "chosen"]),
        make("Add", ["chosen", "first"], ["rows"]),
        make("Gather", ["chunks", "rows"], ["values"]),
        make("Div", ["chosen", "per_row"], ["parents"]),
        make("GatherElements", ["scores", "parents"], ["of_parents"], axis=1),
        make("Unsqueeze", ["of_parents", "two"], ["added"]),
        make("Add", ["values", "added"], ["sums"]),
        make("Reshape", ["sums", "by_sentence"], ["flat"]),
        make("TopK", ["flat", "count"], ["best", "places"]),
    ]
    return graph


def _sums_graph() -> Graph:
    """Return a graph with the shapes that sums of log-probabilities and scores need."""
    inputs = [
        declare("log_probs", FLOAT, ["rows", "vocabulary"]),
        declare("scores", FLOAT, ["batch", "beam"]),
        declare("count", INT, [1]),
    ]
    weights = {"two": np.array([2]), "minus_one": np.array([-1])}
    nodes = [
        make("Shape", ["scores"], ["sizes"]),
        make("Shape", ["scores"], ["sentences"], start=0, end=1),
        make("Concat", ["sizes", "minus_one"], ["by_hypothesis"], axis=0),
        make("Concat", ["sentences", "minus_one"], ["by_sentence"], axis=0),
        make("Unsqueeze", ["scores", "two"], ["of_hypotheses"]),
    ]
    return Graph(nodes, weights, inputs, [])
