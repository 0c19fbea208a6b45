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
from torch import Tensor, nn

from seq2seq.engines.engine import GraphFiles, Rows
from seq2seq.engines.onnx.graph import OPSET, Graph, attribute, declare, make
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
_Outputs = Mapping[str, Tensor | None]  # by name; None: there is no such output
torch._C._jit_onnx_log = lambda *_: None  # it writes graphs that fail to standard output


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
    src = torch.ones(2, 3, dtype=torch.long)
    lengths = torch.tensor([3, 2])
    training = model.training

    def start(*inputs: Tensor) -> _Outputs:
        return _parts_of(*model.start(model.encode(*inputs)))

    try:
        with _trace_errors(), torch.no_grad(), _recorded(model.eval()) as layers:
            encoder = _export(model, start, {"src": src, "src_lengths": lengths}, "batch")
            decoder = _step_graph(model, *model.start(model.encode(src, lengths)))
            bodies = [_layer_graph(layer) for layer in layers]
    finally:
        model.train(training)
    _unroll(encoder, bodies)
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
    src = torch.ones(3, 6, dtype=torch.long)
    lengths = torch.tensor([6, 4, 1])
    network = Network(encoder.content(), decoder.content())
    encoded = Rows(*network.encode(src.numpy(), lengths.numpy()), 3)
    with torch.no_grad():
        memory, state = model.start(model.encode(src, lengths))
        rows = torch.arange(3).repeat_interleave(4)
        ids = torch.ones(12, dtype=torch.long)
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


def _parts_of(memory: Memory, state: DecoderState) -> _Outputs:
    """Return the parts of a memory and a state by their names in the graphs."""
    return {f"{_MEMORY}{name}": part for name, part in memory._asdict().items()} | state._asdict()


def _in_use(parts: _Outputs) -> dict[str, Tensor]:
    return {name: part for name, part in parts.items() if part is not None and part.numel()}


def _step_graph(model: Seq2Seq, memory: Memory, state: DecoderState) -> Graph:
    """Return the graph of a step of two hypotheses for each of two sentences."""
    parts = _in_use(_parts_of(memory, state.select(torch.tensor([0, 0, 1, 1]))))

    def run(ids: Tensor, *tensors: Tensor) -> _Outputs:
        values: dict[str, Any] = dict(zip(parts, tensors, strict=True))
        hidden = values["hidden"]
        positions = values[f"{_MEMORY}pad_mask"][..., None].float()
        values = {  # parts without width are not in the graph
            **dict.fromkeys((f"{_MEMORY}keys", f"{_MEMORY}values"), positions[..., :0]),
            **{"cell": hidden[..., :0], "input_feed": hidden[:, 0, :0]},
            **values,
        }
        memory = Memory._make(values.get(f"{_MEMORY}{name}") for name in Memory._fields)
        state = DecoderState._make(map(values.get, DecoderState._fields))
        step = model.step(ids, state, memory)
        return {
            "log_probs": model.project(step.outputs).log_softmax(-1),
            "attention_weights": step.attention_weights,
            "head_weights": step.head_weights,
            **{f"next_{name}": part for name, part in step.state._asdict().items()},
        }

    return _export(model, run, {"ids": torch.ones(4, dtype=torch.long)} | parts, "rows")


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
    inputs = {"hidden": hidden, "cell": cell, "gates": hidden.new_zeros(2, layer.gate_size)}

    def step(hidden: Tensor, cell: Tensor, gates: Tensor) -> _Outputs:
        return dict(zip(("next_hidden", "next_cell"), layer.step(gates, hidden, cell), strict=True))

    return _export(layer, step, inputs, "batch")


@contextmanager
def _recorded(model: Seq2Seq) -> Iterator[list[RecurrentLayer]]:
    """Record each recurrent layer of the encoder as one operator; yield the layers."""
    layers = [layer for stack in model.encoder.directions for layer in stack]

    def recorded(layer: RecurrentLayer, number: int) -> Any:
        sizes = layer.hidden_size, layer.cell_size

        class Steps(torch.autograd.Function):
            """Hidden states and cells [S, B, *], given gates [S, B, G] and the first state."""

            @staticmethod
            def forward(_: Any, gates: Tensor, *state: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
                return tuple(gates[..., :size].clone() for size in sizes)

            @staticmethod
            def symbolic(graph: Any, gates: Any, *state: Any) -> Any:
                inputs = *state, gates
                results = graph.op(f"seq2seq::{_RECURRENCE}", *inputs, layer_i=number, outputs=2)
                for result, size in zip(results, sizes, strict=True):
                    result.setType(gates.type().with_sizes([None, None, size]))
                return results

        def run(inputs: Tensor, state: Sequence[Tensor], pad_mask: Tensor) -> tuple[Tensor, Tensor]:
            gates = layer.gates(inputs).transpose(0, 1)
            parts = state[: 1 + layer.has_cell]
            results = Steps.apply(gates, *parts)  # type: ignore[no-untyped-call]
            hiddens, cells = (result.transpose(0, 1) for result in results)
            return hiddens, last_of(cells, (~pad_mask).sum(dim=1))

        return run

    for number, layer in enumerate(layers):
        layer.run = recorded(layer, number)  # type: ignore[method-assign]
    try:
        yield layers
    finally:
        for layer in layers:
            del layer.run


def _unroll(encoder: Graph, steps: Sequence[Graph]) -> None:
    """Replace each recorded layer by a loop over time, which runs over padding, too."""
    for node in encoder.nodes:
        if node.op_type == _RECURRENCE:
            number = attribute(node, "layer")
            body = _body(encoder, steps[number], f"layer_{number}.step/")
            results = node.output[: len(node.input) - 1]  # one for each part of the state
            ends = [f"{name}.end" for name in results]
            loop = make("Scan", node.input, [*ends, *results], num_scan_inputs=1, body=body)
            node.CopyFrom(loop)


def _body(encoder: Graph, step: Graph, prefix: str) -> onnx.GraphProto:
    """Return the body of a loop, whose weights are those of the graph around it."""
    simplify(step)
    proto = onnx.compose.add_prefix_graph(step.proto(step.weights), prefix)
    body = Graph.of(proto, encoder)
    for state in list(body.outputs):
        result = onnx.ValueInfoProto(name=f"{state.name}.result", type=state.type)
        body.outputs.append(result)
        body.nodes.append(make("Identity", [state.name], [result.name]))
    return body.proto({})


class _Function(nn.Module):
    """A function of tensors that uses the weights of a module."""

    def __init__(self, module: nn.Module, function: Callable[..., _Outputs]) -> None:
        super().__init__()
        self.module = module
        self.function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(_in_use(self.function(*inputs)).values())


def _export(
    module: nn.Module, function: Callable[..., _Outputs], inputs: dict[str, Tensor], first: str
) -> Graph:
    """Record a function whose inputs and outputs have this first dimension, but for a memory."""
    file = io.BytesIO()
    outputs = _in_use(function(*inputs.values()))
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
        for value in values:
            names = dims[value.name]
            kind = value.type.tensor_type.elem_type
            sizes = examples[value.name].shape[len(names) :]
            value.CopyFrom(declare(value.name, kind, [*names, *sizes]))
    return graph
