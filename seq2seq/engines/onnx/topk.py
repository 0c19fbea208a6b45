"""Best continuations of hypotheses by ONNX Runtime."""

from functools import cached_property

import numpy as np
from onnxruntime import InferenceSession

from seq2seq.engines.engine import Array
from seq2seq.engines.onnx.graph import FLOAT, INT, Graph, declare, make
from seq2seq.engines.onnx.network import session

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
    graph.weights |= {
        "table": np.array([-1, chunk]),
        "per_row": np.array(size // chunk),
    }
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
