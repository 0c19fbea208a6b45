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
from torch import nn

from seq2seq.export import copying
from seq2seq.export.decoder import decoder_graph
from seq2seq.export.encoder import encoder_graph
from seq2seq.export.graph import Graph
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import ScaledEmbedding
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


@pytest.mark.parametrize(
    ("bidirectional", "reverse", "residual", "layers"),
    [(True, False, True, 3), (False, False, False, 2), (False, True, True, 3)],
)
@pytest.mark.parametrize("decoder_layers", [1, 2, 4])
def test_encoders_of_every_shape_are_exported(
    bidirectional: bool, reverse: bool, residual: bool, layers: int, decoder_layers: int
) -> None:
    shape = H, layers, bidirectional, 0.0, reverse, residual
    encoder = Encoder(ScaledEmbedding(V, E), *shape)
    decoder = make_decoder(Case("luong", "general", True, decoder_layers))
    model = Seq2Seq(encoder, decoder, ScaledEmbedding(V, E), nn.Linear(R, V), 0.0)
    randomize(model, seed=7)
    check(model, SRC.clamp(max=V - 1), 1e-5)


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
