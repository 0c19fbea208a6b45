"""All tensor code on a simulated accelerator: one device, no CPU-only operator, few reads."""

import itertools
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import pytest
import torch
from cases.simulated_device import (
    DEVICE,
    CpuOnly,
    DeviceMismatch,
    Float64,
    SimulatedTensor,
    simulated,
)
from cases.tiers import one_quick
from cases.tiny_runs import DECODERS, tiny_config
from cases.toy_text import toy_pairs
from torch import Tensor

from seq2seq.__main__ import main
from seq2seq.data.padding import Batch, make_batch
from seq2seq.engines.torch import engine as torch_engine
from seq2seq.model import recurrent
from seq2seq.model.builder import build_model
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs import training_state
from seq2seq.runs.layout import METRICS
from seq2seq.runtime import device as runtime_device
from seq2seq.training.loss import Losses, batch_loss
from seq2seq.training.mixture_loss import LossWeights

pytestmark = pytest.mark.usefixtures("short_sentences")
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def test_a_planted_mix_of_devices_is_detected() -> None:
    with simulated():
        weight = torch.randn(3, 4, device=DEVICE)
        assert weight.device == DEVICE
        with pytest.raises(DeviceMismatch):
            weight @ torch.randn(4, 2)
        with pytest.raises(DeviceMismatch):
            weight[torch.tensor([0, 1])]
        assert (weight * torch.tensor(2.0)).device == DEVICE  # numbers may come from the CPU
        with pytest.raises(CpuOnly):
            torch.ops.mkldnn._linear_pointwise(weight, weight, None, "none", [], "")


def test_planted_host_reads_are_recorded() -> None:
    with simulated() as device:
        values = torch.arange(4, device=DEVICE)
        assert device.reads == []
        assert values.sum().item() == 6
        assert values.tolist() == [0, 1, 2, 3]
        assert bool((values > 2).any())
        assert len(values[values > 1]) == 2
        assert torch.equal(values.cpu(), torch.arange(4))
    assert len(device.reads) == 5


def test_gradients_equal_those_of_the_cpu() -> None:
    torch.manual_seed(1)
    layer = torch.nn.LSTM(3, 4)
    input = torch.randn(5, 2, 3)
    layer(input)[0].square().sum().backward()
    expected = [parameter.grad for parameter in layer.parameters()]
    with simulated():
        layer.zero_grad()
        layer.to(DEVICE)
        layer(input.to(DEVICE))[0].square().sum().backward()
        for weight, grad in zip(layer.parameters(), expected, strict=True):
            assert isinstance(weight.grad, SimulatedTensor)
            assert torch.allclose(weight.grad.inner, grad)


SHORT = (
    "training.max_steps=2",
    "training.validate_every=2",
    "decoding.max_length=3",
    "data.max_length=12",
)
# Weights after Adam depend on the rounding of gradients near zero, by which it divides.
SGD = ("training.optimizer=sgd", "training.learning_rate=0.5")
TRAININGS = {
    "bahdanau": (),
    "luong": ("model.decoder=luong", "model.attention_size=null"),
    "none": ("model.decoder=none", "model.attention_size=null"),
    "local": ("model.decoder=luong", "model.attention_size=null", "model.window={local_p: 3}"),
    "coverage, gru": (
        "model.score=coverage",
        "training.losses.coverage=1",
        "model.cell=gru",
        "model.maxout=true",
    ),
    "consistency, word dropout": (
        "model.dropout={word: 0.2}",
        "training.losses.consistency=1",
        "training.average=0.9",
        "training.accumulate=2",
    ),
    "scheduled, gnmt": (
        "model.decoder=gnmt",
        "model.layers={encoder: 2, decoder: 2, residual: true}",
        "training.max_steps=4",
        "training.validate_every=4",
        "training.scheduled_sampling={linear: 2}",
        "vocabulary.sampling=0.3",
    ),
    "copying, layer norm": (
        "model.copy=true",
        "vocabulary.names.invented=0.5",
        "model.cell=layer_norm_lstm",
    ),
}
READING_MODULES = {  # modules that read values on the host, but not within a step
    "runtime/device.py",
    "engines/torch/engine.py",
    "runs/tensor_file.py",
    "runs/training_state.py",
    "training/loop.py",
    "training/validation.py",
}


