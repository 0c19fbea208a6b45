"""What the tests of the model share: every decoder at unequal sizes, and random float64 inputs."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from seq2seq.model.attention import AdditiveScore, DotScore, GeneralScore, ScaledDotScore, Score
from seq2seq.model.decoder import BahdanauDecoder, Decoder, LuongDecoder, PlainDecoder
from seq2seq.model.encoder import EncoderOutput

B, T, S, D, A, E, R, V, H = 3, 4, 5, 6, 7, 8, 9, 11, 12  # D: one direction of the encoder
SRC_LENGTHS = (4, 2, 5)
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
    """One way to build a decoder."""

    kind: str
    score: str
    input_feeding: bool
    num_layers: int

    def __str__(self) -> str:
        feeding = "feeding" if self.input_feeding else ""
        return "-".join(filter(None, (self.kind, self.score, feeding, str(self.num_layers))))


CASES = [
    *(Case("bahdanau", score, False, layers) for score in SCORES for layers in (1, 2)),
    *(
        Case("luong", score, feeding, layers)
        for score in SCORES
        for feeding in (True, False)
        for layers in (1, 2)
    ),
    *(Case("plain", "", False, layers) for layers in (1, 2)),
]
ONE_OF_EACH = [
    Case("bahdanau", "additive", False, 2),
    Case("luong", "general", True, 2),
    Case("luong", "dot", False, 2),
    Case("plain", "", False, 2),
]


def make_score(name: str) -> Score:
    """A score between H and H, by the name it has in a config."""
    match name:
        case "additive":
            return AdditiveScore(H, H, A)
        case "scaled_dot":
            return ScaledDotScore(H, H, A)
        case "general":
            return GeneralScore(H, H)
    return DotScore(H, H)


def make_decoder(case: Case, dropout: float = 0.0) -> Decoder:
    """A decoder in float64 whose every parameter, biases too, is drawn anew."""
    layers = case.num_layers
    decoder: nn.Module
    if case.kind == "bahdanau":
        decoder = BahdanauDecoder(make_score(case.score), E, H, D, R, layers, dropout)
    elif case.kind == "luong":
        feeding = case.input_feeding
        decoder = LuongDecoder(make_score(case.score), E, H, R, layers, dropout, feeding)
    else:
        decoder = PlainDecoder(E, H, R, layers, dropout)
    return randomize(decoder)


def randomize(module: nn.Module, seed: int = 1) -> nn.Module:
    """The module in float64, its parameters normal with a deviation of 0.4."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module


def random_tensor(*shape: int, seed: int) -> Tensor:
    """Normal float64 numbers that want a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def encoder_output(num_layers: int, lengths: tuple[int, ...] = SRC_LENGTHS) -> EncoderOutput:
    """Outputs and final states of sources with these lengths; padded outputs are not zero."""
    batch = len(lengths)
    return EncoderOutput(
        random_tensor(batch, S, H, seed=2),
        random_tensor(batch, num_layers, H, seed=3),
        random_tensor(batch, num_layers, H, seed=4),
        torch.arange(S) >= torch.tensor(lengths)[:, None],
    )


def embedded_targets(batch: int = B) -> Tensor:
    """Embedded target inputs [B, T, E]."""
    return random_tensor(batch, T, E, seed=5)


def close(left: Tensor, right: Tensor, tolerance: float = 1e-10) -> None:
    """Assert equal shapes, equal dtypes and, to an absolute tolerance, equal values."""
    torch.testing.assert_close(left, right, rtol=0, atol=tolerance)
