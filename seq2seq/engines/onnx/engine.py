"""Engine on ONNX Runtime: arrays of the host, steps of one thread each."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, reduce

import numpy as np
from onnxruntime import InferenceSession

from seq2seq.data.vocabulary.vocabulary import EOS_ID, PAD_ID, Ids
from seq2seq.engines import engine
from seq2seq.engines.engine import Array, Best, Engine, Mask, Parts, Rows, Sampling
from seq2seq.engines.onnx import network
from seq2seq.engines.onnx.graph import FLOAT, INT, Graph, declare, make
from seq2seq.engines.onnx.network import HostStep, Network
from seq2seq.engines.onnx.size import MAX_ROWS as MAX_ROWS

CHUNKS = range(32, 257)  # tokens per chunk of a row; the maxima of chunks are compared first


class OnnxEngine(Engine):
    """A model, or an ensemble by the mean of probabilities; see `Engine` for the calls.

    Every call is batch-invariant, as those of `Network` are, and may be made from several threads.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = list(networks)

    def workers(self, sentences: int) -> int:
        return min(network.threads(), sentences)

    def slot_count(self, width: int, beam_size: int, count: int) -> int:  # noqa: ARG002
        return min(count, max(1, MAX_ROWS // beam_size))

    def encode(self, sources: Sequence[Ids], width: int) -> Rows:
        src = np.full((len(sources), width), PAD_ID, np.int64)
        for row, ids in zip(src, sources, strict=True):
            row[: len(ids)] = ids
            row[len(ids)] = EOS_ID
        lengths = np.array([len(ids) + 1 for ids in sources])
        encoded = [graphs.encode(src, lengths) for graphs in self.networks]
        memory, state = map(Parts, zip(*encoded, strict=True))
        return Rows(memory, state, len(sources))

    def step(self, rows: Rows, ids: Array) -> HostStep:
        if len(self.networks) > 1:
            rows = replace(rows, options=rows.options._replace(log_probs=True))
        steps = [
            graphs.step(replace(rows, memory=memory, state=state), ids)
            for graphs, memory, state in zip(self.networks, rows.memory, rows.state, strict=True)
        ]
        step = steps[0] if len(steps) == 1 else _mean(steps)
        step.values[:, list(rows.options.forbidden_ids)] = -np.inf
        step.rows = replace(rows, state=Parts(step.rows.state for step in steps))
        return step

    def mask(self, step: HostStep, mask: Mask) -> None:
        values = step.values
        if mask.scaled is not None:
            values[mask.scaled[:2]] *= np.float32(mask.scaled[2])
        if mask.forbidden is not None:
            for row, forbidden in zip(*mask.forbidden, strict=True):
                np.putmask(values[row], forbidden, -np.inf)
        by_slot = values.reshape(len(mask.ends), -1, values.shape[1])
        by_slot[mask.ends == engine.MAY_NOT_END, :, EOS_ID] = -np.inf
        for slot in np.flatnonzero(mask.ends == engine.MUST_END):
            ends = by_slot[slot, :, EOS_ID].copy()
            by_slot[slot] = -np.inf
            by_slot[slot, :, EOS_ID] = ends

    def best(self, step: HostStep, scores: Array, count: int) -> Best:
        values = step.values
        groups, size = scores.shape
        if size == count == 1:
            tokens, log_probs = self._argmax(step)
            best = Best(log_probs + scores, np.zeros_like(tokens), tokens, log_probs)
        else:
            inputs = {"log_probs": values, "scores": scores, "count": np.array([count])}
            totals, places = _topk(values.shape[1]).run(None, inputs)
            parents, tokens = np.divmod(places, values.shape[1])
            log_probs = values[parents + np.arange(groups)[:, None] * size, tokens]
            best = Best(totals, parents, tokens, log_probs)
        undefined = step.undefined.reshape(groups, size).any(axis=1)
        best.scores[undefined] = np.nan
        best.log_probs[undefined] = np.nan
        return best

    def _argmax(self, step: HostStep) -> tuple[Array, Array]:
        """Return the best token of each row, and its log-probability or logit: [N, 1], [N, 1]."""
        if step.exact is not None and step.outputs is not None:
            tokens, values = step.exact.argmax(step.values, step.outputs)
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


@cache
def _topk(vocabulary_size: int) -> InferenceSession:
    return network.session(topk_graph(vocabulary_size).content())


def _mean(steps: Sequence[HostStep]) -> HostStep:
    """Return the log of the mean probability and the mean attention weights of networks."""
    values = reduce(np.logaddexp, [step.values for step in steps])
    values -= np.float32(np.log(len(steps)))
    undefined = np.any([step.undefined for step in steps], axis=0)
    weights = [step.attention for step in steps if step.attention is not None]
    mean = np.mean(weights, axis=0) if weights else None
    return HostStep(steps[0].rows, values, mean, undefined=undefined)


def _truncated(log_probs: Array, sampling: Sampling) -> Array:
    """Return the distribution [N, V] to draw from, in float64: temperature, top-k, then top-p.

    Top-p (Holtzman et al. 2020) keeps the smallest set of most probable tokens whose probability,
    after temperature and top-k, is at least p. Of equally probable tokens the first are kept. From
    a row in which no token is possible any token is drawn.
    """
    values = log_probs.astype(np.float64)
    values[np.isneginf(values).all(axis=1)] = 0
    with np.errstate(over="ignore"):  # a tiny temperature leaves the best token alone
        values = (values - values.max(axis=1, keepdims=True)) / sampling.temperature
    if not sampling.top_k and sampling.top_p >= 1:  # sorting takes several times a step
        unsorted: Array = np.exp(values)
        unsorted /= unsorted.sum(axis=1, keepdims=True)
        return unsorted
    order = np.argsort(-values, axis=1, kind="stable")
    probs = np.exp(np.take_along_axis(values, order, 1))
    if sampling.top_k:
        probs[:, sampling.top_k :] = 0
    probs /= probs.sum(axis=1, keepdims=True)
    if sampling.top_p < 1:
        more_probable = probs.cumsum(axis=1) - probs  # probability of the more probable tokens
        probs[more_probable >= sampling.top_p] = 0
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


def topk_graph(vocabulary_size: int) -> Graph:
    """Return the graph of the best continuations in beam search.

    It maps `log_probs` [B K, V], `scores` [B, K] and `count` [1] to `best` [B, count], the largest
    sums of a hypothesis's score and a token's log-probability, best first, and to `places` [B,
    count], which are `k * V + token`. Equal to sorting all sums, in a third of the time for large
    V: the largest lie in the chunks of rows with the largest maxima, so only these are sorted.
    """
    divisors = [chunk for chunk in CHUNKS if vocabulary_size % chunk == 0]
    chunk = min(divisors, key=lambda size: abs(size - 64), default=vocabulary_size)
    inputs = [
        declare("log_probs", FLOAT, ["rows", vocabulary_size]),
        declare("scores", FLOAT, ["batch", "beam"]),
        declare("count", INT, [1]),
    ]
    outputs = [
        declare("best", FLOAT, ["batch", "count"]),
        declare("places", INT, ["batch", "count"]),
    ]
    weights = {"two": 2, "chunk": chunk, "per_row": vocabulary_size // chunk, "rest": -1}
    arrays = {name: np.array([number]) for name, number in weights.items()}
    nodes = [
        make("Shape", ["scores"], ["sizes"]),
        make("Shape", ["scores"], ["sentences"], end=1),
        make("Concat", ["sizes", "rest"], ["by_hypothesis"], axis=0),
        make("Concat", ["sentences", "rest"], ["by_sentence"], axis=0),
        make("Concat", ["by_sentence", "chunk"], ["by_chunk"], axis=0),
        make("Reshape", ["log_probs", "by_chunk"], ["chunks"]),
        make("ReduceMax", ["chunks", "rest"], ["maxima"], keepdims=0),
        make("Reshape", ["maxima", "by_hypothesis"], ["largest"]),
        make("Unsqueeze", ["scores", "two"], ["of_hypotheses"]),
        make("Add", ["largest", "of_hypotheses"], ["sums_of_largest"]),
        make("Reshape", ["sums_of_largest", "by_sentence"], ["bounds"]),
        make("Shape", ["bounds"], ["chunk_count"], start=1),
        make("Min", ["count", "chunk_count"], ["chosen_count"]),
        make("TopK", ["bounds", "chosen_count"], ["best_bounds", "chosen"]),
        make("Unsqueeze", ["chosen", "two"], ["chosen_places"]),
        make("GatherND", ["chunks", "chosen_places"], ["values"], batch_dims=1),
        make("Div", ["chosen", "per_row"], ["parents"]),
        make("GatherElements", ["scores", "parents"], ["of_parents"], axis=1),
        make("Unsqueeze", ["of_parents", "two"], ["added"]),
        make("Add", ["values", "added"], ["sums"]),
        make("Reshape", ["sums", "by_sentence"], ["flat"]),
        make("TopK", ["flat", "count"], ["best", "within_chosen"]),
        make("Div", ["within_chosen", "chunk"], ["ranks"]),
        make("Mod", ["within_chosen", "chunk"], ["within"]),
        make("GatherElements", ["chosen", "ranks"], ["best_chunks"], axis=1),
        make("Mul", ["best_chunks", "chunk"], ["starts"]),
        make("Add", ["starts", "within"], ["places"]),
    ]
    return Graph(nodes, arrays, inputs, outputs)
