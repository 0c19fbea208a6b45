"""Exact argmax of float32 logits from approximate int8 ones with a proven error bound."""

import math

import numpy as np
import onnx
from onnx import NodeProto, helper

from seq2seq.engines.engine import Array
from seq2seq.engines.onnx.bounds import bounds_of
from seq2seq.engines.onnx.graph import CONTRIB, FLOAT, Graph, attribute, make
from seq2seq.engines.onnx.int8 import ZERO, quantize_rows

HALF_ULP = 2.0**-24  # relative rounding error of float32
MARGIN = 1.001  # covers the rounding of the error bound itself


class ApproximateProjection:
    """Projection [V, R] of outputs whose approximate logits are products in int8.

    For quantized `x + d` and `w + e` the error `|(x + d)(w + e) - x w|` is at most
    `|d| |w + e| + |x| |e|` by Cauchy-Schwarz, where each of the R entries of d is at most half a
    quantization step.
    """

    def __init__(self, weight: Array, bias: Array, step: float) -> None:
        self.weight, self.bias = weight, bias
        integers, scales = quantize_rows(weight)
        self.integers, self.scales = integers, scales[:, 0]
        with np.errstate(over="ignore", invalid="ignore"):  # such an error has no bound
            values = integers * scales
            width, max_norm = weight.shape[1], _max_norm(values)
            max_error = _max_norm(weight - values)
        # rounding of float32 sums, both here and in the exact product
        rounding = (width + 8) * HALF_ULP * (max_norm + max_error)
        largest_bias = float(np.abs(bias).max(initial=0))
        fixed = 0.5 * step * math.sqrt(width) * max_norm + 4 * HALF_ULP * largest_bias
        self.fixed, self.per_norm = fixed * MARGIN, (max_error + rounding) * MARGIN

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
        norms = np.sqrt(np.square(outputs).sum(axis=1))
        least = logits.max(axis=1) - 2 * (self.fixed + norms * self.per_norm)
        rows, tokens = _places(logits, least[:, None].astype(np.float32))
        exact = (outputs[rows] * self.weight[tokens]).sum(axis=1) + self.bias[tokens]
        exact[np.isneginf(logits[rows, tokens])] = -np.inf
        values = np.full(len(logits), np.nan, np.float32)
        values[rows] = -np.inf
        np.maximum.at(values, rows, exact)
        best = np.flatnonzero(exact == values[rows])[::-1]  # the first is assigned last
        best_tokens = np.zeros(len(logits), np.int64)
        best_tokens[rows[best]] = tokens[best]
        return best_tokens, values


def _places(values: Array, least: Array) -> tuple[Array, Array]:
    """Return the places in rows [N, V] of values that are at least [N, 1]; few of them are.

    Eight comparisons at once are zero or not, which takes an eighth of the time of `nonzero`.
    """
    count, width = values.shape
    large = np.zeros((count, -(-width // 8) * 8), bool)
    np.greater_equal(values, least, out=large[:, :width])
    eights = np.flatnonzero(large.view(np.uint64))
    places, within = np.nonzero(large.reshape(-1, 8)[eights])
    rows, columns = np.divmod(eights[places] * 8 + within, large.shape[1])
    return rows, columns


def split_projection(content: bytes) -> tuple[bytes | None, ApproximateProjection | None]:
    """Return the graph of a step that ends with logits in place of log-probabilities.

    In float32 the logits are approximate, and the graph has the projection's inputs as a further
    output. None if the log-probabilities are more than the softmax of a product.
    """
    graph = Graph.of(onnx.load_from_string(content).graph)
    softmax = graph.producers()["log_probs"]
    if softmax.op_type != "LogSoftmax":
        return None, None
    logits = softmax.input[0]
    approximate = _quantized(graph, logits)
    graph.nodes.remove(softmax)
    place = next(n for n, value in enumerate(graph.outputs) if value.name == "log_probs")
    graph.outputs[place] = helper.make_tensor_value_info("logits", FLOAT, graph.dims("log_probs"))
    graph.nodes.append(make("Identity", [logits], ["logits"]))
    graph.prune()
    return graph.content(), approximate


def _quantized(graph: Graph, logits: str) -> ApproximateProjection | None:
    """Replace the product of the logits by one in int8; None if its error has no bound."""
    producers = graph.producers()
    last = producers[logits]
    parts = _product(graph, last, producers)
    if parts is None:
        return None
    source, weight, bias = parts
    bound = bounds_of(graph, {}).get(source)
    if not bound:
        return None
    approximate = ApproximateProjection(weight, bias, bound / 127)
    if not approximate.is_bounded:
        return None
    scale = graph.weight(np.array(bound / 127, np.float32))
    zero = graph.weight(np.array(ZERO, np.uint8))
    rows = graph.fresh("rows")
    product = [
        rows,
        graph.weight(np.ascontiguousarray(approximate.integers.T)),
        scale,
        graph.weight(approximate.scales),
        zero,
        "",
        graph.weight(approximate.bias),
    ]
    graph.nodes.remove(last)
    graph.nodes += [
        make("QuantizeLinear", [source, scale, zero], [rows]),
        make("MatMulIntegerToFloat", product, [logits], domain=CONTRIB),
        make("Identity", [source], ["outputs"]),
    ]
    dims = ["rows", weight.shape[1]]
    graph.outputs.append(helper.make_tensor_value_info("outputs", FLOAT, dims))
    return approximate


def _product(
    graph: Graph, node: NodeProto, producers: dict[str, NodeProto]
) -> tuple[str, Array, Array] | None:
    """Return the input, the matrix [V, R] and the bias [V] of a product in float32."""
    weights = graph.weights
    if node.op_type == "Gemm" and len(node.input) == 3 and attribute(node, "transB", 0):
        source, weight, bias = node.input
        return (source, weights[weight], weights[bias]) if weight in weights else None
    if node.op_type != "Add":
        return None
    for name, bias in (node.input, node.input[::-1]):
        before = producers.get(name)
        if bias in weights and before is not None and before.op_type == "MatMul":
            source, weight = before.input
            if weight in weights:
                return source, np.ascontiguousarray(weights[weight].T), weights[bias]
    return None


def _max_norm(rows: Array) -> float:
    return float(np.sqrt(np.square(rows).sum(axis=1)).max())
