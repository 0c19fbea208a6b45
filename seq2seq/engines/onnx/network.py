"""The two graphs of a model in ONNX Runtime: encode sources, and advance hypotheses.

Greedy search takes the exact argmax of float32 logits from int8 ones with a proven error bound.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime import InferenceSession

from seq2seq.engines.engine import Array, EngineStep, GraphFiles, Rows
from seq2seq.engines.onnx import int8 as quantizing
from seq2seq.engines.onnx.bounds import bounds_of
from seq2seq.engines.onnx.graph import FLOAT, INT32, PRODUCT, UINT8, Graph, declare, make
from seq2seq.engines.onnx.size import ENCODED_ROWS as ENCODED_ROWS
from seq2seq.engines.onnx.untrusted_graphs import GraphError, check_number_of_operators
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.threads import requested_threads


class Arrays(dict[str, Array]):
    """Parts of a memory or state by the names they have in the graphs; see `engine.Parts`."""

    def select(self, rows: Array) -> "Arrays":
        return Arrays((name, part.take(rows, axis=0)) for name, part in self.items())

    def put(self, rows: Array, source: "Arrays", taken: Array) -> None:
        for name, part in self.items():
            part[rows] = source[name][taken]


LOG_PROBS = "log_probs"
LOGITS = "logits"
OUTPUTS = "outputs"
ATTENTION = "attention_weights"
HEADS = "head_weights"
_NEXT = "next_"  # prefix of the state after a step


@dataclass
class HostStep(EngineStep):
    """Result of one step on the host."""

    undefined: Array = field(kw_only=True)  # [N], rows whose values are not numbers
    outputs: Array | None = None  # [N, R], of which the values are approximate logits
    exact: "ApproximateProjection | None" = None  # that makes these logits exact


class Network:
    """The encoder and the decoder of one model.

    Every call is batch-invariant: the kernels that ONNX Runtime chooses do not depend on the number
    of rows, nor those of the encoder on the padding. Sessions have one thread and may be shared.
    """

    def __init__(self, encoder: bytes, decoder: bytes) -> None:
        """Prepare the graphs; raises an error of ONNX Runtime for bytes that are none."""
        self._graphs = encoder, decoder
        self._encoder = session(encoder)
        self._decoder = session(decoder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the graphs: sessions belong to this process."""
        return Network, self._graphs

    @cached_property
    def _greedy(self) -> tuple[InferenceSession, "ApproximateProjection | None"]:
        """Return the decoder that stops at logits, which in float32 may be approximate."""
        try:
            content, approximate = split_projection(self._graphs[1])
            return (self._decoder if content is None else session(content)), approximate
        except Exception as error:  # of a graph that is built in another way than a model's
            raise _not_computable(error) from error

    def encode(self, src: Array, src_lengths: Array) -> tuple[Arrays, Arrays]:
        """Return the memory and the first state of sources [B, S] with lengths [B].

        Sources of similar length should be neighbours: ENCODED_ROWS are encoded together, without
        the padding beyond the longest of them.
        """
        encoded = []
        values = Arrays()
        for start in range(0, len(src), ENCODED_ROWS):
            rows = slice(start, start + ENCODED_ROWS)
            longest = int(src_lengths[rows].max())
            inputs = Arrays(src=src[rows, :longest], src_lengths=src_lengths[rows])
            encoded.append(computed(self._encoder, None, inputs))
        for output, *parts in zip(self._encoder.get_outputs(), *encoded, strict=True):
            padded = [_padded(part, output.shape, src.shape[1]) for part in parts]
            values[output.name] = np.concatenate(padded)
        names = [name for name in values if name.startswith("memory_")]
        memory = Arrays((name, values.pop(name)) for name in names)
        return memory, values

    def step(self, rows: Rows, ids: Array) -> HostStep:
        """Advance hypotheses, given their last ids [N]; memory and state are `Arrays`."""
        decoder, exact = (self._decoder, None) if rows.options.log_probs else self._greedy
        unread = {ATTENTION: not rows.options.attention, HEADS: not rows.options.heads}
        names = [value.name for value in decoder.get_outputs() if not unread.get(value.name)]
        values = {"ids": ids, **rows.memory, **rows.state}
        inputs = Arrays((value.name, values[value.name]) for value in decoder.get_inputs())
        results = dict(zip(names, computed(decoder, names, inputs), strict=True))
        scores = results[LOG_PROBS if LOG_PROBS in results else LOGITS]
        undefined = np.isnan(
            results[quantizing.UNDEFINED] if quantizing.UNDEFINED in results else scores[:, 0]
        )
        next_names = (name for name in names if name.startswith(_NEXT))
        state = Arrays((name.removeprefix(_NEXT), results[name]) for name in next_names)
        weights = results.get(ATTENTION), results.get(HEADS)
        parts = scores, *weights, results.get(OUTPUTS), exact
        return HostStep(replace(rows, state=state), *parts, undefined=undefined)


