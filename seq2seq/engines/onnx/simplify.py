"""Simplify a traced graph: fewer operators, and the same result for a row in every batch."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, numpy_helper

from seq2seq.engines.onnx.graph import Graph, Types, attribute, bodies, make, rank_of, types_of

_BLOCK = 16  # sums over multiples of it are rounded alike in every row and for any padding


def simplify(graph: Graph) -> None:
    """Rewrite a traced graph in place: rows are computed in fewer operators, independently."""
    for _ in range(2):  # ranks are known from others
        _optimize(graph)
    graph.prune()
    _separate_biases(graph)
    _join_products(graph)
    _separate_rows(graph)
    graph.prune()


def _optimize(graph: Graph) -> None:
    """Let ONNX Runtime compute what is constant, such as fixed sizes and the branches they take."""
    types = types_of(graph)
    producers = graph.producers()
    for node in graph.nodes:
        producer = producers.get(node.input[0]) if node.op_type == "Size" else None
        rank = None if producer is None else rank_of(types, producer.input[0])
        if rank is not None:
            constant = numpy_helper.from_array(np.array(rank))
            node.CopyFrom(make("Constant", [], node.output, value=constant))
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # fatal errors: others are raised
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = f"{folder}/graph.onnx"
        onnxruntime.InferenceSession(graph.content(), options, providers=["CPUExecutionProvider"])
        optimized = Graph.of(onnx.load(options.optimized_model_filepath).graph)
    loops = {node.output[0]: node for node in graph.nodes if bodies(node)}
    for node in optimized.nodes:  # bodies have been simplified, with names of their own
        if bodies(node):
            loops[node.output[0]].input[:] = node.input
            node.CopyFrom(loops[node.output[0]])
    graph.nodes = optimized.nodes
    graph.weights = graph.weights | optimized.weights


def _separate_biases(graph: Graph) -> None:
    """Write products with a weight and a bias as a product and a sum, which others can join."""
    uses = graph.uses()

    def separated(node: NodeProto) -> list[NodeProto]:
        weight = node.input[1]
        if weight not in graph.weights or uses[weight] > 1:  # a tied weight is not stored twice
            return [node]
        if attribute(node, "transB", 0):
            graph.weights[weight] = graph.weights[weight].T
        if len(node.input) < 3:
            return [make("MatMul", node.input, node.output)]
        product = graph.fresh("product")
        return [
            make("MatMul", node.input[:2], [product]),
            make("Add", [product, node.input[2]], node.output),
        ]

    graph.replace("Gemm", separated)


def _join_products(graph: Graph) -> None:
    """Compute a sum of products of vectors with matrices as one product of joined ones."""
    types = types_of(graph)
    for node in reversed(graph.nodes):
        if node.op_type == "Add" and node in graph.nodes:
            _join(graph, node, types)


def _join(graph: Graph, node: NodeProto, types: Types) -> None:
    """Join the products among the terms of the sum that ends with an operator."""
    producers = graph.producers()
    uses = graph.uses()
    terms = list(_terms(node, producers, uses))
    products = [
        term
        for name in terms
        if (term := producers.get(name)) is not None and _joinable(graph, term, uses, types)
    ]
    if len(products) < 2:
        return
    results = {term.output[0] for term in products}
    summands = [name for name in terms if name not in results]
    joined_inputs = graph.fresh("joined")
    product = graph.fresh("product")
    weights = [graph.weights[term.input[1]] for term in products]
    weight = graph.weight(np.concatenate(weights), "weight")
    new = [
        make("Concat", [term.input[0] for term in products], [joined_inputs], axis=-1),
        make("MatMul", [joined_inputs, weight], [product]),
    ]
    total = product
    for name in summands:
        partial_sum = total
        total = graph.fresh("sum")
        new.append(make("Add", [partial_sum, name], [total]))
    new[-1].output[0] = node.output[0]
    place = graph.nodes.index(node)
    graph.nodes[place : place + 1] = new
    graph.prune()


def _terms(node: NodeProto, producers: dict[str, NodeProto], uses: dict[str, int]) -> Iterator[str]:
    """Yield the terms of a sum whose partial sums are read nowhere else."""
    for name in node.input:
        summand = producers.get(name)
        if summand is not None and summand.op_type == "Add" and uses[name] == 1:
            yield from _terms(summand, producers, uses)
        else:
            yield name


def _joinable(graph: Graph, node: NodeProto, uses: dict[str, int], types: Types) -> bool:
    if node.op_type != "MatMul" or uses[node.output[0]] > 1 or rank_of(types, node.input[0]) != 2:
        return False
    weight = graph.weights.get(node.input[1])
    return weight is not None and weight.ndim == 2 and uses[node.input[1]] == 1


def _separate_rows(graph: Graph) -> None:
    """Replace operators whose rounding depends on where a value is in a tensor.

    ONNX Runtime computes logarithms, sums and, on ARM, exponentials and reciprocals in vectors, and
    rounds the rest of a tensor in another way. The sum of one summand's logarithm, sums and
    exponentials of rows whose width is a multiple of _BLOCK, and quotients are exceptions.
    """
    types = types_of(graph)
    last = graph.weight(np.array([-1]))
    first = graph.weight(np.array(0))
    pads = graph.weight(np.array([0, _BLOCK - 1]))
    one = graph.weight(np.array(1, np.float32))

    def logarithm(node: NodeProto) -> list[NodeProto]:
        summand = graph.fresh("summand")
        return [
            make("Unsqueeze", [node.input[0], last], [summand]),
            make("ReduceLogSum", [summand, last], node.output, keepdims=0),
        ]

    def padded_sum(node: NodeProto) -> list[NodeProto]:
        """Append zeros to rows of a fixed width; search pads sources to multiples of _BLOCK."""
        source = node.input[0]
        axes = graph.weights.get(node.input[1])
        rank = rank_of(types, source)
        if rank is None or axes is None or axes.tolist() not in ([-1], [rank - 1]):
            return [node]
        width = types[source].shape.dim[-1].dim_value
        if width % _BLOCK == 0:  # 0: not fixed
            return [node]
        padded = graph.fresh("padded")
        node.input[0] = padded
        zeros = graph.weight(np.array([0, -width % _BLOCK]))
        return [make("Pad", [source, zeros, "", last], [padded]), node]

    def exponential(node: NodeProto) -> list[NodeProto]:
        """Give each value a row of its own, but for rows of sources, which search pads."""
        source = node.input[0]
        rank = rank_of(types, source)
        if rank is None or (rank > 1 and not types[source].shape.dim[-1].dim_value):
            return [node]
        alone, row, powers = (graph.fresh(name) for name in ("alone", "row", "powers"))
        return [
            make("Unsqueeze", [source, last], [alone]),
            make("Pad", [alone, pads, "", last], [row]),
            make("Exp", [row], [powers]),
            make("Gather", [powers, first], node.output, axis=-1),
        ]

    def quotient(node: NodeProto) -> list[NodeProto]:
        return [make("Div", [one, node.input[0]], node.output)]

    graph.replace("Log", logarithm)
    graph.replace("Reciprocal", quotient)
    graph.replace("Exp", exponential)
    graph.replace("ReduceSum", padded_sum)
