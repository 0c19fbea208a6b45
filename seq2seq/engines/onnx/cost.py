"""Infer the sizes of all values of a graph and the work of its operators before it is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import GraphProto, NodeProto

from seq2seq.engines.onnx.graph import attribute, bodies
from seq2seq.engines.onnx.size import NAMED, Size, SizeError, product
from seq2seq.engines.onnx.size_rules import RULES, Value, sizes_of_letters, tensor_value

_MAX_RANK = 8
_ENTRY_WORK = 4  # of an operator that is no product, by entry; the work of a product is 1
_ABSENT = Value(())  # an optional input
LOOP = "Scan"


def _work(node: NodeProto, inputs: Sequence[Value], results: Sequence[Value]) -> list[Size]:
    """Return the work of an operator, as a sum."""
    kind = node.op_type
    if kind.startswith("MatMul"):
        return [results[0].size.times(inputs[0].dims[-1])]
    if kind == "Gemm":
        return [results[0].size.times(inputs[0].dims[0 if attribute(node, "transA", 0) else 1])]
    if kind == "Einsum":
        return [product(sizes_of_letters(node, inputs).values())]
    read = () if kind in ("Gather", "Shape", "Size", "Slice") else inputs
    return [value.size.times(Size(_ENTRY_WORK)) for value in (*read, *results)]


@dataclass
class Cost:
    """Entries of the values that a graph computes, and the work of each of its operators."""

    entries: list[Size] = field(default_factory=list)
    work: list[list[Size]] = field(default_factory=list)  # a sum for each operator

    def add(self, node: NodeProto, inputs: Sequence[Value], results: Sequence[Value]) -> None:
        """Count an operator; a product over letters may hold all of its terms."""
        work = _work(node, inputs, results)
        self.entries += work if node.op_type == "Einsum" else [value.size for value in results]
        self.work.append(work)

    def add_loop(self, body: "Cost", count: Size) -> None:
        """Count the operators of a body that is computed several times."""
        self.entries += [size.times(count) for size in body.entries]
        self.work += [[size.times(count) for size in sizes] for sizes in body.work]


def infer(graph: GraphProto, inputs: Mapping[str, Value]) -> tuple[dict[str, Value], Cost]:
    """Return the sizes of all values of a graph, given those of its inputs, and its work.

    Raises SizeError.
    """
    cost = Cost()
    values = dict(inputs)
    values |= {tensor.name: tensor_value(tensor) for tensor in graph.initializer}
    for node in graph.node:
        read = [values[name] if name else _ABSENT for name in node.input]
        if node.op_type == LOOP:
            results, body = _loop(node, values)
            cost.add_loop(body, read[-1].dims[0])
            cost.entries += [value.size for value in results]
        else:
            results = _results(node, read)
            cost.add(node, read, results)
        values |= zip(node.output, results, strict=False)
    return values, cost


def _results(node: NodeProto, read: Sequence[Value]) -> list[Value]:
    """Return the results of an operator by its rule; raises SizeError."""
    if node.op_type == "Constant":
        return [tensor_value(attribute(node, "value"))]
    if node.op_type not in RULES:
        raise SizeError(f"has the operator {node.op_type!a:.80}, which no exported model has")
    results = RULES[node.op_type](node, read)
    if max(len(value.dims) for value in results) > _MAX_RANK:
        raise SizeError(f"has a value of more than {_MAX_RANK} dimensions")
    return results


def _loop(node: NodeProto, values: Mapping[str, Value]) -> tuple[list[Value], Cost]:
    """Return the results of a loop over the tokens of sources, and the cost of its body."""
    (body,) = bodies(node)
    *states, scanned = (values[name] for name in node.input)
    count, *entry = scanned.dims
    if {item.name for item in node.attribute} != {"body", "num_scan_inputs"}:
        raise SizeError("has a loop of another kind than models have")
    if attribute(node, "num_scan_inputs") != 1 or count != NAMED["source"]:
        raise SizeError("has a loop over something else than the tokens of a source")
    parts = [*(Value(state.dims) for state in states), Value(tuple(entry))]
    names = (value.name for value in body.input)
    inner, cost = infer(body, {**values, **dict(zip(names, parts, strict=True))})
    results = [inner[value.name] for value in body.output]
    after = results[: len(states)]
    collected = results[len(states) :]
    if [value.dims for value in after] != [value.dims for value in states]:
        raise SizeError("has a loop whose state changes its size")
    return [*after, *(Value((count, *value.dims)) for value in collected)], cost
