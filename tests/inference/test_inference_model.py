"""The inference model against the model it wraps: values, tables, shared weights, shapes."""

from typing import Any

import pytest
import torch
from model_cases import (
    CASES,
    LENGTHS,
    SRC,
    SRC_VOCABULARY,
    TGT_IN,
    B,
    Case,
    E,
    H,
    R,
    T,
    V,
    close,
    layer_class,
    make_decoder,
    random_tensor,
    randomize,
    stepped,
)
from model_cases import make_model as make_case
from tiers import one_quick
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from seq2seq.inference import inference_model
from seq2seq.inference.inference_model import INFERENCE_CLASSES, InferenceLayer, InferenceModel
from seq2seq.model.encoder import Encoder
from seq2seq.model.gru import GRULayer
from seq2seq.model.lstm import LSTMLayer, NormedLSTMLayer
from seq2seq.model.recurrent import RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq

DIRECTIONS = pytest.mark.parametrize("direction", ["bidirectional", "forward", "reversed"])
LAYERS = pytest.mark.parametrize("num_layers", [1, 2])


def make_model(direction: str, num_layers: int, dropout: float = 0.0) -> Seq2Seq:
    """Return a model with these encoder directions and layers; its decoder is not called."""
    embedding = nn.Embedding(SRC_VOCABULARY, E)
    encoder = Encoder(
        embedding, H, num_layers, direction == "bidirectional", dropout, direction == "reversed"
    )
    decoder = make_decoder(CASES[0])
    model = Seq2Seq(encoder, decoder, nn.Embedding(V, E), nn.Linear(R, V), dropout)
    randomize(model)
    return model


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_equal_those_of_the_model_also_after_its_weights_change(case: Case) -> None:
    model = make_case(case, dropout=0.5).train()
    inference = InferenceModel(model)
    for change in (1.0, 1.5):
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(change)
            assert model.training
            found, again = stepped(inference, TGT_IN), stepped(inference, TGT_IN)
            logits = inference.project(found)
        assert torch.equal(found, again)  # no dropout
        expected = stepped(model.eval(), TGT_IN)
        close(found, expected)
        close(logits, model.project(expected))
        model.train()
    assert not any(isinstance(module, InferenceLayer) for module in model.modules())
    shared = {id(weight) for weight in model.parameters()}
    assert {id(weight) for weight in inference.network.parameters()} == shared


@LAYERS
@DIRECTIONS
@pytest.mark.parametrize("padding", [0, 3])
def test_an_encoder_with_tables_gives_the_same_outputs(
    num_layers: int, direction: str, padding: int
) -> None:
    model = make_model(direction, num_layers, 0.5).eval()
    src = nn.functional.pad(SRC, (0, padding))
    expected, names = model.encode(src, LENGTHS), list(model.state_dict())
    inference = InferenceModel(model)
    inference.precompute_input_gates()
    with torch.inference_mode():
        encoded = inference.encode(src, LENGTHS)
        for left, right in zip(encoded[:3], expected[:3], strict=True):
            close(left, right)
        assert torch.equal(encoded.pad_mask, expected.pad_mask)
        model.encoder.embedding.weight.zero_()  # no longer read
        assert torch.equal(inference.encode(src, LENGTHS).outputs, encoded.outputs)
    assert list(model.state_dict()) == list(inference.network.state_dict()) == names


@pytest.mark.parametrize("score", ["dot", "general"])
def test_keys_of_product_scores_are_stored_with_adjacent_positions(score: str) -> None:
    model = make_case(Case("luong", score, True, 1))
    memory, _ = model.start(model.encode(SRC, LENGTHS))
    inference = InferenceModel(model)
    with torch.no_grad():
        laid_out, _ = inference.start(inference.encode(SRC, LENGTHS))
    assert laid_out.keys.stride(1) == 1
    close(laid_out.keys, memory.keys)


class Products(TorchDispatchMode):
    """Mode that records the shapes of all matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[torch.Size, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.shapes.add(tuple(arg.shape for arg in args))
        return func(*args, **(kwargs or {}))


@DIRECTIONS
@LAYERS
@one_quick("tables", [True, False])
def test_no_encoder_product_depends_on_the_length_of_the_longest_source(
    num_layers: int, direction: str, tables: bool
) -> None:
    inference = InferenceModel(make_model(direction, num_layers))
    if tables:
        inference.precompute_input_gates()
    found = []
    for longest in (2, 5):
        with torch.no_grad(), Products() as products:
            inference.encode(SRC, LENGTHS.clamp(max=longest))
        found.append(products.shapes)
    assert found[0]
    assert found[0] == found[1]


@DIRECTIONS
def test_a_large_vocabulary_gets_no_table(direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(direction, 2)
    for fewer in (0, 1):
        entries = SRC_VOCABULARY * 4 * H - fewer
        monkeypatch.setattr(inference_model, "MAX_TABLE_ENTRIES", entries)
        inference = InferenceModel(model)
        inference.precompute_input_gates()
        bottoms = [layers.bottom for layers in inference.network.encoder.directions]
        assert {layer.input_gates is None for layer in bottoms} == {bool(fewer)}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "apart"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "too large"])
def test_a_model_with_tables_gives_the_same_steps(
    case: Case, tied: bool, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = layer_class(case).gate_count * H * V - (not kept)
    monkeypatch.setattr(inference_model, "MAX_TABLE_ENTRIES", most)
    model = make_case(case).eval()
    if tied:
        model.projection = nn.Linear(E, V, dtype=torch.float64)
        model.projection.weight = model.tgt_embedding.weight
    expected = stepped(model, TGT_IN)
    outputs = random_tensor(B, E if tied else R, seed=8).detach()
    logits = model.project(outputs)
    inference = InferenceModel(model)
    inference.precompute_input_gates()
    with torch.inference_mode():
        close(stepped(inference, TGT_IN), expected)
        close(inference.project(outputs), logits)
        model.tgt_embedding.weight.zero_()  # no longer shared with the projection
        close(inference.project(outputs), logits)
    assert (inference._target_gates is not None) == kept


@pytest.mark.parametrize("kind", [LSTMLayer, NormedLSTMLayer, GRULayer])
def test_a_layer_without_autograd_gives_the_same_outputs_and_keeps_its_inputs(
    kind: type[RecurrentLayer],
) -> None:
    layer = kind(E, H)
    randomize(layer)
    inputs = random_tensor(B, T, E, seed=2)
    states = [random_tensor(B, size, seed=size) for size in (H, layer.cell_size)]
    gates = layer.gates(inputs[:, 0])
    given = (gates, inputs, *states)
    before = [part.detach().clone() for part in given]
    expected = [*layer(inputs, *states), *layer.step(gates, *states)]
    layer.__class__ = INFERENCE_CLASSES[kind]
    with torch.no_grad():
        found = [*layer(inputs, *states), *layer.step(gates, *states)]
    for left, right in zip(found, expected, strict=True):
        close(left, right)
        assert not left.requires_grad
    for left, right in zip(given, before, strict=True):
        assert torch.equal(left, right)