def metrics_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / METRICS).read_text().splitlines()]


@pytest.mark.usefixtures("no_engine")
@one_quick("name", TRAININGS)
def test_training_equals_that_on_the_cpu(name: str, small_corpus: Path) -> None:
    """No step reads a value on the host; losses equal those on the CPU up to rounding and dropout.

    Dropout uses another generator than on a CPU, and consistency needs dropout.
    """
    folder = small_corpus.parent
    random = name == "consistency, word dropout"
    dropout = () if random else ("model.dropout=0",)
    arguments = ["train", str(small_corpus), *SHORT, *SGD, *TRAININGS[name], *dropout]
    assert main([*arguments, f"run_dir={folder / 'cpu'}"]) == 0
    with simulated() as device:
        assert main([*arguments, f"run_dir={folder / 'device'}"]) == 0
    assert {place.partition(":")[0] for place in device.reads} <= READING_MODULES
    expected = metrics_of(folder / "cpu")
    metrics = metrics_of(folder / "device")
    assert [line.keys() for line in metrics] == [line.keys() for line in expected]
    for line_on_device, line_on_cpu in zip(metrics, expected, strict=True):
        for key in line_on_device.keys() & {"train_loss", "valid_loss", "train_objective"}:
            assert line_on_device[key] == pytest.approx(
                line_on_cpu[key], rel=0.05 if random else 1e-4
            )


@pytest.mark.usefixtures("no_engine")
@one_quick("optimizer", ["adam", "adamw"])
def test_an_optimizer_reads_no_value_on_the_host(optimizer: str, small_corpus: Path) -> None:
    arguments = ["train", str(small_corpus), *SHORT, f"training.optimizer={optimizer}"]
    with simulated() as device:
        assert main([*arguments, "training.average=0.9"]) == 0
    assert {place.partition(":")[0] for place in device.reads} <= READING_MODULES


