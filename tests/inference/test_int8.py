"""Int8 products against the same products written out, and search with int8 weights."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import DECODERS, toy_pairs
from tiers import one_quick
from torch.nn import functional as F

from seq2seq.cli.main import main as cli
from seq2seq.inference import run_loading, weights
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.translator import Translator
from seq2seq.inference.weights import INT8_MAX, Int8Weight, int8_is_exact
from seq2seq.model.lstm import LSTMLayer
from seq2seq.runs.checkpoint import load_model
from seq2seq.runtime.device import shortest_time
from seq2seq.runtime.errors import UserError

pytestmark = pytest.mark.skipif(
    not int8_is_exact(), reason="this processor's int8 products overflow"
)
LINES, _ = toy_pairs(40, seed=5)


@pytest.fixture(autouse=True)
def as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept int8 weights however slow int8 products are here."""
    monkeypatch.setattr(weights, "_int8_time_ratio", lambda: 1.0)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("sizes", [(20, 80), (33, 5), (512, 256)])
@pytest.mark.parametrize("biased", [True, False])
def test_int8_products_equal_those_of_quantized_rows(
    rows: int, sizes: tuple[int, int], biased: bool
) -> None:
    generator = torch.Generator().manual_seed(rows)
    inputs = torch.randn(rows, sizes[0], generator=generator)
    weight = torch.randn(sizes[1], sizes[0], generator=generator)
    bias = torch.randn(sizes[1], generator=generator) if biased else None
    expected = torch.zeros(rows, sizes[1], dtype=torch.float64)
    for n in range(min(rows, 3)):
        for m in range(sizes[1]):
            steps = (
                inputs[n].abs().max().double() / INT8_MAX,
                weight[m].abs().max().double() / INT8_MAX,
            )
            quantized = (inputs[n] / steps[0]).round(), (weight[m] / steps[1]).round()
            expected[n, m] = (quantized[0] * quantized[1]).sum() * steps[0] * steps[1]
            expected[n, m] += 0 if bias is None else bias[m]
    found = F.linear(inputs, Int8Weight(weight), bias)  # type: ignore[arg-type]
    torch.testing.assert_close(found[:3].double(), expected[:3], rtol=0.02, atol=0.02)
    exact = F.linear(inputs, weight, bias)
    assert (found - exact).norm() < 0.02 * exact.norm()
    assert not torch.equal(found, exact)


@pytest.mark.parametrize("implementation", [weights._int_mm, weights._onednn])
@pytest.mark.parametrize("sizes", [(2, 3, 2), (7, 20, 80), (64, 512, 301), (9, 1, 33), (1, 1, 2)])
def test_both_implementations_give_exact_integer_products(
    implementation: Callable[[torch.Tensor, torch.Tensor], weights.Multiply],
    sizes: tuple[int, int, int],
) -> None:
    if implementation is weights._onednn and not weights._onednn_is_fast():
        pytest.skip("this torch has no packed int8 products")
    if implementation is weights._int_mm and not weights._is_exact(implementation):
        pytest.skip("plain int8 products overflow here")
    generator = torch.Generator().manual_seed(sizes[0])
    rows, size, out_size = sizes
    inputs = torch.randint(-INT8_MAX, INT8_MAX + 1, (size, rows), generator=generator).t()
    weight = torch.randint(-INT8_MAX, INT8_MAX + 1, (out_size, size), generator=generator)
    scale = torch.rand(out_size, generator=generator)
    expected = (inputs @ weight.t()).float() * scale
    multiply = implementation(weight.to(torch.int8), scale)
    assert torch.equal(multiply(inputs.to(torch.int8)), expected)
    assert torch.equal(multiply(inputs.to(torch.int8).contiguous()), expected)


def test_a_slow_implementation_is_not_taken_for_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors without certain instructions, oneDNN's implementation is a plain loop."""
    plain = weights._int_mm

    def loops(integers: torch.Tensor, scale: torch.Tensor) -> weights.Multiply:
        multiply = plain(integers, scale)
        return lambda inputs: [multiply(inputs) for _ in range(100)][-1]

    monkeypatch.setattr(weights, "_onednn", loops)
    weights._onednn_is_fast.cache_clear()
    try:
        assert not weights._onednn_is_fast()
    finally:
        weights._onednn_is_fast.cache_clear()


def test_the_chosen_implementation_is_hundreds_of_times_faster_than_a_loop() -> None:
    weight = Int8Weight(torch.ones(512, 512))
    inputs, exact = torch.ones(64, 512), torch.ones(512, 512)
    limit = 20 * shortest_time(lambda: inputs @ exact) + 1e-4
    assert shortest_time(lambda: weight.product(inputs, None)) < limit


