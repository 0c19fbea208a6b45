"""Graphs of exported models, run by ONNX Runtime, against the model's own steps."""

from typing import Any

import numpy as np
import pytest
import torch
from model_cases import (
    CASES,
    LENGTHS,
    ONE_OF_EACH,
    SRC,
    TGT_IN,
    UNITS,
    Case,
    E,
    H,
    R,
    V,
    make_copying_model,
    make_decoder,
    make_model,
    randomize,
)
from numpy.typing import NDArray
from onnx import TensorProto
from torch import nn

from seq2seq.export import copying
from seq2seq.export.decoder import decoder_graph
from seq2seq.export.encoder import encoder_graph
from seq2seq.export.graph import Graph, quantize
from seq2seq.model.encoder import Encoder
from seq2seq.model.gru import GRULayer
from seq2seq.model.layers import ScaledEmbedding
from seq2seq.model.lstm import LSTMLayer
from seq2seq.model.recurrent import RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq

onnxruntime = pytest.importorskip("onnxruntime")
K = 2
Arrays = dict[str, NDArray[Any]]


class Session:
    """Graph loaded into ONNX Runtime."""

    def __init__(self, graph: Graph) -> None:
        self._session = onnxruntime.InferenceSession(graph.model().SerializeToString())
        self.outputs = [each.name for each in self._session.get_outputs()]
        self.widths = {
            each.name: each.shape[-1] if each.shape else 0 for each in self._session.get_inputs()
        }

    def __call__(self, inputs: Arrays) -> Arrays:
        """Return the outputs by name; inputs that the graph lacks are ignored."""
        own = {each.name: inputs[each.name] for each in self._session.get_inputs()}
        return dict(zip(self.outputs, self._session.run(None, own), strict=True))


def check(model: Seq2Seq, src: torch.Tensor, tolerance: float, int8: bool = False) -> None:
    """Assert equal log-probabilities and attention of several hypotheses over several steps."""
    model = model.eval()
    rows = torch.arange(len(src)).repeat_interleave(K)
    memory, state = model.start(model.encode(src, LENGTHS))
    state = state.select(rows)
    encode, advance = Session(encoder_graph(model, int8)), Session(decoder_graph(model, int8))
    values = encode({"src": src.numpy(), "src_lengths": LENGTHS.numpy()})
    names = [name.removeprefix("next_") for name in advance.outputs if "next_" in name]
    values |= {name: values[name][rows.numpy()] for name in names if name in values}
    values |= {
        name: np.zeros((len(rows), {"source": src.shape[1]}.get(advance.widths[name], 1)), "f")
        for name in names
        if name not in values
    }
    for step_ids in TGT_IN.repeat_interleave(K, 0).unbind(1):
        step_ids = step_ids + rows % 2  # hypotheses of one sentence differ
        step = model.step(step_ids, state, memory)
        state = step.state
        expected = model.project(step.outputs).log_softmax(-1)
        found = advance(values | {"ids": step_ids.numpy()})
        np.testing.assert_allclose(
            found["log_probs"], expected.detach().numpy(), rtol=0, atol=tolerance
        )
        if step.attention_weights is not None:
            weights = step.attention_weights.detach().numpy()
            np.testing.assert_allclose(found["attention_weights"], weights, rtol=0, atol=tolerance)
        values |= {name: found[f"next_{name}"] for name in names}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_steps_of_a_graph_equal_those_of_the_model(case: Case) -> None:
    check(make_model(case), SRC, 1e-5)


@pytest.mark.parametrize("case", [case for case in CASES if case.kind != "plain"], ids=str)
def test_a_graph_copies_like_the_model(case: Case) -> None:
    check(make_copying_model(case), SRC.clamp(max=V - 1), 1e-5)


LAYERS = pytest.mark.parametrize("layer_class", [LSTMLayer, GRULayer], ids=["lstm", "gru"])


