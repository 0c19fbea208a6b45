"""Infer the sizes of all values of a graph and the work of its operators before it is computed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import GraphProto, NodeProto, TensorProto

from seq2seq.engines.onnx.graph import attribute, bodies
from seq2seq.engines.onnx.size import NAMED, Size, SizeError, product
from seq2seq.engines.onnx.size_rules import (
    RULES,
    Value,
    check_division,
    kinds_of,
    sizes_of_letters,
    tensor_value,
)

MAX_RANK = 8
_ENTRY_WORK = 4  # of an operator that is no product, by entry; the work of a product is 1
_ABSENT = Value(())  # an optional input
LOOP = "Scan"


def _work(node: NodeProto, inputs: Sequence[Value], results: Sequence[Value]) -> list[Size]:
    """Return the work of an operator, as a sum."""
    kind = node.op_type
    written = results[0].size  # also of a product over no entries
    if kind.startswith("MatMul"):
        return [written, written.times(inputs[0].dims[-1])]
    if kind == "Gemm":
        inner = inputs[0].dims[0 if attribute(node, "transA", 0) else 1]
        return [written, written.times(inner)]
    if kind == "Einsum":
        return [written, product(sizes_of_letters(node, inputs).values())]
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
    _check_new(values, [tensor.name for tensor in graph.initializer])
    values |= {tensor.name: tensor_value(tensor) for tensor in graph.initializer}
    for node in graph.node:
        _check_new(values, node.output)
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


def _check_new(values: Mapping[str, Value], names: Iterable[str]) -> None:
    """Raise SizeError for the names of values that others have: which one is meant is unclear."""
    given = [name for name in names if name]
    if len({*given}) < len(given) or not values.keys().isdisjoint(given):
        raise SizeError("has two values of one name")


def _results(node: NodeProto, read: Sequence[Value]) -> list[Value]:
    """Return the results of an operator by its rule; raises SizeError."""
    if node.op_type == "Constant":
        if [item.name for item in node.attribute] != ["value"]:
            raise SizeError("has a constant of another kind than models have")
        return [tensor_value(attribute(node, "value"))]
    if node.op_type not in RULES:
        raise SizeError(f"has the operator {node.op_type!a:.80}, which no exported model has")
    if node.op_type in ("Div", "Mod"):
        check_division(node, read)
    results = RULES[node.op_type](node, read)
    if max(len(value.dims) for value in results) > MAX_RANK:
        raise SizeError(f"has a value of more than {MAX_RANK} dimensions")
    return list(map(_typed, results, kinds_of(node, read)))


def _typed(value: Value, kind: int) -> Value:
    """Return a value of a type, of which entries are known if they are 64-bit integers."""
    return Value(value.dims, value.content if kind == TensorProto.INT64 else None, kind)


def _loop(node: NodeProto, values: Mapping[str, Value]) -> tuple[list[Value], Cost]:
    """Return the results of a loop over the tokens of sources, and the cost of its body."""
    (body,) = bodies(node)
    *states, scanned = (values[name] for name in node.input)
    count, *entry = scanned.dims
    if {item.name for item in node.attribute} != {"body", "num_scan_inputs"}:
        raise SizeError("has a loop of another kind than models have")
    if attribute(node, "num_scan_inputs") != 1 or count != NAMED["source"]:
        raise SizeError("has a loop over something else than the tokens of a source")
    parts = [*(state._replace(content=None) for state in states)]
    parts.append(Value(tuple(entry), kind=scanned.kind))
    names = (value.name for value in body.input)
    inner, cost = infer(body, {**values, **dict(zip(names, parts, strict=True))})
    results = [inner[value.name] for value in body.output]
    next_states = results[: len(states)]
    collected = results[len(states) :]
    if [value.dims for value in next_states] != [value.dims for value in states]:
        raise SizeError("has a loop whose state changes its size")
    ends = [value._replace(content=None) for value in next_states]
    return [*ends, *(Value((count, *value.dims), kind=value.kind) for value in collected)], cost
