"""Shared parts of the model tests: every decoder at unequal sizes, and random float64 inputs."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from seq2seq.model.attention import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    LocationScore,
    MultiHeadScore,
    NormedAdditiveScore,
    ScaledDotScore,
    ScoreFunction,
)
from seq2seq.model.attention_layer import AttentionLayer, Coverage
from seq2seq.model.copying import Copying
from seq2seq.model.decoder import BahdanauDecoder, Decoder, DecoderSizes, LuongDecoder, PlainDecoder
from seq2seq.model.encoder import Encoder
from seq2seq.model.gnmt_decoder import GNMTDecoder
from seq2seq.model.local_attention import MonotonicWindow, PredictiveWindow, Window
from seq2seq.model.recurrent import GRULayer, LSTMLayer, NormedLSTMLayer, RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import DecoderState, EncoderOutput, Memory, Step

B, T, S, D, A, E, R, V, H = 3, 4, 5, 6, 7, 8, 9, 11, 12  # D: one direction of the encoder
SRC_VOCABULARY = 13
SRC_LENGTHS = (4, 2, 5)  # lengths for encoder_output
SRC = torch.tensor([[3, 7, 12, 9, 2], [5, 2, 0, 0, 0], [8, 8, 4, 2, 0]])  # [B, S]
LENGTHS = torch.tensor([5, 2, 4])  # lengths of SRC
TGT_IN = torch.tensor([[1, 4, 10, 6], [1, 9, 9, 3], [1, 5, 2, 0]])  # [B, T]
HEADS, POSITIONS, WIDTH = 2, 10, 1  # settings of scores and windows
SCORES = ("additive", "dot", "general", "scaled_dot")
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]


class Case(NamedTuple):
    """Configuration of a decoder under test."""

    kind: str
    score: str
    input_feeding: bool
    num_layers: int
    window: str = ""
    unit: str = ""  # normed, gru, or gru with a maxout output layer

    def __str__(self) -> str:
        feeding = "feeding" if self.input_feeding else ""
        parts = (self.kind, self.score, feeding, self.window, str(self.num_layers), self.unit)
        return "-".join(filter(None, parts))


FAMILY = [
    Case("bahdanau", "normed_additive", False, 1),
    Case("luong", "normed_additive", True, 1),
    Case("luong", "location", True, 1),
    Case("luong", "location", False, 2),
    Case("luong", "multi_head", True, 2),
    Case("luong", "multi_head", False, 1, "local_p"),
    Case("bahdanau", "coverage", False, 1),
    Case("luong", "coverage", True, 2),
    Case("luong", "coverage", False, 1, "local_m"),
    Case("luong", "general", True, 1, "local_m"),
    Case("luong", "dot", False, 2, "local_m"),
    Case("luong", "general", True, 1, "local_p"),
    Case("luong", "general", False, 1, "local_p"),
    Case("bahdanau", "additive", False, 1, "local_p"),
]
GNMT = [
    Case("gnmt", "additive", False, 2),
    Case("gnmt", "scaled_dot", False, 1),
    Case("gnmt", "multi_head", False, 3, "local_p"),
    Case("gnmt", "coverage", False, 2),
]
UNITS = [
    Case("bahdanau", "additive", False, 1, unit="normed"),
    Case("bahdanau", "additive", False, 2, unit="gru"),
    Case("bahdanau", "additive", False, 1, unit="maxout"),
    Case("bahdanau", "coverage", False, 2, unit="maxout"),
    Case("luong", "general", True, 2, unit="normed"),
    Case("luong", "dot", False, 2, unit="normed"),
    Case("luong", "general", True, 1, unit="gru"),
    Case("gnmt", "additive", False, 2, unit="normed"),
    Case("gnmt", "additive", False, 2, unit="gru"),
    Case("plain", "", False, 2, unit="normed"),
    Case("plain", "", False, 1, unit="gru"),
]
SCORED = [
    *(Case("bahdanau", score, False, layers) for score in SCORES for layers in (1, 2)),
    *(
        Case("luong", score, feeding, layers)
        for score in SCORES
        for feeding in (True, False)
        for layers in (1, 2)
    ),
]
SINGLE = [*(Case("plain", "", False, layers) for layers in (1, 2)), *FAMILY, *GNMT, *UNITS]
CASES = [*SCORED, *SINGLE]
# Half of those with scores: any two of score, feeding and number of layers occur together.
PAIRWISE = [*(case for number, case in enumerate(SCORED) if number % 8 in (0, 3, 5, 6)), *SINGLE]
ONE_OF_EACH = [
    Case("bahdanau", "additive", False, 2),
    Case("luong", "general", True, 2),
    Case("luong", "dot", False, 2),
    Case("plain", "", False, 2),
]


def make_score(name: str) -> ScoreFunction:
    """Return a score between H and H by its name in a config."""
    match name:
        case "additive" | "coverage":
            return AdditiveScore(H, H, A)
        case "normed_additive":
            return NormedAdditiveScore(H, H, A)
        case "multi_head":
            return MultiHeadScore(H, H, HEADS * A, HEADS)
        case "location":
            return LocationScore(H, H, POSITIONS)
        case "scaled_dot":
            return ScaledDotScore(H, H, A)
        case "general":
            return GeneralScore(H, H)
    return DotScore(H, H)


def make_window(name: str) -> Window | None:
    """Return a window by its name in a config, or None for the empty name."""
    match name:
        case "local_m":
            return MonotonicWindow(WIDTH)
        case "local_p":
            return PredictiveWindow(H, WIDTH)
    return None


def layer_class(case: Case) -> type[RecurrentLayer]:
    return {"": LSTMLayer, "normed": NormedLSTMLayer}.get(case.unit, GRULayer)


def make_decoder(case: Case, dropout: float = 0.0) -> Decoder:
    """Return a float64 decoder with random parameters, including biases."""
    unit = layer_class(case)
    sizes = DecoderSizes(E, H, R, case.num_layers, dropout, layer_class=unit, direction=D)
    decoder: nn.Module
    extras = (make_window(case.window), Coverage(A) if case.score == "coverage" else None)
    if case.kind == "bahdanau":
        score = make_score(case.score)
        maxout = case.unit == "maxout"
        decoder = BahdanauDecoder(sizes, score, *extras, maxout)
    elif case.kind == "luong":
        decoder = LuongDecoder(sizes, make_score(case.score), *extras, case.input_feeding)
    elif case.kind == "gnmt":
        decoder = GNMTDecoder(sizes, make_score(case.score), *extras)
    else:
        decoder = PlainDecoder(sizes)
    return randomize(decoder)


def make_encoder(vocabulary: int, case: Case) -> Encoder:
    embedding = nn.Embedding(vocabulary, E)
    layer = layer_class(case)
    return Encoder(embedding, H, case.num_layers, True, 0.0, layer_class=layer)


def make_model(case: Case, dropout: float = 0.0) -> Seq2Seq:
    encoder = make_encoder(SRC_VOCABULARY, case)
    assert encoder.direction_size == D
    model = Seq2Seq(encoder, make_decoder(case), nn.Embedding(V, E), nn.Linear(R, V), dropout)
    randomize(model, seed=7)
    return model


def randomize(module: nn.Module, seed: int = 1) -> nn.Module:
    """Convert a module to float64; draw parameters with a standard deviation of 0.4."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module


