"""Simplify a traced graph: fewer operators, and the same result for a row in every batch."""

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import NodeProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from seq2seq.engines.onnx.graph import (
    OPSET,
    Array,
    Graph,
    Types,
    attribute,
    bodies,
    make,
    rank_of,
    types_of,
)

_BLOCK = 16  # sums over multiples of it are rounded alike in every row and for any padding


def simplify(graph: Graph) -> None:
    """Rewrite a traced graph in place: rows are computed in fewer operators, independently."""
    _name_constants(graph)
    count = len(graph.nodes) + 1
    while len(graph.nodes) < count:  # sizes are known from others
        count = len(graph.nodes)
        _fold_moves(graph)
        _fold_sizes(graph)
        _take_branches(graph)
        graph.prune()
    _separate_biases(graph)
    _join_products(graph)
    _separate_rows(graph)
    graph.prune()


def _name_constants(graph: Graph) -> None:
    """Turn constants among the operators into weights."""
    for node in graph.nodes:
        if node.op_type == "Constant":
            graph.weights[node.output[0]] = numpy_helper.to_array(attribute(node, "value"))
    graph.nodes = [node for node in graph.nodes if node.op_type != "Constant"]


def _fold_moves(graph: Graph) -> None:
    """Replace values that are only moved or converted to their own type by what they are."""
    types, producers = types_of(graph), graph.producers()
    outputs = {value.name for value in graph.outputs}
    replaced: dict[str, str] = {}
    for node in graph.nodes:
        node.input[:] = [replaced.get(name, name) for name in node.input]
        source = _moved(graph, node, producers, types)
        if source is not None:
            replaced[node.output[0]] = source
    for name in outputs & replaced.keys():
        _produce(graph, name, replaced)
    graph.rename(replaced)


def _produce(graph: Graph, name: str, replaced: dict[str, str]) -> None:
    """Let the operator of a value that is moved to an output produce this output."""
    source = replaced.pop(name)
    producer = graph.producers().get(source)
    outputs = {value.name for value in graph.outputs}
    (mover,) = (node for node in graph.nodes if name in node.output)
    if producer is None or source in outputs:
        mover.CopyFrom(make("Identity", [source], [name]))
        return
    graph.nodes.remove(mover)
    producer.output[:] = [name if output == source else output for output in producer.output]
    replaced[source] = name


def _moved(
    graph: Graph, node: NodeProto, producers: dict[str, NodeProto], types: Types
) -> str | None:
    """Return the value that the result of an operator is equal to; None if it is another one."""
    source = node.input[0] if node.input else ""
    if node.op_type == "Identity" or (node.op_type == "Concat" and len(node.input) == 1):
        return source
    if node.op_type == "Cast" and source in types:
        return source if types[source].elem_type == attribute(node, "to") else None
    before = producers.get(source)
    if node.op_type == "Gather" and before is not None:
        return _taken(graph, node, before, producers)
    return None


def _taken(
    graph: Graph, node: NodeProto, before: NodeProto, producers: dict[str, NodeProto]
) -> str | None:
    """Return the part of stacked values that an operator takes."""
    axis, place = attribute(node, "axis", 0), graph.weights.get(node.input[1])
    if place is None or place.ndim or axis == 0:
        return None
    parts = [before]
    if before.op_type == "Concat" and attribute(before, "axis") == axis:
        parts = [producers[name] for name in before.input if name in producers]
        if len(parts) < len(before.input):
            return None
    if all(_inserts(graph, part, axis) for part in parts):
        return str(parts[int(place)].input[0])
    return None


def _inserts(graph: Graph, node: NodeProto, axis: int) -> bool:
    return node.op_type == "Unsqueeze" and graph.weights[node.input[1]].tolist() == [axis]


def _fold_sizes(graph: Graph) -> None:
    """Replace sizes that are fixed by constants; read others in one operator."""
    types, producers = types_of(graph), graph.producers()
    nodes = []
    for node in graph.nodes:
        array = _fixed_size(graph, node, producers, types)
        if array is None and _is_constant(graph, node):
            array = _computed(graph, node)
        if array is not None:
            graph.weights[node.output[0]] = array
        else:
            nodes.append(node)
    graph.nodes = nodes
    for node in graph.nodes:
        if (size := _size(graph, node, producers)) is not None:
            node.CopyFrom(size)


def _take_branches(graph: Graph) -> None:
    """Replace decisions on fixed sizes by the operators of the branch that is always taken."""
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type != "If" or node.input[0] not in graph.weights:
            nodes.append(node)
            continue
        taken = "then_branch" if graph.weights[node.input[0]].all() else "else_branch"
        branch = attribute(node, taken)
        nodes += branch.node
        results = (value.name for value in branch.output)
        nodes += [make("Identity", [a], [b]) for a, b in zip(results, node.output, strict=True)]
    graph.nodes = nodes
    _name_constants(graph)


def _shape_place(
    graph: Graph, node: NodeProto, producers: dict[str, NodeProto]
) -> tuple[str, int] | None:
    """Return the value and the axis whose size an operator takes from a shape."""
    if node.op_type != "Gather":
        return None
    before, place = producers.get(node.input[0]), graph.weights.get(node.input[1])
    if before is None or before.op_type != "Shape" or before.attribute:
        return None
    if place is None or place.size != 1:
        return None
    return before.input[0], int(place.ravel()[0])


def _fixed_size(
    graph: Graph, node: NodeProto, producers: dict[str, NodeProto], types: Types
) -> Array | None:
    """Return the size that an operator takes from a shape, if it is the same in every call."""
    before = producers.get(node.input[0]) if node.input else None
    if node.op_type == "Size" and before is not None and before.op_type == "Shape":
        rank = rank_of(types, before.input[0])
        return None if rank is None else np.array(rank)
    place = _shape_place(graph, node, producers)
    if place is None or place[0] not in types:
        return None
    shape = types[place[0]].shape.dim
    if not shape or not shape[place[1]].HasField("dim_value"):
        return None
    return np.full(graph.weights[node.input[1]].shape, shape[place[1]].dim_value, np.int64)


