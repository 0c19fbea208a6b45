"""Trace a model as two ONNX graphs: the encoder with the decoder's start, and one decoder step.

torch's exporter records `Seq2Seq.start` and `Seq2Seq.step`, so a decoder or score that is added to
the model is exported without further code. A recurrent layer of the encoder is recorded as one
operator, which is replaced by a loop over its recorded `step`.
"""

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import onnx
import onnx.compose
import torch
from onnx import helper
from torch import Tensor, nn

from seq2seq.engines.engine import GraphFiles, Rows
from seq2seq.engines.onnx.graph import OPSET, Graph, declare, make
from seq2seq.engines.onnx.network import Network
from seq2seq.engines.onnx.simplify import simplify
from seq2seq.model.attention_layer import AttentionLayer
from seq2seq.model.external_score import is_external
from seq2seq.model.recurrent import RecurrentLayer, last_of
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import DecoderState, Memory

_BY_SOURCE = ("src", "coverage", "copied", "attention_weights")  # a value for each source position
_TOLERANCE = 1e-4  # nats
_MEMORY = "memory_"  # prefix of the parts of a memory in the graphs
_RECURRENCE = "Recurrence"  # placeholder of a recurrent layer, which a loop replaces


class TraceError(Exception):
    """A part of a model cannot be traced, such as a user's score; the message says why."""


def traced_graphs(model: Seq2Seq) -> GraphFiles:
    """Return the files of the graphs of a model in float32; raises TraceError."""
    return GraphFiles(*(graph.content() for graph in trace(model)))


def trace(model: Seq2Seq) -> tuple[Graph, Graph]:
    """Return the graphs of a model in float32 on the CPU; raises TraceError.

    The encoder maps src [B, S] and src_lengths [B] to a memory and the first state; the decoder
    maps ids [N] and these to log_probs [N, V], attention weights, and next_* of the state.
    """
    src, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    training = model.training

    def start(*inputs: Tensor) -> dict[str, Tensor]:
        return _parts_of(*model.start(model.encode(*inputs)))

    try:
        with _trace_errors(), torch.no_grad(), _recorded(model.eval()) as layers:
            encoder = _export(model, start, {"src": src, "src_lengths": lengths}, "batch")
            decoder = _step_graph(model, *model.start(model.encode(src, lengths)))
            bodies = [_layer_graph(layer) for layer in layers]
    finally:
        model.train(training)
    _unroll(encoder, layers, bodies)
    simplify(decoder)
    read = {value.name for value in decoder.inputs}
    encoder.outputs = [value for value in encoder.outputs if value.name in read]
    simplify(encoder)
    if isinstance(model.decoder, AttentionLayer) and is_external(
        cast(nn.Module, model.decoder.score)
    ):
        with _trace_errors():
            _check_equal(model.eval(), encoder, decoder)
    return encoder, decoder


def _check_equal(model: Seq2Seq, encoder: Graph, decoder: Graph) -> None:
    """Raise TraceError if a step of the graphs differs from the model's at sizes not traced."""
    src, lengths = torch.ones(3, 6, dtype=torch.long), torch.tensor([6, 4, 1])
    network = Network(encoder.content(), decoder.content())
    encoded = Rows(*network.encode(src.numpy(), lengths.numpy()), 3)
    with torch.no_grad():
        memory, state = model.start(model.encode(src, lengths))
        rows, ids = torch.arange(3).repeat_interleave(4), torch.ones(12, dtype=torch.long)
        step = model.step(ids, state.select(rows), memory)
        expected = model.project(step.outputs).log_softmax(-1).numpy()
    encoded.state = encoded.state.select(rows.numpy())
    values = network.step(encoded, ids.numpy()).values
    if not np.allclose(values, expected, rtol=0, atol=_TOLERANCE):
        raise TraceError("model.score does not have one graph for all sizes")