def random_tensor(*shape: int, seed: int) -> Tensor:
    """Return normal float64 numbers that require a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def encoder_output(num_layers: int, lengths: tuple[int, ...] = SRC_LENGTHS) -> EncoderOutput:
    """Return outputs and final states for these source lengths; padded outputs are not zero."""
    batch = len(lengths)
    return EncoderOutput(
        random_tensor(batch, S, H, seed=2),
        random_tensor(batch, num_layers, H, seed=3),
        random_tensor(batch, num_layers, H, seed=4),
        torch.arange(S) >= torch.tensor(lengths)[:, None],
    )


def embedded_targets(batch: int = B) -> Tensor:
    """Return embedded target inputs [B, T, E]."""
    return random_tensor(batch, T, E, seed=5)


def one_step(decoder: Decoder, embedded: Tensor, state: DecoderState, memory: Memory) -> Step:
    """Run a step that reads one embedded target position of each row: [N, E]."""
    return decoder.step(decoder.inputs(embedded), state, memory)


def stepped(model: Any, tgt_in: Tensor) -> Tensor:
    """Return outputs [B, T, R] for SRC, computed by `encode`, `start` and `step`."""
    memory, state = model.start(model.encode(SRC, LENGTHS))
    outputs = []
    for ids in tgt_in.unbind(1):
        step = model.step(ids, state, memory)
        state = step.state
        outputs.append(step.outputs)
    return torch.stack(outputs, dim=1)


def close(left: Tensor, right: Tensor, tolerance: float = 1e-10) -> None:
    """Assert equal shapes, equal dtypes and, to an absolute tolerance, equal values."""
    torch.testing.assert_close(left, right, rtol=0, atol=tolerance)


def make_copying_model(case: Case) -> Seq2Seq:
    """Return a model that copies, over a joint vocabulary of V."""
    encoder = make_encoder(V, case)
    decoder = make_decoder(case)
    assert isinstance(decoder, AttentionLayer)
    copying = Copying(R, decoder.score.context_size)
    model = Seq2Seq(encoder, decoder, nn.Embedding(V, E), nn.Linear(R, V), 0.0, copying)
    randomize(model, seed=7)
    return model


def copied_in_loops(
    model: Seq2Seq, outputs: Tensor, weights: Tensor, values: Tensor, src: Tensor, tgt_in: Tensor
) -> Tensor:
    """Return log-probabilities [T, V] of generating and copying, one source word at a time.

    Outputs [T, R] and attention weights [T, S] of one sentence with memory values [S, C], ids src
    [S] and last ids [T]. No gradient flows through the positions that are continued.
    """
    layer = model.copying
    assert layer is not None
    for_gate, for_continuation = layer.position_weight
    ids = src.tolist()
    rows = []
    copy_probs = [torch.zeros((), dtype=torch.float64)] * len(ids)
    for vector, attended, last in zip(outputs, weights, tgt_in.tolist(), strict=True):
        match = sum(
            c.item() for c, token_id in zip(copy_probs, ids, strict=True) if token_id == last
        )
        continued = [0.0] * len(ids)
        for s in range(1, len(ids)):
            if ids[s - 1] == last:
                continued[s] = copy_probs[s - 1].item() / (match + 0.01)
        logit = vector @ layer.continuation.weight[0] + layer.continuation.bias[0]
        for r, value in zip(continued, values, strict=True):
            logit = logit + r * (value @ for_continuation)
        share = logit.sigmoid()
        total = attended.sum()
        copy_probs = [
            (1 - share * sum(continued)) * a / total + share * r
            for a, r in zip(attended, continued, strict=True)
        ]
        logit = vector @ layer.gate.weight[0] + layer.gate.bias[0]
        for c, value in zip(copy_probs, values, strict=True):
            logit = logit + c * (value @ for_gate)
        gate = logit.sigmoid()
        generated = model.projection(vector).softmax(-1)
        probs = []
        for token in range(V):
            mass = sum(c for c, token_id in zip(copy_probs, ids, strict=True) if token_id == token)
            probs.append(gate * generated[token] + (1 - gate) * mass)
        rows.append(torch.stack(probs))
    return torch.stack(rows).log()