def with_encoder(
    case: Case,
    layer_class: type[RecurrentLayer],
    layers: int = 2,
    bidirectional: bool = True,
    reverse: bool = False,
    residual: bool = False,
) -> Seq2Seq:
    """Return a model with layers of this class in its encoder, of this shape, and decoder."""
    shape = H, layers, bidirectional, 0.0, reverse, residual
    encoder = Encoder(ScaledEmbedding(V, E), *shape, layer_class)
    decoder = make_decoder(case._replace(unit="gru") if layer_class is GRULayer else case)
    return Seq2Seq(encoder, decoder, ScaledEmbedding(V, E), nn.Linear(R, V), 0.0).eval()


@pytest.mark.parametrize(
    ("bidirectional", "reverse", "residual", "layers"),
    [(True, False, True, 3), (False, False, False, 2), (False, True, True, 3)],
)
@pytest.mark.parametrize("decoder_layers", [1, 2, 4])
def test_encoders_of_every_shape_are_exported(
    bidirectional: bool, reverse: bool, residual: bool, layers: int, decoder_layers: int
) -> None:
    case = Case("luong", "general", True, decoder_layers)
    model = with_encoder(case, LSTMLayer, layers, bidirectional, reverse, residual)
    randomize(model, seed=7)
    check(model, SRC.clamp(max=V - 1), 1e-5)


@LAYERS
@pytest.mark.parametrize(
    ("bidirectional", "reverse", "residual", "layers"),
    [
        (True, False, False, 3),
        (True, False, True, 3),
        (False, False, False, 2),
        (False, True, True, 3),
    ],
)
def test_an_int8_encoder_is_close_to_the_model_and_zero_at_padding(
    layer_class: type[RecurrentLayer],
    bidirectional: bool,
    reverse: bool,
    residual: bool,
    layers: int,
) -> None:
    case = Case("luong", "dot", True, layers)
    model = with_encoder(case, layer_class, layers, bidirectional, reverse, residual)
    randomize(model, seed=7)
    src = SRC.clamp(max=V - 1)
    graph = encoder_graph(model, int8=True)
    assert not {each.op_type for each in graph.model().graph.node} & {"LSTM", "GRU", "Gemm"}
    found = Session(graph)({"src": src.numpy(), "src_lengths": LENGTHS.numpy()})
    memory, state = model.start(model.encode(src, LENGTHS))
    expected = {"values": memory.values.detach().numpy()}
    for level in range(layers):
        expected[f"hidden_{level}"] = state.hidden[:, level].detach().numpy()
        if layer_class.has_cell:
            expected[f"cell_{level}"] = state.cell[:, level].detach().numpy()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=0.1)
        assert np.abs(found[name] - values).mean() < 0.01
    for row, length in zip(found["values"], LENGTHS.tolist(), strict=True):
        assert not row[length:].any()


@LAYERS
def test_an_int8_encoder_does_not_depend_on_other_sources_or_padding(
    layer_class: type[RecurrentLayer],
) -> None:
    model = with_encoder(Case("luong", "general", True, 1), layer_class)
    randomize(model, seed=8)
    run, src = Session(encoder_graph(model, int8=True)), SRC.clamp(max=V - 1).numpy()
    together = run({"src": src, "src_lengths": LENGTHS.numpy()})
    states = [name for name in together if name.startswith(("hidden", "cell"))]
    assert len(states) == (2 if layer_class.has_cell else 1)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = run({"src": src[row : row + 1, :length], "src_lengths": np.array([length])})
        assert np.array_equal(alone["values"][0], together["values"][row, :length])
        assert np.array_equal(alone["keys"][0], together["keys"][row, :, :length])
        for name in states:
            assert np.array_equal(alone[name][0], together[name][row])