def _padded(part: Array, dims: Sequence[int | str], width: int) -> Array:
    """Return a part of the memory or state of sources padded to a width."""
    sizes = zip(dims, part.shape, strict=True)
    pads = [(0, width - size if name == "source" else 0) for name, size in sizes]
    return np.pad(part, pads, constant_values=part.dtype == bool)  # the mask is True at padding


def session(content: bytes) -> InferenceSession:
    """Return a session on the CPU of one thread: batches are searched side by side."""
    if PRODUCT.encode() in content and _saturates():
        content = quantizing.with_unsigned_weights(content)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # fatal errors: others are raised
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # both keep memory for good
    return InferenceSession(content, options, providers=["CPUExecutionProvider"])


@cache
def _saturates() -> bool:
    """Return whether this processor's products of unsigned and signed integers are not exact."""
    product = make("MatMulInteger", ["x", "w"], ["y"])
    weights = np.full((64, 16), 127, np.int8)
    inputs = declare("x", UINT8, [1, 64])
    outputs = declare("y", INT32, [1, 16])
    graph = Graph([product], {"w": weights}, [inputs], [outputs])
    (sums,) = session(graph.content()).run(None, {"x": np.full((1, 64), 255, np.uint8)})
    return bool((sums != 255 * 127 * 64).any())


def computed(graph: InferenceSession, names: Sequence[str] | None, inputs: Arrays) -> list[Array]:
    """Return outputs of a session; raises RunError for graphs that cannot be computed."""
    try:
        outputs: list[Array] = graph.run(names, inputs)
    except Exception as error:  # ONNX Runtime has its own classes
        if "Failed to allocate memory" in str(error):
            raise MemoryError from error
        raise _not_computable(error) from error
    return outputs


def _not_computable(error: Exception) -> RunError:
    """Return the error of graphs that ONNX Runtime, or a pass over them, does not compute."""
    reason = ascii(" ".join(str(error).split())[:200])
    return RunError(f"the graphs cannot be computed ({reason}); use another model")


def threads() -> int:
    """Return the number of threads: OMP_NUM_THREADS, or that of the processors."""
    if number := requested_threads():
        return number
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quantized(graphs: GraphFiles) -> GraphFiles:
    """Return the graphs with products in int8."""
    encoder, decoder = (Graph.of(onnx.load_from_string(content).graph) for content in graphs)
    quantizing.quantize_graphs(encoder, decoder)
    return GraphFiles(encoder.content(), decoder.content())


def load_network(graphs: GraphFiles, int8: bool) -> Network:
    """Prepare checked graphs, in int8 if asked for; raises GraphError if they cannot be used."""
    try:
        if int8:
            graphs = quantized(graphs)
            for content in graphs:  # a product is some ten operators in int8
                check_number_of_operators(onnx.load_from_string(content).graph)
        return Network(*graphs)
    except GraphError:
        raise
    except Exception as error:  # ONNX Runtime has its own classes
        raise GraphError("ONNX Runtime refuses the graphs") from error


HALF_ULP = 2.0**-24  # relative rounding error of float32
MARGIN = 1.001  # covers the rounding of the error bound itself


