"""Traced graphs, run by ONNX Runtime, against the steps of the model at other sizes than traced."""

import copy
import linecache
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from cases.models import (
    LENGTHS,
    PAIRWISE,
    SRC,
    TGT_IN,
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
from cases.tiers import one_quick
from cases.traced_models import traced
from numpy.typing import NDArray
from torch import nn

from seq2seq.engines.onnx.graph import Graph
from seq2seq.engines.onnx.trace import trace
from seq2seq.model.encoder import Encoder
from seq2seq.model.layers import ScaledEmbedding
from seq2seq.model.seq2seq import Seq2Seq

K = 3
Arrays = dict[str, NDArray[Any]]


class Session:
    """Graph loaded into ONNX Runtime."""

    def __init__(self, graph: Graph) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph.content(), options)
        self.inputs = [value.name for value in self._session.get_inputs()]
        self.outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, values: Arrays) -> Arrays:
        """Return the outputs by name; values that the graph does not read are ignored."""
        results = self._session.run(None, {name: values[name] for name in self.inputs})
        return dict(zip(self.outputs, results, strict=True))


def input_ids(rows: torch.Tensor) -> Iterator[torch.Tensor]:
    """Return the inputs of each step; hypotheses of one sentence differ."""
    for ids in TGT_IN.repeat_interleave(K, 0).unbind(1):
        yield ids + rows % 2


def steps_of(
    model: Seq2Seq, src: torch.Tensor, rows: torch.Tensor
) -> Iterator[dict[str, torch.Tensor | None]]:
    """Return what a graph returns at each step, computed by the model."""
    memory, state = model.start(model.encode(src, LENGTHS))
    state = state.select(rows)
    for ids in input_ids(rows):
        step = model.step(ids, state, memory)
        state = step.state
        yield {
            "log_probs": model.project(step.outputs).log_softmax(-1),
            "attention_weights": step.attention_weights,
            "head_weights": step.head_weights,
        }


def check(
    model: Seq2Seq, graphs: tuple[Graph, Graph], src: torch.Tensor, tolerance: float = 1e-5
) -> None:
    """Assert equal log-probabilities and attention of several hypotheses over several steps.

    Rounding grows from step to step, by how much depends on the weights. torch's own float32 has
    such an error, and sums in another order may have a few times as much.
    """
    model = model.eval()
    single = copy.deepcopy(model).float()
    encode, advance = map(Session, graphs)
    rows = torch.arange(len(src)).repeat_interleave(K)
    values = encode({"src": src.numpy(), "src_lengths": LENGTHS.numpy()})
    names = [name.removeprefix("next_") for name in advance.outputs if "next_" in name]
    values |= {name: values[name][rows.numpy()] for name in names}
    steps = zip(
        input_ids(rows), steps_of(model, src, rows), steps_of(single, src, rows), strict=True
    )
    for ids, expected, rounded in steps:
        results = advance(values | {"ids": ids.numpy()})
        for name, tensor in expected.items():
            rounded_tensor = rounded[name]
            assert (name in results) == (tensor is not None) == (rounded_tensor is not None)
            if tensor is not None and rounded_tensor is not None:
                expected_values = tensor.detach().numpy()
                error = np.abs(rounded_tensor.detach().numpy() - expected_values).max()
                np.testing.assert_allclose(
                    results[name], expected_values, rtol=0, atol=tolerance + 4 * error
                )
        values |= {name: results[f"next_{name}"] for name in names}


# The step of a model that copies is that of one that does not, and more.
COPYING = [case for case in PAIRWISE if case.kind != "plain"][1::2]


@one_quick(
    "case", [case for case in PAIRWISE if case not in COPYING], ids=str, quick=range(0, 20, 4)
)
def test_steps_of_a_graph_equal_those_of_the_model(case: Case) -> None:
    check(make_model(case), traced(case), SRC)


