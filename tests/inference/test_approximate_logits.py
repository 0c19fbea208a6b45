"""Approximate int8 logits: errors within the reported bound, and the argmax found from them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import DECODERS, toy_pairs
from searching import search
from test_constraints import prefix_of
from test_search import MAKERS, random_sources
from tiers import one_quick
from torch import Tensor

from seq2seq.inference import inference_model, weights
from seq2seq.inference.ensemble import Ensemble
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.prefixes import NO_PREFIX
from seq2seq.inference.search.topk import (
    ApproximateLogits,
    ApproximateProjection,
    argmax_of_approximate,
)
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.inference.weights import int8_is_exact

CPU = torch.device("cpu")
LINES, _ = toy_pairs(40, seed=5)
exact_int8 = pytest.mark.skipif(
    not int8_is_exact(), reason="this processor's int8 products overflow"
)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHTS = {
    "normal": random(300, 96),
    "few large entries": random(300, 96) ** 5,
    "rows of all sizes": random(300, 96) * torch.logspace(-6, 3, 300)[:, None],
    "equal rows": random(1, 96).expand(300, -1),
    "small": 1e-12 * random(300, 96),
    "zero": torch.zeros(300, 96),
    "one column": random(300, 1),
    "wide": random(70, 2000),
}
OUTPUTS = {
    "tanh": lambda size: 2 * torch.tanh(3 * random(50, size, seed=1)),
    "few large entries": lambda size: random(50, size, seed=1) ** 7,
    "rows of all sizes": lambda size: random(50, size, seed=1) * torch.logspace(-9, 4, 50)[:, None],
    "half a step off": lambda size: (torch.arange(50 * size).view(50, size) % 127 + 0.5).float(),
    "zero": lambda size: torch.zeros(50, size),
}


@exact_int8
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("outputs", OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize("bias_size", [0, 1, 1e4])
def test_errors_of_approximate_logits_are_within_their_bound(
    weight: Tensor, outputs: Any, bias_size: float
) -> None:
    given, bias = outputs(weight.shape[1]), bias_size * random(len(weight), seed=2)
    approximate = ApproximateProjection(weight, bias)(given)
    true = given.double() @ weight.double().t() + bias.double()
    assert ((approximate.logits - true).abs() <= approximate.error_bound[:, None]).all()
    rows = torch.arange(len(given)).repeat_interleave(len(weight))
    tokens = torch.arange(len(weight)).repeat(len(given))
    exact = approximate.exact(rows, tokens).view_as(true)
    assert ((approximate.logits - exact).abs() <= approximate.error_bound[:, None]).all()
    tight = given.norm(dim=1) * weight.norm(dim=1).max() + bias.abs().max()
    assert (exact - true).abs().max() <= 1e-4 * tight.max()
    if weight is WEIGHTS["normal"] and outputs is OUTPUTS["tanh"]:
        assert (approximate.error_bound < 0.03 * tight + 1).all()  # the bound is tight


@exact_int8
@pytest.mark.parametrize("width", [5, 512])
def test_exact_logits_are_batch_invariant(width: int) -> None:
    approximate = ApproximateProjection(random(900, width), random(900))(random(64, width, seed=1))
    rows = torch.arange(64).repeat(900)
    tokens = torch.arange(900).repeat_interleave(64)
    together = approximate.exact(rows, tokens)
    for part in (slice(7, 8), slice(100, 103), slice(5000, 6000)):
        assert torch.equal(approximate.exact(rows[part], tokens[part]), together[part])


def with_errors(exact: Tensor, off: Tensor, seed: int) -> tuple[ApproximateLogits, list[int]]:
    """Return logits with errors of up to `off`, and a list that counts requested exact logits."""
    signs = torch.randint(-1, 2, exact.shape, generator=torch.Generator().manual_seed(seed))
    requested: list[int] = []

    class Known(ApproximateLogits):
        def exact(self, rows: Tensor, tokens: Tensor) -> Tensor:
            requested.append(len(rows))
            return exact[rows, tokens]

    nothing = exact[:, :0]
    return Known(exact + 0.99 * signs * off[:, None], off, nothing, nothing, nothing), requested


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 127, 128, 640, 1283, 8000])
@pytest.mark.parametrize("largest", [0.0, 0.01, 0.5, 3.0])
def test_argmax_of_approximate_logits_equals_that_of_exact_logits(
    width: int, largest: float
) -> None:
    exact = random(300, width, seed=width)
    off = largest * torch.rand(300, generator=torch.Generator().manual_seed(1))
    exact[1], exact[2, width // 2], exact[3] = 0.0, 9.0, exact[3].round()
    exact[4, width // 2 + 1 :] = exact[4].max() + 1e-6
    approximate, requested = with_errors(exact, off, seed=3)
    assert torch.equal(argmax_of_approximate(approximate)[0], exact.argmax(-1))
    if largest == 0.01:
        assert sum(requested) < 2 * (
            3 * width + 400
        )  # many in three rows, one in each of the others


@pytest.mark.parametrize("largest", [0.01, 3.0])
def test_argmax_of_a_row_does_not_depend_on_the_batch(largest: float) -> None:
    exact = random(40, 1000)
    exact[1], exact[2], exact[3] = 0.0, exact[2].round(), -torch.inf
    off = torch.full((40,), largest)
    approximate, _ = with_errors(exact, off, seed=3)
    tokens, best = argmax_of_approximate(approximate)
    for row in range(40):
        alone, _ = with_errors(exact[row : row + 1], off[:1], seed=row)
        token, value = argmax_of_approximate(alone)
        assert (int(token), float(value)) == (int(tokens[row]), float(best[row]))
    nothing = with_errors(torch.full((1, 1000), torch.nan), off[:1], seed=1)[0]
    assert float(argmax_of_approximate(nothing)[1]) == -torch.inf


def test_masked_tokens_are_not_taken_even_if_their_exact_logit_is_the_largest() -> None:
    exact = random(20, 200)
    approximate, _ = with_errors(exact, torch.full((20,), 0.5), seed=1)
    for row in range(20):
        approximate.logits[row, exact[row].argmax()] = -torch.inf
    approximate.logits[7] = -torch.inf
    approximate.logits[7, 199] = exact[7, 199]
    expected = exact.topk(2, dim=-1).indices[:, 1]
    expected[7] = 199
    assert torch.equal(argmax_of_approximate(approximate)[0], expected)


LEADING = prefix_of({5: 1, 6: 1}, {9: None, 4: None})


@pytest.fixture
def always_approximate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use approximate logits even for the smallest models, however slow int8 products are here."""
    monkeypatch.setattr(inference_model, "MIN_INT8_SHORTLIST_WEIGHTS", 0)
    monkeypatch.setattr(weights, "int8_shortlist_pays_off", lambda: True)


