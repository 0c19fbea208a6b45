"""Check the graphs of a stranger before ONNX Runtime sees them.

A graph may read files beside it, run for ever or allocate without limit. Accepted are the operators
of traced models, with weights in the file itself, and values whose sizes follow from those of the
inputs. What a graph computes is bounded as a whole, relative to its own weights.

The code of a stranger, a score of another module, is refused in `model/external_score.py`.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from seq2seq.engines.onnx.cost import LOOP, MAX_RANK, Cost, infer
from seq2seq.engines.onnx.graph import CONTRIB, OPSET, PRODUCT, bodies
from seq2seq.engines.onnx.size import ENCODED_ROWS, MAX_ROWS, NAMED, InputSizes, Size, SizeError
from seq2seq.engines.onnx.size_rules import Value

MAX_NODES = 10_000
_MAX_NAMES = 1_000  # of values that an operator reads and computes
_SMALL = 1 << 12  # a model counts as having as many weights at least
_OPSETS = {"": OPSET, "ai.onnx": OPSET, CONTRIB: 1}
_ENCODER = {"src": ["batch", "source"], "src_lengths": ["batch"]}
_OUTPUTS = frozenset(("log_probs", "attention_weights", "head_weights", "undefined"))
_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
Declared = dict[str, tuple[int, list[int | str]]]  # type and dimensions by name


class GraphError(ValueError):
    """A graph that is damaged or not one of a model; the message says why, in one line."""


class _Bound(NamedTuple):
    """Most that a graph may compute for each row: a token of a source, or a hypothesis."""

    per_weight: int  # multiple of a measure of its own weights
    per_entry: int  # multiple of the entries that the row reads


# Graphs that are made here have a third.
_VALUES = _Bound(per_weight=16, per_entry=32)  # of rows and columns of weights
_WORK = _Bound(per_weight=16, per_entry=128)  # of the entries of all weights
_WORK_OF_OPERATOR = _Bound(per_weight=16, per_entry=32)  # of the entries of the largest weight


class _CostTrial(NamedTuple):
    """Inputs for which the cost of a graph is computed."""

    rows: int  # tokens of the sources, or hypotheses
    sizes: InputSizes


def check_graphs(encoder: bytes, decoder: bytes, vocabulary_size: int, max_length: int) -> None:
    """Raise GraphError for graphs that are not those of a model with this vocabulary.

    A source has at most `max_length` tokens, without end-of-sentence.
    """
    try:
        first, step = map(onnx.load_from_string, (encoder, decoder))
    except Exception as error:  # any of the protocol buffer library
        raise GraphError("not an ONNX file") from error
    for model in (first, step):
        _check_model(model)
    inputs = _declared(first.graph.input)
    outputs = _declared(first.graph.output)
    if {name: dims for name, (_, dims) in inputs.items()} != _ENCODER:
        raise GraphError("the encoder has other inputs")
    _check_step(_declared(step.graph.input), _declared(step.graph.output), outputs, vocabulary_size)
    longest = max_length + 1
    sources = ((1, 1), (1, longest), (ENCODED_ROWS, longest))
    trials = [_CostTrial(batch * source, InputSizes(batch, 1, source)) for batch, source in sources]
    _check_cost(first.graph, trials)
    shapes = ((1, 1, 1), (1, 1, longest), (1, MAX_ROWS, longest), (MAX_ROWS, 1, longest))
    trials = [
        _CostTrial(batch * beam, InputSizes(batch, beam, width)) for batch, beam, width in shapes
    ]
    _check_cost(step.graph, trials)


def _check_model(model: ModelProto) -> None:
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    is_known = opsets.items() <= _OPSETS.items() and len(opsets) == len(model.opset_import)
    if not is_known:
        raise GraphError("has operators of another domain or version than those of an export")
    if model.functions or model.training_info:
        raise GraphError("has functions, or information for training")
    check_number_of_operators(model.graph)
    for depth, graph in enumerate(_with_bodies(model.graph)):
        if graph.sparse_initializer:
            raise GraphError("has sparse weights")
        for node in graph.node:
            if len(node.input) + len(node.output) > _MAX_NAMES:
                raise GraphError(f"has an operator of more than {_MAX_NAMES:,} values")
            _check_node(node, in_loop=depth > 0)
        for tensor in tensors_of(graph):
            _check_tensor(tensor)


def _with_bodies(graph: GraphProto) -> list[GraphProto]:
    """Return a graph and the bodies of its loops."""
    return [graph, *(body for node in graph.node for body in bodies(node))]


def check_number_of_operators(graph: GraphProto) -> None:
    """Raise GraphError for a graph whose preparation takes long, by its operators or weights."""
    graphs = _with_bodies(graph)
    operators = sum(len(graph.node) for graph in graphs)
    weights = sum(len(graph.initializer) for graph in graphs)
    for count, unit in ((operators, "operators"), (weights, "weights")):
        if count > MAX_NODES:
            raise GraphError(f"has {count:,} {unit}, more than {MAX_NODES:,}")


def tensors_of(graph: GraphProto) -> Iterable[TensorProto]:
    """Yield the weights of a graph, and those that its operators have as attributes."""
    yield from graph.initializer
    for node in graph.node:
        for item in node.attribute:
            if item.HasField("t"):
                yield item.t
            yield from item.tensors


def _check_tensor(tensor: TensorProto) -> None:
    """Raise GraphError for weights in another file, or of another size than their bytes."""
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise GraphError("has weights in another file")
    if len(tensor.dims) > MAX_RANK:
        raise GraphError(f"has weights of more than {MAX_RANK} dimensions")
    count = math.prod(tensor.dims)
    held = sum(len(getattr(tensor, name)) for name in _TYPED_FIELDS)
    expected = count
    if tensor.HasField("raw_data"):
        held = len(tensor.raw_data)
        try:
            expected *= helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        except (KeyError, TypeError):
            raise GraphError("has weights of an unknown type") from None
    if min(tensor.dims, default=0) < 0 or held != expected:
        dims = list(tensor.dims)
        raise GraphError(f"has weights of {held:,} bytes or numbers for a size of {dims!a:.80}")


def _check_node(node: NodeProto, in_loop: bool) -> None:
    kind = node.op_type
    if node.domain not in ("", "ai.onnx") and (node.domain != CONTRIB or kind != PRODUCT):
        raise GraphError(f"has the operator {kind!a:.80} of another domain")
    if bool(bodies(node)) != (kind == LOOP) or (kind == LOOP and in_loop):
        raise GraphError(f"has the operator {kind!a:.80}, which no exported model has")
    if any(item.graphs or item.HasField("sparse_tensor") for item in node.attribute):
        raise GraphError("has operators of operators or sparse weights")
    if len({item.name for item in node.attribute}) < len(node.attribute):
        raise GraphError(f"has an attribute of the operator {kind!a:.80} twice")


class _WeightSizes(NamedTuple):
    """Measures of a graph's own weights, by which its work for each row is bounded."""

    entries: int  # of all weights
    largest: int  # entries of the largest one
    lengths: int  # the sum of their dimensions, but of those without entries