def _size(graph: Graph, node: NodeProto, producers: dict[str, NodeProto]) -> NodeProto | None:
    """Return the operator of a size as a vector [1], in place of two or three."""
    taken = node
    if node.op_type == "Unsqueeze":
        taken = producers.get(node.input[0], node)
    elif node.op_type != "Gather" or not graph.weights.get(node.input[1], np.array(0)).ndim:
        return None
    place = _shape_place(graph, taken, producers)
    if place is None:
        return None
    end = {} if place[1] == -1 else {"end": place[1] + 1}
    return make("Shape", [place[0]], node.output, start=place[1], **end)


def _is_constant(graph: Graph, node: NodeProto) -> bool:
    inputs = [name for name in node.input if name]
    return bool(inputs) and all(
        name in graph.weights and graph.weights[name].size <= _BLOCK for name in inputs
    )


def _computed(graph: Graph, node: NodeProto) -> Array | None:
    """Return the result of an operator on small constants."""
    if len(node.output) > 1 or bodies(node):
        return None
    values = {name: graph.weights[name] for name in node.input if name}
    (result,) = ReferenceEvaluator(node, opsets={"": OPSET}).run(None, values)
    return np.asarray(result)


def _separate_biases(graph: Graph) -> None:
    """Write products with a weight and a bias as a product and a sum, which others can join."""
    uses, nodes = graph.uses(), list[NodeProto]()
    for node in graph.nodes:
        weight = node.input[1] if node.op_type == "Gemm" else ""
        if weight not in graph.weights or uses[weight] > 1:  # a tied weight is not stored twice
            nodes.append(node)
            continue
        if attribute(node, "transB", 0):
            graph.weights[weight] = graph.weights[weight].T
        biased = len(node.input) > 2
        result = graph.fresh("product") if biased else node.output[0]
        nodes.append(make("MatMul", node.input[:2], [result]))
        if biased:
            nodes.append(make("Add", [result, node.input[2]], node.output))
    graph.nodes = nodes


def _join_products(graph: Graph) -> None:
    """Compute a sum of products of vectors with matrices as one product of joined ones."""
    types = types_of(graph)
    for node in reversed(graph.nodes):
        if node.op_type == "Add" and node in graph.nodes:
            _join(graph, node, types)


def _join(graph: Graph, node: NodeProto, types: Types) -> None:
    """Join the products among the terms of the sum that ends with an operator."""
    producers, uses = graph.producers(), graph.uses()
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
    joined, product = graph.fresh("joined"), graph.fresh("product")
    weights = [graph.weights[term.input[1]] for term in products]
    weight = graph.weight(np.concatenate(weights), "weight")
    new = [
        make("Concat", [term.input[0] for term in products], [joined], axis=-1),
        make("MatMul", [joined, weight], [product]),
    ]
    for name in summands:
        product, before = graph.fresh("sum"), product
        new.append(make("Add", [before, name], [product]))
    new[-1].output[0] = node.output[0]
    place = graph.nodes.index(node)
    graph.nodes[place : place + 1] = new
    graph.prune()


def _terms(node: NodeProto, producers: dict[str, NodeProto], uses: dict[str, int]) -> Iterator[str]:
    """Yield the terms of a sum whose partial sums are read nowhere else."""
    for name in node.input:
        before = producers.get(name)
        if before is not None and before.op_type == "Add" and uses[name] == 1:
            yield from _terms(before, producers, uses)
        else:
            yield name


def _joinable(graph: Graph, node: NodeProto, uses: dict[str, int], types: Types) -> bool:
    if node.op_type != "MatMul" or uses[node.output[0]] > 1 or rank_of(types, node.input[0]) != 2:
        return False
    weight = graph.weights.get(node.input[1])
    return weight is not None and weight.ndim == 2 and uses[node.input[1]] == 1


def _separate_rows(graph: Graph) -> None:
    """Replace operators whose rounding depends on where a value is in a tensor.

    ONNX Runtime computes logarithms and sums in vectors and rounds the rest of a tensor in another
    way. The sum of one summand's logarithm and sums over multiples of _BLOCK are exceptions.
    """
    types = types_of(graph)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type == "Log":
            nodes += _log(graph, node)
        elif node.op_type == "ReduceSum":
            nodes += _sum(graph, node, types)
        else:
            nodes.append(node)
    graph.nodes = nodes


def _log(graph: Graph, node: NodeProto) -> Sequence[NodeProto]:
    last, summand = graph.weight(np.array([-1])), graph.fresh("summand")
    return [
        make("Unsqueeze", [node.input[0], last], [summand]),
        make("ReduceLogSum", [summand, last], node.output, keepdims=0),
    ]


def _sum(graph: Graph, node: NodeProto, types: Types) -> Sequence[NodeProto]:
    """Append zeros to rows of a fixed width; search pads sources to multiples of _BLOCK."""
    source, axes = node.input[0], graph.weights.get(node.input[1])
    rank = rank_of(types, source)
    if rank is None or axes is None or axes.tolist() not in ([-1], [rank - 1]):
        return [node]
    width = types[source].shape.dim[-1].dim_value
    if width % _BLOCK == 0:  # 0: not fixed
        return [node]
    padded, pads = graph.fresh("padded"), graph.weight(np.array([0, -width % _BLOCK]))
    last = graph.weight(np.array([-1]))
    node.input[0] = padded
    return [make("Pad", [source, pads, "", last], [padded]), node]