@pytest.mark.parametrize("sizes", [(256, 4000), (256, 8000)])
def test_one_row_takes_no_longer_than_many(sizes: tuple[int, int]) -> None:
    """oneDNN uses a plain loop for few rows: one row can take hundreds of times as long as 64."""
    weight = Int8Weight(torch.ones(sizes[1], sizes[0]))
    one, many = torch.ones(1, sizes[0]), torch.ones(64, sizes[0])
    limit = 10 * shortest_time(lambda: weight.product(many, None)) + 1e-4
    assert shortest_time(lambda: weight.product(one, None)) < limit


def test_without_packing_the_plain_implementation_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_operator(*_: object) -> weights.Multiply:
        raise AttributeError("no such operator")

    weight, inputs = torch.randn(8, 16), torch.randn(4, 16)
    expected = Int8Weight(weight).product(inputs, None)
    monkeypatch.setattr(weights, "_onednn", without_operator)
    weights._onednn_is_fast.cache_clear()
    try:
        if not int8_is_exact():
            pytest.skip("plain int8 products overflow here")
        assert torch.equal(Int8Weight(weight).product(inputs, None), expected)
    finally:
        weights._onednn_is_fast.cache_clear()


def test_a_row_does_not_depend_on_the_others_and_zeros_stay_zeros() -> None:
    generator = torch.Generator().manual_seed(3)
    inputs, weight = torch.randn(61, 48, generator=generator), torch.randn(17, 48)
    inputs[4] = 0
    quantized = Int8Weight(weight)
    together = F.linear(inputs, quantized)  # type: ignore[arg-type]
    alone = [F.linear(row[None], quantized) for row in inputs]  # type: ignore[arg-type]
    assert torch.equal(together, torch.cat(alone))
    assert not together[4].any()
    shaped = F.linear(inputs[:60].view(3, 4, 5, 48), quantized)  # type: ignore[arg-type]
    assert torch.equal(shaped.flatten(0, 2), together[:60])


@one_quick("decoder", DECODERS)
@one_quick("beam", [1, 3])
def test_a_translation_does_not_depend_on_the_batch(
    tiny_runs: dict[str, Path], decoder: str, beam: int
) -> None:
    rounded = Translator.load(tiny_runs[decoder], device="cpu", int8=True)
    exact = Translator.load(tiny_runs[decoder], device="cpu")
    together = rounded.translate(LINES, beam_size=beam)
    alone = [rounded.translate([line], beam_size=beam)[0] for line in LINES]
    assert together == alone
    assert rounded.attends == (decoder != "none")
    scores = [each.score for each in together]
    assert scores != [each.score for each in exact.translate(LINES, beam_size=beam)]


def test_lstm_and_linear_layers_are_quantized_and_embeddings_are_not(
    tiny_runs: dict[str, Path],
) -> None:
    model = InferenceModel(load_model(tiny_runs["bahdanau"], torch.device("cpu"))[0])
    model.replace_weights(Int8Weight)
    for module in model.network.modules():
        if isinstance(module, LSTMLayer):
            assert isinstance(module.hidden_weight, Int8Weight)
            assert isinstance(module.input_weight, Int8Weight)
        elif isinstance(module, torch.nn.Linear):
            assert isinstance(module.weight, Int8Weight) == (module.out_features > 1)
        elif isinstance(module, torch.nn.Embedding):
            assert module.weight.dtype == torch.float32


def test_the_command_accepts_int8(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("\n".join(LINES), encoding="utf-8")
    run = ["-m", str(tiny_runs["luong"]), "--device", "cpu"]
    assert cli(["translate", *run, "--int8", "-i", str(tmp_path / "in")]) == 0
    expected = Translator.load(tiny_runs["luong"], device="cpu", int8=True).translate(LINES)
    assert io.StringIO(capsys.readouterr().out).read().splitlines() == [e.text for e in expected]


def test_int8_is_refused_where_it_is_inexact_or_slow(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    seconds = iter([4.0, 0.1])
    monkeypatch.setattr(weights, "int8_is_exact", lambda: False)
    with pytest.raises(UserError, match="overflow on this processor; remove the option"):
        Translator.load(tiny_runs["none"], device="cpu", int8=True)
    monkeypatch.setattr(weights, "int8_is_exact", lambda: True)
    monkeypatch.setattr(weights, "shortest_time", lambda work: len(str(work())) and next(seconds))
    with pytest.raises(UserError, match=r"take 40\.0 times as long .*; remove the option"):
        Translator.load(tiny_runs["none"], device="cpu", int8=True)
    monkeypatch.setattr(run_loading, "choose_device", lambda _: torch.device("cuda"))
    with pytest.raises(UserError, match="runs on the CPU only"):
        Translator.load(tiny_runs["none"], int8=True)