def _weight_sizes(graph: GraphProto) -> _WeightSizes:
    shapes = [list(tensor.dims) for tensor in tensors_of(graph)]
    counts = [math.prod(shape) for shape in shapes]
    lengths = sum(sum(shape) for shape in shapes if math.prod(shape))
    return _WeightSizes(sum(counts), max(counts, default=0), lengths)


def _check_cost(graph: GraphProto, trials: Iterable[_CostTrial]) -> None:
    """Infer the sizes of all values, and raise GraphError for too much memory or work."""
    values, cost = _inferred(graph)
    for output in graph.output:
        if output.name not in values:
            raise GraphError(f"has the output {output.name!a:.80}, which nothing computes")
        dims = values[output.name].dims
        kind = output.type.tensor_type
        declared = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
        if len(dims) != len(declared) or not all(map(_fits, dims, declared)):
            raise GraphError(f"has the output {output.name!a:.80} of another size than it says")
    weights = _weight_sizes(graph)
    input_sizes = [values[value.name].size for value in graph.input]
    for trial in trials:
        one_row = InputSizes(1, 1, trial.sizes.source)
        entries = sum(size.at(one_row) for size in input_sizes)
        _check_trial(trial, cost, weights, entries)


def _fits(size: Size, declared: int | str) -> bool:
    if declared == "heads":
        return size.number is not None
    return size == (NAMED.get(declared) if isinstance(declared, str) else Size(declared))