def in_training(_: Tensor) -> bool:
    """Return whether this is a training step: the simulated device lacks the LSTM in inference."""
    return not torch.is_inference_mode_enabled()


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("decoder", ["bahdanau", "gnmt"])
def test_training_with_the_library_lstm_equals_that_on_the_cpu(
    decoder: str, small_corpus: Path
) -> None:
    """As on CUDA, LSTMs without feedback run on torch's own kernels."""
    folder = small_corpus.parent
    keys = (f"model.decoder={decoder}", "model.dropout=0")
    arguments = ["train", str(small_corpus), *SHORT, *SGD, *keys]
    assert main([*arguments, f"run_dir={folder / 'cpu'}"]) == 0
    with simulated() as device, mock.patch.object(recurrent, "use_library", in_training):
        assert main([*arguments, f"run_dir={folder / 'device'}"]) == 0
    assert {place.partition(":")[0] for place in device.reads} <= READING_MODULES
    for line_on_cpu, line_on_device in zip(
        metrics_of(folder / "cpu"), metrics_of(folder / "device"), strict=True
    ):
        for key in line_on_cpu.keys() & {"train_loss", "valid_loss", "train_objective"}:
            assert line_on_cpu[key] == pytest.approx(line_on_device[key], rel=1e-4)


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_an_interrupted_training_continues(small_corpus: Path) -> None:
    folder = small_corpus.parent
    arguments = ["train", str(small_corpus), *SHORT]
    with simulated():
        assert main([*arguments, f"run_dir={folder / 'full'}", "training.max_steps=4"]) == 0
        half = [*arguments, f"run_dir={folder / 'half'}"]
        assert main(half) == 0
        assert main([*half, "training.max_steps=4", "--resume"]) == 0
    full, resumed = (metrics_of(folder / name)[-1]["valid_loss"] for name in ("full", "half"))
    assert full == resumed


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [(simulated, nullcontext), (nullcontext, simulated)])
def test_a_run_continues_on_another_device(
    devices: Sequence[Callable[[], AbstractContextManager[object]]],
    small_corpus: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run is resumed, averaged, initialised from and scored on a device it never was on."""
    first, second = devices
    folder = small_corpus.parent
    run, full, source = (str(folder / name) for name in ("run", "full", "test.src"))
    target = str(folder / "test.tgt")
    arguments = ["train", str(small_corpus), *SHORT, *SGD, "model.dropout=0"]
    arguments.append("training.max_epochs=9")
    more_steps = [*arguments, "training.max_steps=4"]
    assert main([*more_steps, f"run_dir={full}"]) == 0
    with first():
        assert main([*arguments, f"run_dir={run}"]) == 0
    texts = []
    with second():
        assert main([*more_steps, f"run_dir={run}", "--resume"]) == 0
        assert main(["average", run, full, "-o", str(folder / "mean")]) == 0
        assert main([*arguments, f"run_dir={folder / 'next'}", "--init-from", run]) == 0
    for device in devices:
        capsys.readouterr()
        with device():
            # Of given translations: the best of a model of four steps may tie.
            assert main(["score", "-m", str(folder / "mean"), "-i", source, "-r", target]) == 0
        texts.append(capsys.readouterr().out)
    assert_same(*texts)
    assert texts[0]
    resumed, expected = (metrics_of(Path(name))[-1]["valid_loss"] for name in (run, full))
    assert resumed == pytest.approx(expected, rel=1e-4)


def test_a_command_for_the_cpu_asks_for_no_card(
    small_corpus: Path, tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = mock.Mock(side_effect=AssertionError("CUDA was asked"))
    for name in ("device_count", "is_available", "_lazy_init", "current_device", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, asked)
    cpu = ["--device", "cpu"]
    assert main(["train", str(small_corpus), *SHORT, *cpu]) == 0
    source = str(small_corpus.parent / "test.src")
    assert main(["translate", "-m", str(tiny_runs["luong"]), "-i", source, *cpu]) == 0
    asked.assert_not_called()


# Operations per additional target position in training (forward, backward), and per search step.
LAUNCHES = {"bahdanau": (21, 22, 36), "luong": (21, 17, 31)}


@pytest.mark.thorough
@pytest.mark.parametrize("decoder", LAUNCHES)
def test_a_step_launches_few_kernels(decoder: str) -> None:
    """On a GPU, the loops take as long as launching their kernels."""
    config = tiny_config(Path("unused"), decoder).model
    with simulated() as device:
        model = build_model(config, 20, 20, True).to(DEVICE)

        def launched(run: Callable[[], object]) -> int:
            device.launches.clear()
            run()
            return device.launches.total()

        def of_training(width: int) -> tuple[int, int]:
            parts = make_batch([[5] * 7] * 3, [[6] * width] * 3)
            batch = Batch(*(part if part is None else part.to(DEVICE) for part in parts))
            model.zero_grad()
            losses: list[Losses] = []
            forward = launched(lambda: losses.append(batch_loss(model, batch, LossWeights(0.1))))
            return forward, launched(losses[0].objective.backward)

        short_launches = of_training(5)
        long_launches = of_training(6)
        added_launches = [
            long_count - short_count
            for short_count, long_count in zip(short_launches, long_launches, strict=True)
        ]
        ids = torch.full((2, 7), 5, device=DEVICE)
        with torch.no_grad():
            memory, state = model.start(model.encode(ids, torch.tensor([7, 7], device=DEVICE)))
            added_launches.append(launched(lambda: model.step(ids[:, 0], state, memory)))
    assert all(map(int.__le__, added_launches, LAUNCHES[decoder])), added_launches


SEARCHES = {
    "greedy": ["-b", "1"],
    "beam": ["-b", "3"],
    "n-best": ["-b", "3", "--n-best", "2", "--json"],
    "diverse": ["-b", "4", "--groups", "2"],
    "sampling": ["--sample", "2"],
    "prefix": ["-b", "2", "--prefix", "ta"],
    "no repetition": ["-b", "2", "decoding.no_repeat_ngram=2", "decoding.repetition_penalty=1.2"],
    "coverage": ["-b", "2", "decoding.coverage_penalty=0.2"],
}


@one_quick(
    ("name", "decoder"),
    [*zip(SEARCHES, itertools.cycle(DECODERS), strict=False), ("n-best", "luong")],
    quick=1,
)
def test_search_results_equal_those_on_the_cpu(
    name: str,
    decoder: str,
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{line}\n" for line in toy_pairs(4, seed=5)[0]), encoding="utf-8")
    arguments = ["translate", "-m", str(tiny_runs[decoder]), "-i", str(lines), *SEARCHES[name]]
    assert main([*arguments, "--device", "cpu"]) == 0
    expected = capsys.readouterr().out
    with (
        simulated() as device,
        mock.patch.object(Seq2Seq, "step", autospec=True, side_effect=Seq2Seq.step) as step,
    ):
        assert main(arguments) == 0
    assert_same(capsys.readouterr().out, expected)
    # One more step, of one row, may show which outputs the model has.
    assert 0 < len(device.reads) <= step.call_count <= len(device.reads) + 1


def assert_same(output: str, expected: str) -> None:
    """Compare outputs: text exactly, decimal numbers up to rounding."""
    texts = [NUMBER.sub("", text) for text in (output, expected)]
    assert texts[0] == texts[1]
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (output, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=3e-6)


@pytest.mark.thorough
@one_quick("command", ["score", "ensemble", "constraints", "attention", "evaluate"])
def test_output_of_other_commands_equals_that_on_the_cpu(
    command: str, tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = (tmp_path / side for side in ("src", "tgt"))
    for path, lines in zip((source, target), toy_pairs(4, seed=5), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    phrases = tmp_path / "phrases"
    phrases.write_text("".join(f"{line.split()[0]}\n" for line in toy_pairs(4, seed=5)[1]))
    run = str(tiny_runs["luong"])
    second_run = str(tiny_runs["bahdanau"])
    inputs = ["-i", str(source)]
    arguments = {
        "score": ["score", "-m", run, *inputs, "-r", str(target)],
        "ensemble": ["translate", "-m", run, "-m", second_run, *inputs, "-b", "2"],
        "constraints": ["translate", "-m", run, *inputs, "-b", "3", "--constraints", str(phrases)],
        "attention": ["attention", "-m", run, *inputs],
        "evaluate": ["evaluate", "-m", run, *inputs, "-r", str(target)],
    }[command]
    assert main([*arguments, "--device", "cpu"]) == 0
    expected = capsys.readouterr().out
    with simulated():
        assert main(arguments) == 0
    assert_same(capsys.readouterr().out, expected)


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_a_device_without_float64_trains_and_samples(
    small_corpus: Path, tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apple's GPUs have no float64: no tensor on them may have this type."""
    for module in (runtime_device, training_state, torch_engine):
        monkeypatch.setattr(module, "has_float64", lambda device: device.type == "cpu")
    source = small_corpus.parent / "source"
    source.write_text("".join(f"{line}\n" for line in toy_pairs(3, seed=5)[0]), encoding="utf-8")
    translate = ["translate", "-m", str(tiny_runs["luong"]), "-i", str(source)]
    with simulated(float64=False):
        assert main(["train", str(small_corpus), *SHORT]) == 0
        for search in (["-b", "1"], ["-b", "3"], ["--sample", "2"]):
            assert main([*translate, *search]) == 0
        with pytest.raises(Float64):
            torch.zeros(3, device=DEVICE).double()
