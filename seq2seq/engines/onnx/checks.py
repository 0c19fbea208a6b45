"""Check the graphs of a stranger before ONNX Runtime sees them.

A graph may read files beside it, run for ever or allocate without limit. Accepted are the operators
of traced models, with weights in the file itself, and sizes that follow from those of the inputs.
"""

import math
from collections.abc import Iterable, Mapping

import onnx
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    checker,
    helper,
    shape_inference,
)

from seq2seq.engines.onnx.graph import CONTRIB, IR_VERSION, PRODUCT, bodies, declare, make

MAX_NODES = 10_000
MAX_ELEMENTS = 1 << 30  # elements of one value, for the sizes of _TRIAL
_SMALL = 64  # elements of weights that sizes may depend on
_TRIAL = {"batch": 2, "rows": 4, "source": 16}  # sizes of the inputs that sizes are inferred for
_REFUSED = frozenset(
    [
        *("If", "Loop", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Bernoulli", "Multinomial", "StringNormalizer", "TfIdfVectorizer", "Optional"),
        *("SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceMap"),
        *("ConcatFromSequence", "SplitToSequence", "ImageDecoder", "RegexFullMatch"),
        *("StringConcat", "StringSplit"),
    ]
)
# operators whose results may be larger than what they read
_GROWING = frozenset(("ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile"))
_ENCODER = {"src": ["batch", "source"], "src_lengths": ["batch"]}
_OUTPUTS = frozenset(("log_probs", "attention_weights", "head_weights", "undefined"))
Declared = dict[str, tuple[int, list[int | str]]]  # type and dimensions by name


class GraphError(ValueError):
    """A graph that is damaged or not one of a model; the message says why, in one line."""


def check_graphs(encoder: bytes, decoder: bytes, vocabulary_size: int) -> None:
    """Raise GraphError for graphs that are not those of a model with this vocabulary."""
    try:
        first, step = map(onnx.load_from_string, (encoder, decoder))
    except Exception as error:  # any of the protocol buffer library
        raise GraphError("not an ONNX file") from error
    for model in (first, step):
        _check_model(model)
    inputs, outputs = _declared(first.graph.input), _declared(first.graph.output)
    if {name: dims for name, (_, dims) in inputs.items()} != _ENCODER:
        raise GraphError("the encoder has other inputs")
    _check_step(_declared(step.graph.input), _declared(step.graph.output), outputs, vocabulary_size)


def _check_model(model: ModelProto) -> None:
    domains = {opset.domain for opset in model.opset_import}
    if model.functions or model.training_info or not domains <= {"", CONTRIB}:
        raise GraphError("has functions or operators of another domain")
    graphs = [model.graph]
    graphs += [body for node in model.graph.node for body in bodies(node)]
    count = sum(len(graph.node) for graph in graphs)
    if count > MAX_NODES:
        raise GraphError(f"has {count:,} operators, more than {MAX_NODES:,}")
    for depth, graph in enumerate(graphs):
        if graph.sparse_initializer:
            raise GraphError("has sparse weights")
        tensors = list(graph.initializer)
        for node in graph.node:
            _check_node(node, in_loop=depth > 0)
            for item in node.attribute:
                tensors += [item.t, *item.tensors]
        if any(t.data_location == TensorProto.EXTERNAL or t.external_data for t in tensors):
            raise GraphError("has weights in another file")
    _check_sizes(model)


def _check_node(node: NodeProto, in_loop: bool) -> None:
    kind = node.op_type
    if node.domain not in ("", "ai.onnx") and (node.domain != CONTRIB or kind != PRODUCT):
        raise GraphError(f"has the operator {kind!a:.80} of another domain")
    loops = kind == "Scan"
    if kind in _REFUSED or (loops and in_loop) or bool(bodies(node)) != loops:
        raise GraphError(f"has the operator {kind!a:.80}, which no exported model has")
    if any(item.graphs or item.HasField("sparse_tensor") for item in node.attribute):
        raise GraphError("has operators of operators or sparse weights")


def _check_sizes(model: ModelProto) -> None:
    """Infer the size of every value for small inputs; all have to be known and small."""
    try:
        trial = _trial(model)
        checker.check_model(trial)
        inferred = shape_inference.infer_shapes(trial, data_prop=True, strict_mode=True).graph
    except Exception as error:  # onnx has its own classes
        raise GraphError("is not a valid graph") from error
    sizes = _declared((*inferred.value_info, *inferred.output, *inferred.input))
    for name, (_, dims) in sizes.items():
        numbers = [dim for dim in dims if isinstance(dim, int)]
        if any(size < 0 for size in numbers) or math.prod(numbers) > MAX_ELEMENTS:
            raise GraphError(f"has the value {name!a:.80} of {dims} elements")
    producers = {name: node for node in inferred.node for name in node.output}
    for node in inferred.node:
        dims = sizes.get(node.output[0], (0, ["unknown"]))[1]
        is_known = all(isinstance(dim, int) and dim for dim in dims)
        if node.op_type == "Range":
            is_known = _is_size(node.input[1], producers)
        if node.op_type in _GROWING and not is_known:
            raise GraphError(f"has the operator {node.op_type} of an unknown size")


def _trial(model: ModelProto) -> ModelProto:
    """Return a model whose inputs have the sizes of _TRIAL, without large weights."""
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type != PRODUCT:
            nodes.append(node)
            continue
        integers = f"{node.output[0]}/integers"
        nodes.append(make("MatMulInteger", node.input[:2], [integers]))
        nodes.append(make("Cast", [integers], node.output, to=TensorProto.FLOAT))
    weights = model.graph.initializer
    large = [weight for weight in weights if math.prod(weight.dims) > _SMALL]
    inputs = [declare(weight.name, weight.data_type, weight.dims) for weight in large]
    for name, (kind, dims) in _declared(model.graph.input).items():
        inputs.append(declare(name, kind, [_TRIAL.get(str(dim), dim) for dim in dims]))
    outputs = [
        declare(name, kind, [None] * len(dims))
        for name, (kind, dims) in _declared(model.graph.output).items()
    ]
    small = [weight for weight in weights if math.prod(weight.dims) <= _SMALL]
    graph = helper.make_graph(nodes, "trial", inputs, outputs, small)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=IR_VERSION)


def _is_size(name: str, producers: Mapping[str, NodeProto]) -> bool:
    """Return whether a value is the size of another one."""
    node = producers.get(name)
    while node is not None and node.op_type in ("Cast", "Gather", "Squeeze"):
        node = producers.get(node.input[0])
    return node is not None and node.op_type == "Shape"


def _declared(values: Iterable[ValueInfoProto]) -> Declared:
    kinds = {value.name: value.type.tensor_type for value in values}
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
