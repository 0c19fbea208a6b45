"""Non-finite weights: every reader refuses them, and no writer saves them."""

import shutil
from pathlib import Path

import pytest
import torch

from seq2seq.__main__ import main
from seq2seq.data.length_limit import LengthLimit
from seq2seq.runs.checkpoint import (
    best_is_intact,
    load_model,
    read_warm_start,
    save_snapshot,
    save_weights,
    weights_header,
)
from seq2seq.runs.layout import BEST, LAST, PREVIOUS
from seq2seq.runs.tensor_file import read_file, save_tensors
from seq2seq.runs.training_state import Progress, StateTensors, read_state, save_state
from seq2seq.runtime.errors import DamagedFile, RunError, UserError
from seq2seq.tools.averaging import load_checkpoints

CPU = torch.device("cpu")
VALUES = [float("nan"), float("inf"), -float("inf")]


def overwrite_last_weight(path: Path, value: float, prefix: str = "") -> str:
    """Overwrite the last weight of a file with a value and a valid checksum; return its name."""
    header, tensors = read_file(path)
    name = [name for name in tensors if name.startswith(prefix) and tensors[name].dim()][-1]
    tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    tensors[name].view(-1)[-1] = value
    save_tensors(path, tensors, header)
    return name


@pytest.fixture
def run(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_runs["luong"], tmp_path / "run"))


@pytest.mark.parametrize("value", VALUES)
def test_every_reader_refuses_non_finite_weights(run: Path, tmp_path: Path, value: float) -> None:
    copied_run = Path(shutil.copytree(run, tmp_path / "other"))
    loaded = load_model(run, CPU)
    vocabularies = loaded.vocabularies
    config = loaded.config
    assert best_is_intact(run, config, vocabularies)
    name = overwrite_last_weight(run / BEST, value)
    assert not best_is_intact(run, config, vocabularies)
    expected = rf"{BEST}: tensor {name} is not finite \(1 values, such as {value}\)"
    with pytest.raises(DamagedFile, match=expected):
        load_model(run, CPU)
    with pytest.raises(DamagedFile, match=expected):
        load_checkpoints([copied_run / BEST, run / BEST], CPU)
    with pytest.raises(UserError, match=f"init_from=.*{expected}"):
        read_warm_start(run, config)
    shutil.copy(run / BEST, run / "step-3.safetensors")
    with pytest.raises(DamagedFile, match="step-3"):
        load_model(run, CPU, "step-3.safetensors")


@pytest.mark.parametrize("command", ["translate", "evaluate", "score", "attention", "average"])
def test_commands_refuse_non_finite_weights_in_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name = overwrite_last_weight(run / BEST, VALUES[0])
    text = tmp_path / "text"
    text.write_text("ba do\n", encoding="utf-8")
    page = tmp_path / "page.html"
    arguments = {
        "translate": ["-m", run, "-i", text],
        "evaluate": ["-m", run, "-i", text, "-r", text],
        "score": ["-m", run, "-i", text, "-r", text],
        "attention": ["-m", run, "-i", text, "-o", page],
        "average": [run, tmp_path / "b", "-o", tmp_path / "c"],
    }
    shutil.copytree(run, tmp_path / "b")
    assert main([command, *map(str, arguments[command])]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert f"{run / BEST}: tensor {name} is not finite" in line
    assert out == ""
    assert not page.exists()
    assert not (tmp_path / "c").exists()


def test_no_writer_saves_non_finite_weights(tmp_path: Path) -> None:
    weights = {"good": torch.ones(2), "bad": torch.tensor([1.0, VALUES[1]])}
    limit = LengthLimit(1.0, 3)
    with pytest.raises(RunError, match="not written, because tensor bad is not finite"):
        save_weights(tmp_path / BEST, weights, weights_header(limit, 1, 1.0, {}))
    with pytest.raises(RunError, match="tensor bad"):
        save_snapshot(tmp_path, weights, weights_header(limit, 1, 1.0, {}), 2)
    moments = {weight: {"moment": torch.zeros(2)} for weight in weights.values()}
    with pytest.raises(RunError, match="tensor bad"):
        save_state(tmp_path, StateTensors(weights, {}, moments), Progress(), limit, {})
    good = {"good": weights["good"]}
    tensors = StateTensors(good, {"bad": weights["bad"]}, moments)
    with pytest.raises(RunError, match="tensor bad"):
        save_state(tmp_path, tensors, Progress(), limit, {})
    assert list(tmp_path.iterdir()) == []


def test_a_state_may_have_infinite_moments_but_no_non_finite_weights(tmp_path: Path) -> None:
    weight = torch.ones(2)
    moments = {weight: {"moment": torch.full((2,), VALUES[1])}}
    limit = LengthLimit(1.0, 3)
    for _ in range(2):
        tensors = StateTensors({"w": weight}, {"w": weight.clone()}, moments)
        save_state(tmp_path, tensors, Progress(), limit, {})
    assert read_state(tmp_path) is not None
    for group in ("weights.", "averages."):
        shutil.copy(tmp_path / PREVIOUS, tmp_path / LAST)
        name = overwrite_last_weight(tmp_path / LAST, VALUES[0], group)
        with pytest.raises(DamagedFile, match=f"tensor {name} is not finite.*{PREVIOUS} is intact"):
            read_state(tmp_path)