@contextmanager
def _trace_errors() -> Iterator[None]:
    """Turn an error of torch's exporter, whatever its class, into a TraceError."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise TraceError(f"{type(error).__name__}: {reason}") from error


def _parts_of(memory: Memory, state: DecoderState) -> dict[str, Tensor]:
    """Return the parts of a memory and a state that are in use, by their names in the graphs."""
    parts = {f"{_MEMORY}{name}": part for name, part in memory._asdict().items()}
    parts |= state._asdict()
    return {name: part for name, part in parts.items() if part is not None and part.numel()}


def _step_graph(model: Seq2Seq, memory: Memory, state: DecoderState) -> Graph:
    """Return the graph of a step of two hypotheses for each of two sentences."""
    parts = _parts_of(memory, state.select(torch.tensor([0, 0, 1, 1])))
    ids = torch.ones(4, dtype=torch.long)

    def step(ids: Tensor, *tensors: Tensor) -> dict[str, Tensor]:
        return _step(model, ids, dict(zip(parts, tensors, strict=True)))

    return _export(model, step, {"ids": ids} | parts, "rows")


def _step(model: Seq2Seq, ids: Tensor, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs of a step by their names, given the parts that are in use."""
    fields: dict[str, Any] = {name: parts.get(f"{_MEMORY}{name}") for name in Memory._fields}
    values: dict[str, Any] = {name: parts.get(name) for name in DecoderState._fields}
    for name in ("keys", "values"):
        if fields[name] is None:  # not in the graph: its width is zero
            fields[name] = fields["pad_mask"][..., None][..., :0].float()
    if values["cell"] is None:
        values["cell"] = values["hidden"][..., :0]
    if values["input_feed"] is None:
        values["input_feed"] = values["hidden"][:, 0, :0]
    step = model.step(ids, DecoderState(**values), Memory(**fields))
    outputs = {
        "log_probs": model.project(step.outputs).log_softmax(-1),
        "attention_weights": step.attention_weights,
        "head_weights": step.head_weights,
        **{f"next_{name}": getattr(step.state, name) for name in values if name in parts},
    }
    return {name: output for name, output in outputs.items() if output is not None}


def _dims(name: str, first: str) -> list[str]:
    """Return the names of the variable dimensions of a value, which come first."""
    if name.startswith(_MEMORY):
        return ["batch", "source"]
    if name == "head_weights":
        return [first, "heads", "source"]
    return [first, "source"] if name.removeprefix("next_") in _BY_SOURCE else [first]


def _layer_graph(layer: RecurrentLayer) -> Graph:
    """Return the graph of a step of an encoder layer."""
    hidden, cell = layer.zero_state(2)
    inputs = {"gates": hidden.new_zeros(2, layer.gate_size), "hidden": hidden, "cell": cell}

    def step(*tensors: Tensor) -> dict[str, Tensor]:
        return dict(zip(("next_hidden", "next_cell"), layer.step(*tensors), strict=True))

    return _export(layer, step, inputs, "batch")


