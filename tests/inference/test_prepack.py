"""Weights in oneDNN's layout: the same products, wherever a weight is used."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from conftest import DECODERS, toy_pairs
from tiers import one_quick
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.inference import weights
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.translator import Translator
from seq2seq.inference.weights import (
    ColumnWeight,
    InferenceWeight,
    Int8Weight,
    PackedWeight,
    prepacking_is_exact,
)
from seq2seq.model.lstm import LSTMLayer
from seq2seq.runs.checkpoint import load_model
from seq2seq.runtime.device import choose_device

CPU = torch.device("cpu")
LINES, _ = toy_pairs(40, seed=5)

packs = pytest.mark.skipif(not weights._packs_exactly(), reason="this torch cannot lay weights out")


@pytest.fixture(autouse=True)
def precision_restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def assert_product(
    weight_format: Callable[[Tensor], InferenceWeight],
    rows: tuple[int, ...],
    sizes: tuple[int, int],
    biased: bool,
) -> None:
    """Assert that products with a weight in this format are those in float64, up to rounding."""
    generator = torch.Generator().manual_seed(len(rows))
    inputs = torch.randn(*rows, sizes[0], generator=generator)
    weight = torch.randn(sizes[1], sizes[0], generator=generator)
    bias = torch.randn(sizes[1], generator=generator) if biased else None
    found = F.linear(inputs, weight_format(weight), bias=bias)  # type: ignore[arg-type]
    exact = F.linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    assert found.shape == exact.shape
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


@packs
@pytest.mark.parametrize("rows", [(1,), (2,), (7,), (64,), (300,), (3, 5)])
@pytest.mark.parametrize("sizes", [(1, 2), (20, 80), (33, 5), (512, 2048)])
@pytest.mark.parametrize("biased", [True, False])
def test_packed_products_equal_those_of_the_weight(
    rows: tuple[int, ...], sizes: tuple[int, int], biased: bool
) -> None:
    assert_product(PackedWeight, rows, sizes, biased)


@packs
@one_quick("decoder", DECODERS)
@one_quick("beam", [1, 3])
def test_packed_weights_give_the_same_translations(
    tiny_runs: dict[str, Path], decoder: str, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = Translator.load(tiny_runs[decoder], device="cpu")
    monkeypatch.setattr("seq2seq.inference.weights.prepacking_is_exact", lambda: False)
    plain = Translator.load(tiny_runs[decoder], device="cpu")
    expected = plain.translate(LINES, beam_size=beam)
    found = packed.translate(LINES, beam_size=beam)
    assert [each.text for each in found] == [each.text for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-4)
    assert found == [packed.translate([line], beam_size=beam)[0] for line in LINES]


@pytest.mark.parametrize("rows", [(1,), (2,), (64,), (3, 5)])
@pytest.mark.parametrize("sizes", [(20, 80), (768, 40), (769, 40), (1600, 30)])
@pytest.mark.parametrize("biased", [True, False])
def test_blocks_of_columns_sum_to_the_product(
    rows: tuple[int, ...], sizes: tuple[int, int], biased: bool
) -> None:
    assert_product(ColumnWeight, rows, sizes, biased)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("beam", [1, 3])
def test_column_weights_leave_translations_bitwise_unchanged(
    tiny_runs: dict[str, Path], decoder: str, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are used only for shapes whose products are bitwise equal, which is tested for each."""
    monkeypatch.setattr(weights, "prepacking_is_exact", lambda: False)
    columns = Translator.load(tiny_runs[decoder], device="cpu")
    monkeypatch.setattr(weights, "by_columns", lambda weight: weight)
    plain = Translator.load(tiny_runs[decoder], device="cpu")
    assert columns.translate(LINES, beam_size=beam) == plain.translate(LINES, beam_size=beam)


def test_columns_that_round_differently_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(12, 34)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    for factor, kind in ((1.0, ColumnWeight), (1 + 1e-6, torch.Tensor)):

        class Scaled(ColumnWeight):
            def product(self, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
                plain = self.blocks[0].t().contiguous()
                return F.linear(inputs, plain, bias) * factor  # noqa: B023

        monkeypatch.setattr(weights, "ColumnWeight", Scaled)
        weights._columns_are_exact.cache_clear()
        assert isinstance(weights.by_columns(weight), kind)
    weights._columns_are_exact.cache_clear()


def weight_formats(model: InferenceModel) -> set[str]:
    """Return the class names of the weights of LSTM and linear layers."""
    kinds = set()
    for module in model.network.modules():
        if isinstance(module, LSTMLayer):
            kinds |= {type(module.hidden_weight).__name__, type(module.input_weight).__name__}
        elif isinstance(module, nn.Linear) and module.out_features > 1:
            kinds.add(type(module.weight).__name__)
        elif isinstance(module, nn.Linear | nn.Embedding):
            assert isinstance(module.weight, nn.Parameter)
    return kinds


@packs
def test_a_model_is_packed_if_products_have_that_precision_anyway(
    tiny_runs: dict[str, Path],
) -> None:
    model = InferenceModel(load_model(tiny_runs["bahdanau"], CPU)[0])
    assert weight_formats(model) == {"Parameter"}
    torch.set_float32_matmul_precision("highest")
    assert not prepacking_is_exact()
    torch.set_float32_matmul_precision("medium")
    assert prepacking_is_exact()
    model.replace_weights(PackedWeight)
    assert weight_formats(model) == {"PackedWeight"}


def test_without_the_operator_weights_are_not_packed(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_operator(*_: object) -> PackedWeight:
        raise AttributeError("no such operator")

    monkeypatch.setattr(weights, "PackedWeight", without_operator)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    weights._packs_exactly.cache_clear()
    try:
        torch.set_float32_matmul_precision("medium")
        assert not prepacking_is_exact()
        model = Translator.load(tiny_runs["luong"], device="cpu").model
        assert isinstance(model, InferenceModel)
        assert weight_formats(model) == {"Parameter"}
    finally:
        weights._packs_exactly.cache_clear()


def test_less_exact_products_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rounding(InferenceWeight):
        def __init__(self, weight: torch.Tensor) -> None:
            self.weight = weight.bfloat16().float()

        def product(self, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            return F.linear(inputs, self.weight, bias)

    monkeypatch.setattr(weights, "PackedWeight", Rounding)
    weights._packs_exactly.cache_clear()
    try:
        assert not weights._packs_exactly()
    finally:
        weights._packs_exactly.cache_clear()


def test_inference_weights_support_only_products() -> None:
    weight = Int8Weight(torch.ones(2, 3))
    with pytest.raises(AssertionError, match="Int8Weight cannot be given to"):
        torch.abs(weight)  # type: ignore[call-overload]


def test_loading_for_the_cpu_packs_unless_int8(tiny_runs: dict[str, Path]) -> None:
    model = Translator.load(tiny_runs["luong"], device="cpu").model
    assert isinstance(model, InferenceModel)
    choose_device("cpu")
    expected = torch.get_float32_matmul_precision() == "medium" and weights._packs_exactly()
    columns = isinstance(weights.by_columns(torch.ones(24, 24)), ColumnWeight)
    plain = {"ColumnWeight", "Parameter"} if columns else {"Parameter"}  # the projection stays
    assert weight_formats(model) == ({"PackedWeight"} if expected else plain)