def _declared_size(dim: int | str) -> Size:
    return NAMED[dim] if isinstance(dim, str) else Size(dim)


def _inferred(graph: GraphProto) -> tuple[dict[str, Value], Cost]:
    try:
        inputs = {
            name: Value(tuple(map(_declared_size, dims)), kind=kind)
            for name, (kind, dims) in _declared(graph.input).items()
        }
        return infer(graph, inputs)
    except SizeError as error:
        raise GraphError(str(error)) from None
    except Exception as error:  # names, axes or attributes that are missing or of another type
        raise GraphError("is not a valid graph") from error


def _check_trial(trial: _CostTrial, cost: Cost, weights: _WeightSizes, entries: int) -> None:
    """Raise GraphError if a graph allocates or computes too much for inputs of some sizes.

    Each row has a number of entries to read.
    """
    rows = trial.rows
    values = sum(size.at(trial.sizes) for size in cost.entries)
    work = [sum(size.at(trial.sizes) for size in operator) for operator in cost.work]
    for unit, count, bound, measure in (
        ("values", values, _VALUES, weights.lengths),
        ("steps of work", sum(work), _WORK, weights.entries),
        ("steps in one operator", max(work, default=0), _WORK_OF_OPERATOR, weights.largest),
    ):
        limit = rows * (bound.per_weight * (measure + _SMALL) + bound.per_entry * entries)
        if count > limit:
            text = f"computes {count:,} {unit} for {rows:,} rows, a model of its size {limit:,}"
            raise GraphError(f"{text} at most")


def _declared(values: Iterable[ValueInfoProto]) -> Declared:
    kinds = {value.name: value.type.tensor_type for value in values}
    if any(len(kind.shape.dim) > MAX_RANK for kind in kinds.values()):
        raise GraphError(f"has inputs or outputs of more than {MAX_RANK} dimensions")
    return {
        name: (kind.elem_type, [dim.dim_param or dim.dim_value for dim in kind.shape.dim])
        for name, kind in kinds.items()
    }


def _check_step(
    inputs: Declared, outputs: Declared, encoded: Declared, vocabulary_size: int
) -> None:
    """Check that a step reads what the encoder returns, and returns what the next step reads."""
    if inputs.pop("ids", None) != (TensorProto.INT64, ["rows"]):
        raise GraphError("the decoder reads no ids")
    if outputs.get("log_probs") != (TensorProto.FLOAT, ["rows", vocabulary_size]):
        raise GraphError("the decoder has log-probabilities of another vocabulary")
    state = {name: kind for name, kind in inputs.items() if f"next_{name}" in outputs}
    for name, (kind, dims) in inputs.items():
        rows = "rows" if name in state else "batch"
        if dims[:1] != [rows] or encoded.get(name) != (kind, ["batch", *dims[1:]]):
            raise GraphError(f"the decoder reads {name!a:.80}, which the encoder does not return")
    for name, (kind, dims) in outputs.items():
        if name not in _OUTPUTS and state.get(name.removeprefix("next_")) != (kind, dims):
            raise GraphError(f"the decoder returns {name!a:.80}, which it does not read")