class _Recorded(torch.autograd.Function):
    """All steps of a recurrent layer over gates [B, S, G]; in a graph one operator."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ARG004
        gates: Tensor,
        number: int,  # noqa: ARG004
        hidden_size: int,
        cell_size: int,
    ) -> tuple[Tensor, Tensor]:
        return gates[..., :hidden_size].clone(), gates[..., :cell_size].clone()

    @staticmethod
    def symbolic(graph: Any, gates: Any, number: int, hidden_size: int, cell_size: int) -> Any:
        results = graph.op(f"seq2seq::{_RECURRENCE}", gates, layer_i=number, outputs=2)
        for result, size in zip(results, (hidden_size, cell_size), strict=True):
            result.setType(gates.type().with_sizes([None, None, size]))
        return results


@contextmanager
def _recorded(model: Seq2Seq) -> Iterator[list[RecurrentLayer]]:
    """Record each recurrent layer of the encoder as one operator; yield the layers."""
    layers = [layer for stack in model.encoder.directions for layer in stack]

    def recorded(layer: RecurrentLayer, number: int) -> Any:
        def run(inputs: Tensor, _: Any, pad_mask: Tensor) -> tuple[Tensor, Tensor]:
            hiddens, cells = _Recorded.apply(  # type: ignore[no-untyped-call]
                layer.gates(inputs), number, layer.hidden_size, layer.cell_size
            )
            return hiddens, last_of(cells, (~pad_mask).sum(dim=1))

        return run

    for number, layer in enumerate(layers):
        layer.run = recorded(layer, number)  # type: ignore[method-assign]
    try:
        yield layers
    finally:
        for layer in layers:
            del layer.run


def _unroll(encoder: Graph, layers: Sequence[RecurrentLayer], steps: Sequence[Graph]) -> None:
    """Replace each recorded layer by a loop over time, which runs over padding, too."""
    nodes = []
    for node in encoder.nodes:
        if node.op_type != _RECURRENCE:
            nodes.append(node)
            continue
        number = node.attribute[0].i
        nodes += _loop(encoder, node, layers[number], steps[number], f"layer_{number}")
    encoder.nodes = nodes


def _loop(
    encoder: Graph, recorded: onnx.NodeProto, layer: RecurrentLayer, step: Graph, prefix: str
) -> list[onnx.NodeProto]:
    """Return the operators of a layer's loop, given those of its step."""
    (gates,) = recorded.input
    sizes = {"hidden": layer.hidden_size} | ({"cell": layer.cell_size} if layer.has_cell else {})
    nodes = [
        make("Transpose", [gates], [f"{prefix}/gates"], perm=[1, 0, 2]),
        make("Shape", ["src_lengths"], [f"{prefix}/batch"]),
    ]
    for part, size in sizes.items():
        encoder.weights[f"{prefix}_{part}"] = np.array([size])
        shape = f"{prefix}/{part}.shape"
        nodes += [
            make("Concat", [f"{prefix}/batch", f"{prefix}_{part}"], [shape], axis=0),
            make("ConstantOfShape", [shape], [f"{prefix}/{part}.zero"]),
        ]
    starts, ends, values = (
        [f"{prefix}/{part}.{kind}" for part in sizes] for kind in ("zero", "end", "all")
    )
    body = _body(encoder, step, sizes, prefix)
    loop = [*starts, f"{prefix}/gates"], [*ends, *values]
    nodes.append(make("Scan", *loop, num_scan_inputs=1, body=body))
    nodes += [
        make("Transpose", [value], [result], perm=[1, 0, 2])
        for value, result in zip(values, recorded.output, strict=False)
    ]
    return nodes


def _body(encoder: Graph, step: Graph, sizes: Mapping[str, int], prefix: str) -> onnx.GraphProto:
    """Return the body of a loop, whose weights are those of the graph around it."""
    step.outputs = [value for value in step.outputs if value.name.removeprefix("next_") in sizes]
    simplify(step)
    prefix = f"{prefix}.step/"
    proto = onnx.compose.add_prefix_graph(step.proto(step.weights), prefix)
    renamed = Graph.of(proto)
    encoder.weights |= renamed.weights
    values = {value.name.removeprefix(prefix): value for value in renamed.inputs}
    results = []
    for state in renamed.outputs:
        result = onnx.ValueInfoProto(name=f"{state.name}.result", type=state.type)
        results.append(result)
        renamed.nodes.append(make("Identity", [state.name], [result.name]))
    inputs = [values[name] for name in (*sizes, "gates")]
    return helper.make_graph(renamed.nodes, "step", inputs, [*renamed.outputs, *results])


class _Function(nn.Module):
    """A function of tensors that uses the weights of a module."""

    def __init__(self, module: nn.Module, function: Callable[..., dict[str, Tensor]]) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.function(*inputs).values())


def _export(
    module: nn.Module,
    function: Callable[..., dict[str, Tensor]],
    inputs: dict[str, Tensor],
    first: str,
) -> Graph:
    """Record a function whose inputs and outputs have this first dimension, but for a memory."""
    file, outputs = io.BytesIO(), function(*inputs.values())
    examples = inputs | outputs
    dims = {name: _dims(name, first) for name in examples}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Function(module, function).eval(),
            tuple(inputs.values()),
            cast(Any, file),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: dict(enumerate(names)) for name, names in dims.items()},
            opset_version=OPSET,
            dynamo=False,
            custom_opsets={"seq2seq": 1} if "src" in inputs else None,
        )
    graph = Graph.of(onnx.load_from_string(file.getvalue()).graph)
    for values in (graph.inputs, graph.outputs):
        values[:] = [
            declare(
                value.name,
                helper.np_dtype_to_tensor_dtype(examples[value.name].numpy().dtype),
                [*dims[value.name], *examples[value.name].shape[len(dims[value.name]) :]],
            )
            for value in values
        ]
    return graph
