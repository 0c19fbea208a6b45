"""Formulas of the documentation, computed once by hand with numbers, equal the code.

Each case has the row of docs/explanation/attention.md (or the page that it names) beside it, so
that a formula that changes in the text fails here, too.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.inference.search.strategies import coverage_penalty, length_penalty
from seq2seq.model.attention import (
    AdditiveScore,
    DotScore,
    GeneralScore,
    NormedAdditiveScore,
    ScaledDotScore,
)
from seq2seq.model.copying import Copying, CopyOutputs, continuation
from seq2seq.model.local_attention import MonotonicWindow, PredictiveWindow
from seq2seq.model.recurrent import GRULayer
from seq2seq.model.state import SourcePositions
from seq2seq.training.loss import alignment_losses, coverage_losses

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = {
    "attention.md": [
        "`v . tanh(W q + U h)`",
        "`g v / norm(v) . tanh(W q + U h + b)`",
        "`q . h`, `q . W h`",
        "`W_q q . W_k h / sqrt(A)`",
        "`[t - D, t + D]`",
        "`p = S sigmoid(v . tanh(W q))`; weights times `exp(-2 (s - p)^2 / D^2)`",
        "`b * sum over s of log(min(sum over t of a_ts, 1))`",
        "`sum over s of min(a_ts, c_ts)`",
        "`- sum over w of A_tw log a_tw`",
        "`g softmax(..)_y + (1 - g) * sum of c_s over s with src_s = y`",
        "`c = (1 - l sum(r)) a + l r`",
        "`h' = (1 - z) h + z tanh(W x + U [r h])`",
    ],
    "departures.md": ["`length^alpha`", "multiplied by it, and not normalised again"],
}
Q, H = torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[2.0, 1.0], [-1.0, 0.25]]])  # [1,1,2], [1,2,2]


def fill(layer: torch.nn.Module, value: list[list[float]]) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(value))  # type: ignore[operator]
        if getattr(layer, "bias", None) is not None:
            layer.bias.zero_()  # type: ignore[operator]


def scores(function: torch.nn.Module) -> list[float]:
    keys, _ = function.project(H)  # type: ignore[operator]
    result: list[float] = function(Q, keys)[0, 0].tolist()
    return result


@pytest.mark.parametrize("page", DOCUMENTED)
def test_the_formulas_below_are_those_of_the_documentation(page: str) -> None:
    text = (ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8")
    assert [formula for formula in DOCUMENTED[page] if formula not in text] == []


def test_scores() -> None:
    """W q is (-1.5, -1), U h is (2, 3) and (-1, -0.75)."""
    tanh = math.tanh
    additive = AdditiveScore(2, 2, 2)
    fill(additive.query_projection, [[1, 2], [0, 1]])
    fill(additive.key_projection, [[1, 0], [1, 1]])
    fill(additive.energy, [[3, -4]])
    expected = [3 * tanh(0.5) - 4 * tanh(2), 3 * tanh(-2.5) - 4 * tanh(-1.75)]
    assert scores(additive) == pytest.approx(expected, abs=1e-6)
    normed = NormedAdditiveScore(2, 2, 2)
    fill(normed.query_projection, [[1, 2], [0, 1]])
    fill(normed.key_projection, [[1, 0], [1, 1]])
    fill(normed.energy, [[3, -4]])
    with torch.no_grad():
        normed.gain.fill_(2)
        normed.query_projection.bias.copy_(torch.tensor([0.5, 0]))
    expected = [0.4 * (3 * tanh(1) - 4 * tanh(2)), 0.4 * (3 * tanh(-2) - 4 * tanh(-1.75))]
    assert scores(normed) == pytest.approx(expected, abs=1e-6)
    assert scores(DotScore(2, 2)) == pytest.approx([0, -0.75])
    general = GeneralScore(2, 2)
    fill(general.key_projection, [[math.sqrt(2), 0], [math.sqrt(2), math.sqrt(2)]])  # W sqrt(Q)
    assert scores(general) == pytest.approx([0.5 * 2 - 3, 0.5 * -1 + 0.75], abs=1e-6)
    scaled = ScaledDotScore(2, 2, 2)
    fill(scaled.query_projection, [[1, 2], [0, 1]])
    fill(scaled.key_projection, [[1, 0], [1, 1]])
    expected = [(-1.5 * 2 - 3) / math.sqrt(2), (1.5 + 0.75) / math.sqrt(2)]
    assert scores(scaled) == pytest.approx(expected, abs=1e-6)


def test_windows() -> None:
    mask = torch.zeros(1, 7, dtype=torch.bool)
    monotonic = MonotonicWindow(2)(Q, torch.tensor([[3]]), mask)
    assert monotonic[0, 0].tolist() == [0, 1, 1, 1, 1, 1, 0]
    predictive = PredictiveWindow(2, 2)
    fill(predictive.query_projection, [[1, 0], [0, 1]])
    fill(predictive.energy, [[1, 2]])
    centre = 7 / (1 + math.exp(-(math.tanh(0.5) + 2 * math.tanh(-1))))
    expected = [math.exp(-2 * (s - centre) ** 2 / 4) * (abs(s - centre) <= 2) for s in range(7)]
    window = predictive(Q, torch.tensor([[3]]), mask)[0, 0].tolist()
    assert window == pytest.approx(expected, abs=1e-6)


def test_penalties_of_search() -> None:
    coverage = np.array([0.5, 1.5, 0.25])
    penalty = coverage_penalty(coverage, np.array(3), 0.2)
    assert float(penalty) == pytest.approx(0.2 * (math.log(0.5) + math.log(0.25)))
    assert length_penalty(np.array([4]), 0.5).tolist() == [2]


def test_losses_of_attention() -> None:
    weights = torch.tensor([[[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]])
    assert coverage_losses(weights)[0].tolist() == pytest.approx([0, 0.75, 0.75])
    aligned = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]])
    losses = alignment_losses(weights, aligned, torch.tensor([[0, 1]]))[0].tolist()
    assert losses == pytest.approx([-math.log(0.75), math.log(2), 0], abs=1e-6)


def test_copying() -> None:
    """Copying continues after the places of the last token, 5, by 0.4 / (0.4 + 0.2 + 0.01)."""
    src = torch.tensor([[5, 6, 5, 7]])
    copy_probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    attention = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    r = [0, 0.4 / 0.61, 0, 0.2 / 0.61]
    continued = continuation(copy_probs, torch.tensor([5]), src)
    assert continued[0].tolist() == pytest.approx(r, abs=1e-6)
    module = Copying(1, 1)
    fill(module.gate, [[1.0]])
    fill(module.continuation, [[-1.0]])
    positions = SourcePositions(src, torch.tensor([[0, 1, 0, 3]]), torch.zeros(1, 4, 2))
    outputs, shares = module(torch.tensor([[0.5]]), attention, continued, positions)
    c = shares.detach()
    stay = 1 / (1 + math.exp(0.5))  # l
    expected = [
        (1 - stay * sum(r)) * a + stay * share
        for a, share in zip((0.1, 0.2, 0.3, 0.4), r, strict=True)
    ]
    assert c[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert sum(expected) == pytest.approx(1)
    none = continuation(copy_probs, torch.tensor([9]), src)  # the last token was not copied
    _, only = module(torch.tensor([[0.5]]), attention, none, positions)
    assert only[0].tolist() == pytest.approx(attention[0].tolist())
    logits = torch.zeros(1, 8)
    gate = 1 / (1 + math.exp(-0.5))
    log_probs = mixture(outputs, logits)
    places = {5: c[0, 0] + c[0, 2], 6: c[0, 1], 7: c[0, 3]}
    for y in range(8):
        probability = gate / 8 + (1 - gate) * float(places.get(y, 0))
        assert log_probs[y] == pytest.approx(probability, abs=1e-6)


def mixture(outputs: CopyOutputs, logits: Tensor) -> list[float]:
    probabilities: list[float] = outputs.mix(logits)[0].exp().tolist()
    return probabilities


def test_gated_unit() -> None:
    """z = 0.5 where its gate is 0; the reset gate acts on h before the product with U."""
    layer = GRULayer(1, 1)
    hidden = torch.tensor([[0.8]])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.5)
    gates = layer.gates(torch.tensor([[0.0]]))
    hidden_state, _ = layer.step(gates, hidden, hidden)
    gate = 1 / (1 + math.exp(-(0.5 * 0.8 + 0.5)))  # r and z alike
    candidate = math.tanh(0.5 * gate * 0.8 + 0.5)
    assert float(hidden_state.detach()) == pytest.approx(
        (1 - gate) * 0.8 + gate * candidate, abs=1e-6
    )