@exact_int8
@pytest.mark.usefixtures("always_approximate")
@one_quick("decoder", DECODERS)
@one_quick("ngram", [0, 1, 2])
@one_quick("with_prefix", [False, True])
def test_greedy_search_is_unchanged_by_approximate_logits(
    decoder: str, ngram: int, with_prefix: bool
) -> None:
    sources, limits = random_sources(90, seed=4), [1 + n % 17 for n in range(90)]
    prefixes = [LEADING if with_prefix and n % 3 == 0 else NO_PREFIX for n in range(90)]
    plain, approximate = MAKERS[decoder](), MAKERS[decoder]()
    approximate.enable_int8_shortlist()
    beam = SearchOptions(1, 0.7, no_repeat_ngram=ngram)
    expected = search(plain, sources, limits, beam, CPU, prefixes)
    scored = search(approximate, sources, limits, beam, CPU, prefixes)
    sooner = search(approximate, sources, limits, beam._replace(return_scores=False), CPU, prefixes)
    unscored = search(plain, sources, limits, beam._replace(return_scores=False), CPU, prefixes)
    assert len({tuple(best.ids) for (best,) in expected}) > 30
    for (one,), (other,), (third,), (fourth,) in zip(
        expected, scored, sooner, unscored, strict=True
    ):
        assert one.ids == other.ids == third.ids == fourth.ids
        assert one.score == other.score
        assert math.isnan(third.score)
        assert math.isnan(fourth.score)
        if one.attention_weights is not None:
            assert third.attention_weights is not None
            assert torch.equal(one.attention_weights, third.attention_weights)


def text_and_tokens(translation: Translation) -> tuple[Translation, str, list[str]]:
    """Return a translation without its scores and attention weights."""
    return replace(translation, n_best=[]), translation.text, translation.tokens


@exact_int8
@pytest.mark.usefixtures("always_approximate")
@one_quick("decoder", DECODERS)
def test_translations_equal_those_of_exact_logits(
    tiny_runs: dict[str, Path], decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    approximate = Translator.load(tiny_runs[decoder], device="cpu")
    monkeypatch.setattr(weights, "int8_shortlist_pays_off", lambda: False)
    plain = Translator.load(tiny_runs[decoder], device="cpu")
    assert isinstance(approximate.model, InferenceModel)
    assert isinstance(plain.model, InferenceModel)
    assert approximate.model._shortlist is not None
    assert plain.model._shortlist is None
    expected = plain.translate(LINES, 1)
    assert approximate.translate(LINES, 1) == expected
    for translator in (approximate, plain):
        found = translator.translate(LINES, 1, text_only=True)
        assert all(math.isnan(each.score) for each in found)
        assert list(map(text_and_tokens, found)) == list(map(text_and_tokens, expected))
    found = approximate.translate(LINES, 3, text_only=True)
    beams = plain.translate(LINES, 3)
    assert list(map(text_and_tokens, found)) == list(map(text_and_tokens, beams))
    assert [each.score for each in found] == [each.score for each in beams]


@pytest.mark.usefixtures("always_approximate")
def test_models_that_cannot_use_approximate_logits_have_none(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_runs["luong"]
    both = Translator.load(run, run, device="cpu").model
    assert isinstance(both, Ensemble)
    assert [each.project_approximately(random(1)) for each in both.models] == [None, None]
    assert both.project_approximately(()) is None
    if int8_is_exact():
        monkeypatch.setattr(weights, "check_int8", lambda _: None)
        assert (
            Translator.load(run, device="cpu", int8=True).model.project_approximately(random(1))
            is None
        )
    monkeypatch.setattr(inference_model, "MIN_INT8_SHORTLIST_WEIGHTS", 10**6)
    assert Translator.load(run, device="cpu").model.project_approximately(random(1)) is None


@pytest.mark.parametrize(("seconds", "gains"), [((1.0, 10.0), True), ((9.0, 10.0), False)])
def test_the_shortlist_pays_off_where_int8_products_are_fast(
    seconds: tuple[float, float], gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(seconds)
    monkeypatch.setattr(weights, "shortest_time", lambda _: next(times))
    monkeypatch.setattr(weights, "int8_is_exact", lambda: True)
    assert weights.int8_shortlist_pays_off() == gains
    monkeypatch.setattr(weights, "int8_is_exact", lambda: False)
    assert not weights.int8_shortlist_pays_off()
