"""Graphs quantized to int8: close to the model, alike in any batch, and undefined aloud."""

import copy
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from cases.growth import LINEAR, growth
from cases.models import (
    LENGTHS,
    ONE_OF_EACH,
    PAIRWISE,
    SRC,
    UNITS,
    Case,
    E,
    H,
    R,
    V,
    make_decoder,
    randomize,
)
from cases.tiers import one_quick
from cases.traced_models import traced
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from torch import nn

from seq2seq.engines.onnx import network
from seq2seq.engines.onnx.bounds import ValueBounds, bounds_of, recurrent_bounds
from seq2seq.engines.onnx.graph import FLOAT, INT, Graph, declare, make
from seq2seq.engines.onnx.int8 import (
    UNDEFINED,
    quantize_graphs,
    quantize_rows,
    with_unsigned_weights,
)
from seq2seq.engines.onnx.trace import trace
from seq2seq.engines.onnx.untrusted_graphs import check_graphs
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import ScaledEmbedding
from seq2seq.model.recurrent import GRULayer, LSTMLayer, RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq

Arrays = dict[str, NDArray[Any]]
LAYERS = pytest.mark.parametrize("layer_class", [LSTMLayer, GRULayer], ids=["lstm", "gru"])


CASE = Case("luong", "general", True, 1)


def run(graph: Graph, **values: NDArray[Any]) -> Arrays:
    return results(network.session(graph.content()), **values)


def results(session: InferenceSession, **values: NDArray[Any]) -> Arrays:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, values), strict=True))


def quantized(model: Seq2Seq) -> tuple[Graph, Graph]:
    graphs = trace(copy.deepcopy(model).float().eval())
    quantize_graphs(*graphs)
    return graphs


def with_encoder(
    layer_class: type[RecurrentLayer],
    layers: int = 2,
    bidirectional: bool = True,
    reverse: bool = False,
    residual: bool = False,
    case: Case = CASE,
) -> Seq2Seq:
    """Return a model with layers of this class in its encoder, of this shape, and decoder."""
    shape = H, layers, bidirectional, 0.0, reverse, residual
    encoder = Encoder(ScaledEmbedding(V, E), *shape, layer_class)
    decoder = make_decoder(case._replace(unit="gru") if layer_class is GRULayer else case)
    model = Seq2Seq(encoder, decoder, ScaledEmbedding(V, E), nn.Linear(R, V), 0.0).eval()
    randomize(model, seed=7)
    return model


@one_quick(
    ("case", "copies"),
    [(case, bool(n % 2) and case.kind != "plain") for n, case in enumerate(PAIRWISE[::2])],
    ids=str,
    quick={0, 13},
)
def test_every_model_is_quantized(case: Case, copies: bool) -> None:
    graphs = traced(case, copies)
    quantize_graphs(*graphs)
    check_graphs(*(graph.content() for graph in graphs), V, 100)
    assert {"MatMulIntegerToFloat"} <= {node.op_type for node in graphs[1].nodes}
    assert UNDEFINED in {value.name for value in graphs[1].outputs}


@LAYERS
@one_quick(
    ("bidirectional", "reverse", "residual", "layers"),
    [
        (True, False, False, 3),
        (True, False, True, 3),
        (False, False, False, 2),
        (False, True, True, 3),
    ],
    quick={1, 3},
)
def test_an_int8_encoder_is_close_to_the_model_and_zero_at_padding(
    layer_class: type[RecurrentLayer],
    bidirectional: bool,
    reverse: bool,
    residual: bool,
    layers: int,
) -> None:
    case = Case("luong", "dot", True, layers)
    model = with_encoder(layer_class, layers, bidirectional, reverse, residual, case)
    src = SRC.clamp(max=V - 1)
    outputs = run(quantized(model)[0], src=src.numpy(), src_lengths=LENGTHS.numpy())
    memory, state = model.start(model.encode(src, LENGTHS))
    expected = {"memory_values": memory.values.detach().numpy()}
    expected["hidden"] = state.hidden.detach().numpy()
    if layer_class.has_cell:
        expected["cell"] = state.cell.detach().numpy()
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, rtol=0, atol=0.1)
        assert np.abs(outputs[name] - values).mean() < 0.01
    for row, length in zip(outputs["memory_values"], LENGTHS.tolist(), strict=True):
        assert not row[length:].any()


