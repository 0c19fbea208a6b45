"""From a config to a model: classes, parameter counts by hand, and shared weights."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from seq2seq.config.schema import ModelConfig
from seq2seq.model.attention import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    LocationScore,
    MultiHeadScore,
    NormedAdditiveScore,
    ScaledDotScore,
)
from seq2seq.model.attention_layer import Coverage
from seq2seq.model.builder import build_model
from seq2seq.model.decoder import BahdanauDecoder, LuongDecoder, PlainDecoder, stack_steps
from seq2seq.model.local_attention import MonotonicWindow, PredictiveWindow
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.training.loss import token_loss
from seq2seq.training.mixture_loss import LossWeights

SRC_SIZE = 17
TGT_SIZE = 11
E = 8
H = 12
D = 6
A = 7
SRC = torch.tensor([[3, 7, 10, 9, 2], [5, 2, 0, 0, 0], [8, 8, 4, 2, 0]])
SRC_LENGTHS = torch.tensor([5, 2, 4])
TGT_IN = torch.tensor([[1, 4, 10, 6], [1, 9, 9, 3], [1, 5, 2, 0]])
BUILDS = [
    {"decoder": "bahdanau"},
    *({"decoder": "luong", "score": s} for s in ("dot", "general", "concat", "additive")),
    {"decoder": "luong", "score": "scaled_dot"},
    {"decoder": "luong", "input_feeding": False},
    {"decoder": "bahdanau", "score": "normed_additive"},
    {"decoder": "bahdanau", "score": "coverage", "window": "local_p"},
    {"decoder": "luong", "score": "location"},
    {"decoder": "luong", "score": {"scaled_dot": 3}},
    {"decoder": "luong", "window": "local_m"},
    {"decoder": "none"},
    {"decoder": "luong", "layers": {"residual": True}},
    {"decoder": "bahdanau", "cell": "gru", "maxout": True},
    {"decoder": "luong", "cell": "gru"},
    {"decoder": "bahdanau", "cell": "layer_norm_lstm"},
    {"decoder": "none", "cell": "layer_norm_lstm", "layers": {"residual": True}},
]


def make_config(**keys: Any) -> ModelConfig:
    sizes = {"embedding_size": E, "hidden_size": H, "dropout": 0.0}
    return ModelConfig.model_validate(sizes | keys)


def make_model(joint: bool = False, **keys: Any) -> Seq2Seq:
    torch.manual_seed(1)
    return build_model(make_config(**keys), TGT_SIZE if joint else SRC_SIZE, TGT_SIZE, joint)


def with_layers(keys: dict[str, Any], **depths: int) -> dict[str, Any]:
    """Return the keys with these depths; residual connections are kept."""
    return {**keys, "layers": {**keys.get("layers", {}), **depths}}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def lstm_size(input_size: int, hidden_size: int) -> int:
    return 4 * hidden_size * (input_size + hidden_size + 1)


@pytest.mark.parametrize(("encoder_layers", "decoder_layers"), [(1, 3), (3, 1), (2, 3), (1, 2)])
@pytest.mark.parametrize("keys", BUILDS, ids=lambda keys: "-".join(map(str, keys.values())))
def test_encoder_and_decoder_have_their_own_depths(
    keys: dict[str, Any], encoder_layers: int, decoder_layers: int
) -> None:
    depths = {"encoder": encoder_layers, "decoder": decoder_layers}
    model = make_model(**with_layers(keys, **depths)).double()
    assert len(model.encoder.forward_layers) == encoder_layers
    assert len(model.decoder.layers) == decoder_layers
    encoded = model.encode(SRC, SRC_LENGTHS)
    memory, state = model.start(encoded)
    assert state.hidden.shape == (len(SRC), decoder_layers, H)
    if keys["decoder"] != "bahdanau":
        for initial, final in ((state.hidden, encoded.hidden), (state.cell, encoded.cell)):
            for level in range(decoder_layers):  # counted from the top
                counterpart = max(0, encoder_layers - decoder_layers + level)
                assert torch.equal(initial[:, level], final[:, counterpart])
    outputs = model(SRC, SRC_LENGTHS, TGT_IN)
    embedded = model.embed(TGT_IN)
    stacked = stack_steps(model.decoder, embedded, state, memory).outputs
    torch.testing.assert_close(outputs, stacked)
    (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum().backward()
    trained = [
        parameter.grad for name, parameter in model.named_parameters() if "projection" not in name
    ]
    assert sum(parameter is not None for parameter in trained) >= len(trained) - 1


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("encoder", ["bidirectional", "forward"])
@pytest.mark.parametrize("keys", BUILDS, ids=lambda keys: "-".join(map(str, keys.values())))
def test_every_model_trains_and_steps(keys: dict[str, Any], encoder: str, layers: int) -> None:
    keys = with_layers(keys, encoder=layers, decoder=layers)
    model = make_model(**keys, encoder=encoder)
    outputs = model(SRC, SRC_LENGTHS, TGT_IN)
    assert outputs.shape == (*TGT_IN.shape, E)
    model.project(outputs).logsumexp(-1).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    memory, state = model.start(model.encode(SRC, SRC_LENGTHS))
    step = model.step(TGT_IN[:, 0], state, memory)
    torch.testing.assert_close(step.outputs, outputs[:, 0])
    assert step.state.hidden.shape == (len(SRC), layers, H)
    assert (step.attention_weights is None) == (keys["decoder"] == "none")


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
def test_the_config_sets_the_reading_direction(decoder: str) -> None:
    """With the same weights, one model reads a reversed source as the other reads the source."""
    plain, reversing = (
        make_model(decoder=decoder, encoder=reading) for reading in ("forward", "reversed")
    )
    memory, state = reversing.start(reversing.encode(SRC[:1], SRC_LENGTHS[:1]))
    _, expected = plain.start(plain.encode(SRC[:1].flip(1), SRC_LENGTHS[:1]))
    torch.testing.assert_close(state.hidden, expected.hidden)
    _, plain_state = plain.start(plain.encode(SRC[:1], SRC_LENGTHS[:1]))
    assert not torch.allclose(state.hidden, plain_state.hidden)
    assert memory.pad_mask.shape == SRC[:1].shape


@pytest.mark.parametrize("keys", BUILDS, ids=lambda keys: "-".join(map(str, keys.values())))
def test_a_model_without_memory_has_the_same_shapes(keys: dict[str, Any]) -> None:
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in make_model(**keys).named_parameters()}
    assert shapes == {
        name: parameter.shape for name, parameter in make_model(**keys).named_parameters()
    }


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("dot", DotScore),
        ("general", GeneralScore),
        ("concat", AdditiveScore),
        ("additive", AdditiveScore),
        ("scaled_dot", ScaledDotScore),
        ("normed_additive", NormedAdditiveScore),
        ("coverage", AdditiveScore),
        ("location", LocationScore),
    ],
)
def test_the_config_names_decoder_and_score(name: str, score: type[nn.Module]) -> None:
    decoder = make_model(decoder="luong", score=name).decoder
    assert type(decoder) is LuongDecoder
    assert type(decoder.score) is score


def test_the_config_names_heads_windows_and_coverage() -> None:
    headed = make_model(decoder="luong", score={"scaled_dot": 3}).decoder.score
    assert (type(headed), headed.heads) == (MultiHeadScore, 3)
    single_head = make_model(decoder="luong", score={"scaled_dot": 1}).decoder.score
    assert type(single_head) is ScaledDotScore
    for decoder in ("bahdanau", "luong"):
        plain = make_model(decoder=decoder).decoder
        assert plain.window is plain.coverage is None
        local = make_model(decoder=decoder, score="coverage", window="local_m").decoder
        assert (type(local.window), type(local.coverage)) == (MonotonicWindow, Coverage)
        assert local.window.half_width == 10
        local = make_model(decoder=decoder, window={"local_p": 4}).decoder
        assert (type(local.window), local.window.half_width) == (PredictiveWindow, 4)


def test_location_has_as_many_positions_as_training() -> None:
    config = make_config(decoder="luong", score="location")
    model = build_model(config, SRC_SIZE, TGT_SIZE, joint=False, max_length=40)
    assert model.decoder.score.positions.weight.shape == (41, H)  # one of them for EOS


def test_defaults_of_the_decoders() -> None:
    bahdanau = make_model(decoder="bahdanau").decoder
    assert type(bahdanau) is BahdanauDecoder
    assert type(bahdanau.score) is AdditiveScore
    luong = make_model(decoder="luong").decoder
    assert type(luong.score) is GeneralScore
    assert luong.input_feed_gates is not None
    assert make_model(decoder="luong", input_feeding=False).decoder.input_feed_gates is None
    assert type(make_model(decoder="none").decoder) is PlainDecoder


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
def test_the_output_layer_has_the_size_of_the_projection(decoder: str) -> None:
    for tied, size in ((True, E), (False, H)):
        outputs = make_model(decoder=decoder, tie_embeddings=tied)(SRC, SRC_LENGTHS, TGT_IN)
        assert outputs.shape == (*TGT_IN.shape, size)


@pytest.mark.parametrize("score", ["additive", "scaled_dot"])
def test_attention_size_follows_the_config(score: str) -> None:
    decoder = make_model(decoder="luong", score=score, attention_size=A).decoder
    assert decoder.score.key_projection.out_features == A
    halved = make_model(decoder="luong", score=score).decoder
    assert halved.score.key_projection.out_features == H // 2


def test_dropout_reaches_every_part() -> None:
    model = make_model(decoder="bahdanau", dropout=0.25)
    embeddings = (model.dropout.entries, model.encoder.embedding_dropout.entries)
    layers = (model.encoder.dropout, model.decoder.dropout, model.decoder.output_dropout)
    assert [part.p for part in (*embeddings, *layers)] == [0.25] * 5
    assert model.dropout.word.p == 0


# ------------------------------------------------------------------ parameters counted by hand


def test_parameters_of_the_encoder() -> None:
    two_ways = make_model(layers=2).encoder
    embedding = SRC_SIZE * E
    assert count(two_ways) == embedding + 2 * lstm_size(E, D) + 2 * lstm_size(H, D)
    one_way = make_model(layers=2, encoder="forward").encoder
    assert count(one_way) == embedding + lstm_size(E, H) + lstm_size(H, H)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_parameters_of_bahdanaus_decoder(tied: bool) -> None:
    model = make_model(decoder="bahdanau", attention_size=A, layers=2, tie_embeddings=tied)
    output_size = E if tied else H
    score = A * H + A * H + A
    first = H * D + H
    layers = lstm_size(E, H) + lstm_size(H, H) + 4 * H * H  # the last is that of the context
    assert count(model.decoder) == score + first + layers + output_size * (H + H + E) + output_size


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("score", "size", "context"),
    [
        ({"score": "dot"}, 0, H),
        ({"score": "general"}, H * H, H),
        ({"score": "concat", "attention_size": A}, A * H + A * H + A, H),
        ({"score": "scaled_dot", "attention_size": A}, 3 * (A * H + A), A),
        ({"score": "normed_additive", "attention_size": A}, A * H + A * H + A + A + 1, H),
        ({"score": "coverage", "attention_size": A}, A * H + A * H + A + A, H),
        ({"score": "location"}, 101 * H, H),
        ({"score": "dot", "window": "local_m"}, 0, H),
        ({"score": "dot", "window": "local_p"}, H * H + H, H),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_parameters_of_luongs_decoder(
    score: dict[str, Any], size: int, context: int, tied: bool
) -> None:
    output_size = E if tied else H
    without_window = size + lstm_size(E, H) + output_size * (context + H)
    model = make_model(decoder="luong", input_feeding=False, tie_embeddings=tied, **score)
    assert count(model.decoder) == without_window
    model = make_model(decoder="luong", tie_embeddings=tied, **score)
    assert count(model.decoder) == without_window + 4 * H * output_size


def test_parameters_of_the_plain_decoder() -> None:
    for tied, output_size in ((True, E), (False, H)):
        model = make_model(decoder="none", tie_embeddings=tied)
        assert count(model.decoder) == lstm_size(E, H) + output_size * H + output_size


@pytest.mark.parametrize(
    ("joint", "tied", "expected"),
    [
        (True, True, TGT_SIZE * E + TGT_SIZE),
        (False, True, SRC_SIZE * E + TGT_SIZE * E + TGT_SIZE),
        (True, False, 2 * TGT_SIZE * E + TGT_SIZE * H + TGT_SIZE),
        (False, False, SRC_SIZE * E + TGT_SIZE * E + TGT_SIZE * H + TGT_SIZE),
    ],
)
def test_parameters_of_embeddings_and_projection(joint: bool, tied: bool, expected: int) -> None:
    model = make_model(joint, tie_embeddings=tied)
    recurrent = count(model.encoder.forward_layers) + count(model.encoder.backward_layers)
    assert count(model) - recurrent - count(model.decoder) == expected


# ------------------------------------------------------------------------------- shared weights


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_tied_and_joint_weights_are_shared(joint: bool, tied: bool) -> None:
    model = make_model(joint, tie_embeddings=tied)
    src = model.encoder.embedding.weight
    tgt = model.tgt_embedding.weight
    projection = model.projection.weight
    assert (projection is tgt) == tied
    assert (src is tgt) == (tied and joint)
    assert src.shape == (TGT_SIZE if joint else SRC_SIZE, E)
    assert projection.shape == (TGT_SIZE, E if tied else H)


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
def test_a_tied_weight_gets_the_sum_of_the_gradients_of_its_uses(joint: bool) -> None:
    """Compare with a copy of the model in which every use has its own parameter."""
    gradients = []
    for has_copies in (False, True):
        model = make_model(joint, decoder="bahdanau").double()
        if has_copies:
            model.projection = copy.deepcopy(model.projection)
            model.encoder.embedding = copy.deepcopy(model.encoder.embedding)
        outputs = model(SRC, SRC_LENGTHS, TGT_IN)
        token_loss(
            outputs.flatten(0, 1), model.projection, TGT_IN.flatten(), LossWeights(0.1)
        ).objective.backward()
        uses = [model.tgt_embedding.weight.grad]
        if has_copies:
            uses.append(model.projection.weight.grad)
            uses += [model.encoder.embedding.weight.grad] if joint else []
            assert all(use.any() for use in uses)
        gradients.append(sum(uses))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)


def test_initial_weights_depend_on_the_seed() -> None:
    weights, same_seed = (make_model().state_dict() for _ in range(2))
    assert all(torch.equal(value, same_seed[name]) for name, value in weights.items())
    other_seed = build_model(make_config(), SRC_SIZE, TGT_SIZE, joint=False).state_dict()
    assert not torch.equal(other_seed["tgt_embedding.weight"], weights["tgt_embedding.weight"])


def test_the_initial_projection_has_no_bias_and_embeddings_are_scaled() -> None:
    assert not make_model().projection.bias.any()
    model = build_model(make_config(embedding_size=64), 500, 400, joint=False)
    for embedding in (model.encoder.embedding, model.tgt_embedding):
        assert embedding.weight.std().item() == pytest.approx(64**-0.5, rel=0.03)