@one_quick("case", COPYING, ids=str, quick=range(0, 18, 4))
def test_a_graph_copies_like_the_model(case: Case) -> None:
    check(make_copying_model(case), traced(case, copies=True), SRC.clamp(max=V - 1))


@one_quick(
    ("bidirectional", "reverse", "residual", "layers", "decoder_layers"),
    [
        (True, False, True, 3, 2),
        (False, False, False, 2, 2),
        (False, True, True, 3, 2),
        (True, False, True, 3, 4),
        (False, False, False, 2, 1),
        (False, True, True, 3, 1),
    ],
    quick=range(3),
)
def test_encoders_of_every_shape_are_exported(
    bidirectional: bool, reverse: bool, residual: bool, layers: int, decoder_layers: int
) -> None:
    case = Case("luong", "general", True, decoder_layers)
    encoder = Encoder(ScaledEmbedding(V, E), H, layers, bidirectional, 0.0, reverse, residual)
    decoder = make_decoder(case)
    model = Seq2Seq(encoder, decoder, ScaledEmbedding(V, E), nn.Linear(R, V), 0.0)
    randomize(model, seed=7)
    graphs = trace(copy.deepcopy(model).float().eval())
    check(model, graphs, SRC.clamp(max=V - 1))


def test_logarithms_and_sums_do_not_depend_on_the_other_rows() -> None:
    """Rows do not fill a processor's vectors; the values of a model that copies are both."""
    model = make_copying_model(Case("luong", "general", True, 1)).float().eval()
    encode, advance = map(Session, trace(model))
    generator = np.random.default_rng(1)
    src = generator.integers(3, V, (9, 16))
    lengths = np.full(9, 16)
    values = encode({"src": src, "src_lengths": lengths}) | {"ids": generator.integers(3, V, 9)}
    values["copied"] = generator.random((9, 16), np.float32)
    all_rows = advance(values)
    for row in range(9):
        single_row = advance({name: part[row : row + 1] for name, part in values.items()})
        for name, part in single_row.items():
            assert np.array_equal(part[0], all_rows[name][row])


# --------------------------------------------------------------- the warnings of torch's exporter

LEGACY = {"You are using the legacy TorchScript-based ONNX export", "The feature will be removed"}
INDEXING = "Exporting aten::index operator of advanced indexing in opset"
CONSTANT = "Converting a tensor to a Python "
MEANT = {  # places where a number becomes a constant of the graph, as the model fixes it
    ("attention.py", "math.sqrt("),
    ("attention_layer.py", "int(query.shape[-1])"),
    ("decoder.py", "int(len(layers)"),
    ("trace.py", "part.numel()"),
}


def is_meant(warning: warnings.WarningMessage) -> bool:
    line = linecache.getline(warning.filename, warning.lineno)
    name = Path(warning.filename).name
    return any(name == place and text in line for place, text in MEANT)


@one_quick(
    "case",
    [
        Case("luong", "scaled_dot", True, 2),
        Case("luong", "multi_head", False, 1, "local_p"),
        Case("luong", "coverage", False, 1, "local_m"),
        Case("bahdanau", "additive", False, 2, unit="gru"),
        Case("gnmt", "additive", False, 2, unit="normed"),
        Case("plain", "", False, 2),
    ],
    ids=str,
    quick=0,
)
def test_the_exporter_gives_the_warnings_that_are_known(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may say that it goes, or that a graph holds for the sizes of its examples alone."""
    model = make_model(case).float().eval()
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "simplefilter", lambda *_: None)  # by which trace is silent
        trace(model)
    messages = set[str]()
    for warning in log:
        text = str(warning.message)
        if text.startswith(CONSTANT):
            assert is_meant(warning), f"{warning.filename}:{warning.lineno}: {text}"
        elif not text.startswith(INDEXING):
            messages.add(next((legacy for legacy in LEGACY if text.startswith(legacy)), text))
    assert messages == LEGACY