@LAYERS
def test_an_int8_encoder_does_not_depend_on_other_sources_or_padding(
    layer_class: type[RecurrentLayer],
) -> None:
    graph = quantized(with_encoder(layer_class))[0]
    src = SRC.clamp(max=V - 1).numpy()
    in_one_batch = run(graph, src=src, src_lengths=LENGTHS.numpy())
    states = [name for name in in_one_batch if name.startswith(("hidden", "cell"))]
    assert len(states) == (2 if layer_class.has_cell else 1)
    for row, length in enumerate(LENGTHS.tolist()):
        single = run(graph, src=src[row : row + 1, :length], src_lengths=np.array([length]))
        for name in ("memory_values", "memory_keys"):
            assert np.array_equal(single[name][0], in_one_batch[name][row, :length])
        for name in states:
            assert np.array_equal(single[name][0], in_one_batch[name][row])


@one_quick(
    ("layer_class", "gate"),
    [*((LSTMLayer, gate) for gate in range(4)), *((GRULayer, gate) for gate in range(3))],
    quick={1, 5},
)
def test_an_undefined_output_of_any_int8_encoder_layer_is_seen(
    layer_class: type[RecurrentLayer], gate: int
) -> None:
    """Rounding to integers loses NaN, which every step of the decoder has to show."""
    cases = (Case("luong", "general", True, 1), Case("bahdanau", "scaled_dot", False, 1))
    model = with_encoder(layer_class, case=cases[gate // 2])
    with torch.no_grad():
        layer: Any = model.encoder.directions[1][gate % 2]
        layer.bias[gate * H // 2] = torch.nan
    src = SRC.clamp(max=V - 1).numpy()
    encoder, decoder = quantized(model)
    values = run(encoder, src=src, src_lengths=LENGTHS.numpy())
    for _ in range(2):
        read = {value.name for value in decoder.inputs}
        values |= {"ids": np.ones(len(src), np.int64)}
        results = run(decoder, **{name: values[name] for name in read})
        assert np.isnan(results[UNDEFINED]).all()
        values |= {name.removeprefix("next_"): part for name, part in results.items()}


@one_quick(
    "case",
    [case for case in (*ONE_OF_EACH, *UNITS) if case not in PAIRWISE[::2]],
    ids=str,
    quick={0, 3, 6},
)
def test_an_int8_decoder_shows_where_a_rounded_value_is_undefined(case: Case) -> None:
    graphs = traced(case)
    quantize_graphs(*graphs)
    assert UNDEFINED in {value.name for value in graphs[1].outputs}


def test_bounds_are_inferred() -> None:
    nodes = [
        make("Sigmoid", ["free"], ["gate"]),
        make("Tanh", ["free"], ["tanh"]),
        make("Mul", ["tanh", "minus_two"], ["doubled"]),
        make("Mul", ["gate", "doubled"], ["gated"]),
        make("Concat", ["unit", "doubled"], ["joined"], axis=-1),
        make("Reshape", ["doubled", "shape"], ["moved"]),
        make("Where", ["mask", "gate", "doubled"], ["chosen"]),
        make("Sub", ["one", "gate"], ["rest"]),
        make("Mul", ["rest", "doubled"], ["first"]),
        make("Mul", ["gate", "unit"], ["second"]),
        make("Add", ["first", "second"], ["interpolated"]),
        make("Softmax", ["free"], ["weights"], axis=-1),
        make("MatMul", ["weights", "doubled"], ["averaged"]),
        make("Add", ["unit", "gate"], ["sum"]),
        make("Mul", ["free", "gate"], ["product"]),
        make("Concat", ["free", "gate"], ["open"], axis=-1),
        make("MatMul", ["unit", "doubled"], ["projected"]),
    ]
    weights = {
        "minus_two": np.array(-2, np.float32),
        "one": np.array(1, np.float32),
        "shape": np.array([3, 2]),
    }
    inputs = [declare(name, FLOAT, [2, 3]) for name in ("free", "unit", "mask")]
    bounds = bounds_of(Graph(nodes, weights, inputs, []), {"unit": 1.0})
    inferred = {"gate": 1, "doubled": 2, "gated": 2, "joined": 2, "moved": 2, "chosen": 2}
    inferred |= {"interpolated": 2, "averaged": 2}
    assert {name: bounds[name] for name in inferred} == inferred
    assert not bounds.keys() & {"free", "sum", "product", "open", "projected"}


def test_bounds_of_many_states_take_linear_time() -> None:
    """A chain of states loses its bounds one by one: the first is unbounded."""

    def infer(states: int) -> ValueBounds:
        names = [f"x{n}" for n in range(states)]
        nodes = [make("Exp", ["x0"], ["next_x0"])]
        nodes += [make("Identity", [f"x{n - 1}"], [f"next_x{n}"]) for n in range(1, states)]
        inputs = [declare(name, FLOAT, ["rows", 1]) for name in [*names, "memory"]]
        outputs = [declare(f"next_{name}", FLOAT, ["rows", 1]) for name in names]
        successors = {name: f"next_{name}" for name in names}
        graph = Graph(nodes, {}, inputs, outputs)
        return recurrent_bounds(graph, dict.fromkeys([*names, "memory"], 1.0), successors)

    assert infer(3) == infer(300) == {"memory": 1.0}
    assert growth(infer, 500) < LINEAR


def test_weights_are_read_once_for_all_loops() -> None:
    """Their bounds are those of all bodies: each loop alone would read them all."""

    def infer(loops: int) -> ValueBounds:
        nodes = [
            make("Scan", [f"x{n}", "entries"], [f"x{n + 1}"], num_scan_inputs=1, body=body(n))
            for n in range(loops)
        ]
        weights = {f"w{n}": np.full(2000, 0.5, np.float32) for n in range(loops)}
        inputs = [declare("x0", FLOAT, [2000]), declare("entries", FLOAT, ["source", 2000])]
        return bounds_of(Graph(nodes, weights, inputs, []), {})

    def body(number: int) -> onnx.GraphProto:
        nodes = [
            make("Mul", ["entry", f"w{number}"], ["product"]),
            make("Add", ["state", "product"], ["sum"]),
            make("Tanh", ["sum"], ["after"]),
        ]
        inputs = [declare(name, FLOAT, [2000]) for name in ("state", "entry")]
        return onnx.helper.make_graph(nodes, "body", inputs, [declare("after", FLOAT, [2000])])

    assert infer(2) == {"x1": 1.0, "x2": 1.0}
    assert growth(infer, 150) < LINEAR


def test_a_table_is_stored_in_int8() -> None:
    generator = np.random.default_rng(3)
    table, weight = (generator.normal(size=size).astype(np.float32) for size in ((9, 16), (5, 16)))
    nodes = [
        make("Gather", ["table", "ids"], ["rows"]),
        make("MatMul", ["rows", "matrix"], ["product"]),
        make("Add", ["product", "bias"], ["log_probs"]),
    ]
    weights = {"table": table, "matrix": weight.T.copy(), "bias": np.ones(5, np.float32)}
    inputs = [declare("ids", INT, ["rows"])]
    outputs = [declare("log_probs", FLOAT, ["rows", 5])]
    graph = Graph(nodes, weights, inputs, outputs)
    quantize_graphs(Graph([], {}, [], []), graph)
    values = run(graph, ids=np.arange(9))["log_probs"]
    assert graph.weights.keys().isdisjoint({"table", "matrix"})
    rows, scales = quantize_rows(table)
    expected = (rows * scales) @ weight.T + 1
    assert np.abs(values - expected).max() < 0.02 * np.abs(expected).max()


def test_sums_of_the_largest_integers_are_exact() -> None:
    """On x86-64 without VNNI, products of an unsigned and a signed integer saturate in 16 bits."""
    nodes = [make("Tanh", ["values"], ["rows"]), make("MatMul", ["rows", "matrix"], ["log_probs"])]
    matrix = np.full((64, 16), 0.5, np.float32) * np.where(np.arange(16) % 2, 1, -1)
    inputs = [declare("values", FLOAT, ["rows", 64])]
    outputs = [declare("log_probs", FLOAT, ["rows", 16])]
    graph = Graph(nodes, {"matrix": matrix.astype(np.float32)}, inputs, outputs)
    quantize_graphs(Graph([], {}, [], []), graph)
    for rows in (1, 3, 40):
        values = np.full((rows, 64), 30, np.float32) * np.where(np.arange(rows) % 2, -1, 1)[:, None]
        products = run(graph, values=values.astype(np.float32))["log_probs"]
        np.testing.assert_allclose(products, np.tanh(values) @ matrix, rtol=1e-5)


@LAYERS
def test_unsigned_weights_have_the_results_of_signed_ones(
    layer_class: type[RecurrentLayer],
) -> None:
    """Sessions have signed ones where the processor's products of them are exact."""
    encoder, decoder = quantized(with_encoder(layer_class))
    values: Arrays = {"src": SRC.clamp(max=V - 1).numpy(), "src_lengths": LENGTHS.numpy()}
    for graph in (encoder, decoder):
        content = with_unsigned_weights(graph.content())
        read = {value.name: values[value.name] for value in graph.inputs}
        unsigned = results(InferenceSession(content), **read)
        for name, array in run(graph, **read).items():
            assert np.array_equal(unsigned[name], array)
        values |= unsigned | {"ids": np.ones(len(LENGTHS), np.int64)}