@pytest.mark.parametrize(
    ("layer_class", "gate"),
    [
        *((LSTMLayer, gate) for gate in range(4)),
        *((GRULayer, gate) for gate in range(3)),
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_an_undefined_output_of_any_int8_encoder_layer_is_seen(
    level: int, layer_class: type[RecurrentLayer], gate: int
) -> None:
    """Rounding to integers loses NaN, which the decoder's first state has to keep."""
    for case in (Case("luong", "general", True, 1), Case("bahdanau", "scaled_dot", False, 1)):
        model = with_encoder(case, layer_class)
        randomize(model, seed=9)
        with torch.no_grad():
            layer: Any = model.encoder.directions[1][level]
            layer.bias[gate * H // 2] = torch.nan
        inputs = {"src": SRC.clamp(max=V - 1).numpy(), "src_lengths": LENGTHS.numpy()}
        found = Session(encoder_graph(model, int8=True))(inputs)
        assert np.isnan(found["hidden_0"]).all()


def test_a_decoder_that_rounds_with_no_fixed_scale_shows_an_overflow() -> None:
    case = Case("bahdanau", "dot", False, 1, unit="maxout")
    model = with_encoder(case, LSTMLayer, layers=1, residual=True)
    assert "output_sum" in Session(decoder_graph(model, int8=True)).outputs


def test_bounds_are_inferred() -> None:
    graph = Graph("bounds", int8=True)
    free, unit = graph.input("free", [2, 3]), graph.input("unit", [2, 3], bound=1.0)
    gate = graph.op("Sigmoid", free)
    doubled = graph.op("Mul", graph.op("Tanh", free), graph.constant(-2.0))
    inferred = {
        gate: 1.0,
        doubled: 2.0,
        graph.op("Mul", gate, doubled): 2.0,
        graph.concat(unit, doubled): 2.0,
        graph.reshape(doubled, 3, 2): 2.0,
        graph.split(doubled, [1, 2])[1]: 2.0,
        graph.op("Where", free, gate, doubled): 2.0,
        graph.op("Add", unit, gate): None,
        graph.op("Mul", free, gate): None,
        graph.concat(free, gate): None,
        graph.op("Where", gate, free, gate): None,
    }
    assert {value: graph.bound(value) for value in inferred} == inferred


def test_rows_of_a_table_are_multiplied_as_they_are_stored() -> None:
    """The product of stored integers is exact but for the scales."""
    generator = torch.Generator().manual_seed(3)
    table, weight = (torch.randn(size, generator=generator) for size in ((9, 16), (5, 16)))
    graph = Graph("rows", int8=True)
    ids = graph.input("ids", ["rows"], TensorProto.INT64)
    found = graph.linear(graph.rows(table, ids, 4.0), weight, torch.ones(5))
    graph.output(found, "found", ["rows", 5])
    model = graph.model()
    assert [each.op_type for each in model.graph.node].count("Gather") == 2
    assert not {each.op_type for each in model.graph.node} & {"Sub", "Round", "QuantizeLinear"}
    read = {name for node in model.graph.node for name in node.input}
    assert {each.name for each in model.graph.initializer} <= read
    numbers = np.arange(9)
    (values,) = Session(graph)({"ids": numbers}).values()
    (rows, scales), (columns, factors) = quantize(table), quantize(weight)
    exact = (rows.astype(float) @ columns.T) * scales * factors.T * 4 + 1
    np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-5)


def test_logarithms_do_not_depend_on_the_other_rows() -> None:
    """Rows do not fill a processor's vectors, as they do in search: clients choose S freely."""
    graph, rows = Graph("logarithms"), np.random.default_rng(1).random((9, 7), np.float32)
    values = graph.input("values", ["rows", 7])
    graph.output(copying._log(graph, values), "log", ["rows", 7])
    run = Session(graph)
    rows[0, 0] = 0
    together = run({"values": rows})["log"]
    for row, expected in zip(rows, together, strict=True):
        assert np.array_equal(run({"values": row[None]})["log"][0], expected)
    assert together[0, 0] == -np.inf
    np.testing.assert_allclose(together[1:], np.log(rows[1:].astype(float)), rtol=1e-6)


@pytest.mark.parametrize("case", [*ONE_OF_EACH, *UNITS], ids=str)
def test_an_int8_decoder_has_the_sum_that_shows_an_overflow(case: Case) -> None:
    assert "output_sum" in Session(decoder_graph(make_model(case), int8=True)).outputs