class ApproximateProjection:
    """Projection [V, R] of outputs whose approximate logits are products in int8.

    For quantized `x + d` and `w + e` the error `|(x + d)(w + e) - x w|` is at most
    `|d| |w + e| + |x| |e|` by Cauchy-Schwarz, where each of the R entries of d is at most half a
    quantization step.
    """

    def __init__(self, weight: Array, bias: Array, step: float) -> None:
        self.weight = weight
        self.bias = bias
        integers, scales = quantizing.quantize_rows(weight)
        self.integers = integers
        self.scales = scales[:, 0]
        with np.errstate(over="ignore", invalid="ignore"):  # such an error has no bound
            values = integers * scales
            max_norm = float(np.linalg.norm(values, axis=1).max())
            max_error = float(np.linalg.norm(weight - values, axis=1).max())
        width = weight.shape[1]
        # rounding of float32 sums, both here and in the exact product
        rounding = (width + 8) * HALF_ULP * (max_norm + max_error)
        largest_bias = float(np.abs(bias).max(initial=0))
        fixed = 0.5 * step * math.sqrt(width) * max_norm + 4 * HALF_ULP * largest_bias
        self.fixed = fixed * MARGIN
        self.per_norm = (max_error + rounding) * MARGIN

    @property
    def is_bounded(self) -> bool:
        """Return whether the error has a bound: weights may be too large."""
        return math.isfinite(self.fixed) and math.isfinite(self.per_norm)

    def argmax(self, logits: Array, outputs: Array) -> tuple[Array, Array]:
        """Return the first argmax of each row's exact logits, and the maximum: [N], [N].

        Takes approximate logits [N, V], -inf for tokens that are ruled out, and outputs [N, R].
        Exact logits are computed only for candidates within twice the error bound of the row
        maximum, usually one or two. The maximum is nan for a row of nan.
        """
        norms = np.linalg.norm(outputs, axis=1)
        least = logits.max(axis=1) - 2 * (self.fixed + norms * self.per_norm)
        candidates = np.flatnonzero(logits >= least[:, None].astype(np.float32))
        rows, tokens = np.divmod(candidates, logits.shape[1])
        exact = (outputs[rows] * self.weight[tokens]).sum(axis=1) + self.bias[tokens]
        exact[np.isneginf(logits[rows, tokens])] = -np.inf
        values = np.full(len(logits), np.nan, np.float32)
        values[rows] = -np.inf
        np.maximum.at(values, rows, exact)
        best = np.flatnonzero(exact == values[rows])[::-1]  # the first is assigned last
        best_tokens = np.zeros(len(logits), np.int64)
        best_tokens[rows[best]] = tokens[best]
        return best_tokens, values


def split_projection(content: bytes) -> tuple[bytes | None, ApproximateProjection | None]:
    """Return the graph of a step that ends with logits in place of log-probabilities.

    In float32 the logits are approximate, and the graph has the projection's inputs as a further
    output. None if the log-probabilities are more than the softmax of a product.
    """
    graph = Graph.of(onnx.load_from_string(content).graph)
    softmax = graph.producers()[LOG_PROBS]
    if softmax.op_type != "LogSoftmax":
        return None, None
    logits = softmax.input[0]
    approximate = _quantized(graph, logits)
    graph.nodes.remove(softmax)
    next(value for value in graph.outputs if value.name == LOG_PROBS).name = LOGITS
    graph.nodes.append(make("Identity", [logits], [LOGITS]))
    graph.prune()
    return graph.content(), approximate


def _quantized(graph: Graph, logits: str) -> ApproximateProjection | None:
    """Replace the product of the logits by one in int8; None if its error has no bound."""
    last = graph.producers()[logits]
    products = quantizing.products_of(graph)
    product = products[-1] if products else last
    is_added = last.op_type == "Add" and product.output[0] in last.input
    if not products or not (is_added or product == last):
        return None
    source, weight = product.input[:2]
    names = [name for name in (*last.input, *product.input[2:]) if name in graph.weights]
    bias = next((name for name in names if graph.weights[name].ndim == 1), None)
    bound = bounds_of(graph, {}).get(source)
    if bias is None or not bound:
        return None
    matrix = graph.weights[weight] if quantizing.is_transposed(product) else graph.weights[weight].T
    matrix = np.ascontiguousarray(matrix)
    approximate = ApproximateProjection(matrix, graph.weights[bias], bound / 127)
    if not approximate.is_bounded:
        return None
    quantizer = quantizing.Quantizer(graph, {})
    columns = quantizer.constant(np.ascontiguousarray(approximate.integers.T))
    scales = quantizer.constant(approximate.scales)
    result = quantizer.bounded(source, bound, (columns, scales), bias)
    quantizer.op("Identity", result, result=logits)
    quantizer.op("Identity", source, result=OUTPUTS)
    graph.nodes = [node for node in graph.nodes if node != last] + quantizer.nodes
    graph.outputs.append(declare(OUTPUTS, FLOAT, ["rows", matrix.shape[1]]))
    return approximate
