"""Snapshots: weights of the latest validations are kept; other files are not touched."""

from pathlib import Path

import pytest
import torch

from seq2seq.data.length_limit import LengthLimit
from seq2seq.runs.checkpoint import save_snapshot, weights_header
from seq2seq.runs.layout import remove_snapshots, snapshot_step, snapshots
from seq2seq.runs.run_folder import remove_parts
from seq2seq.runs.tensor_file import read_header, read_tensors

OTHERS = (
    "step-.safetensors",
    "step-07.safetensors",
    "step-9.safetensors.bak",
    "step-mine.safetensors",
    "step-mine.safetensors.part",
    "my-step-8.safetensors",
    "best.safetensors",
)


def save(folder: Path, step: int, keep: int) -> None:
    limit = LengthLimit(1.5, 4)
    weights = {"w": torch.full((2, 3), float(step))}
    header = weights_header(limit, step, step / 8, {"config": {}, "vocabulary": {}})
    save_snapshot(folder, weights, header, keep)


def steps(folder: Path) -> list[int | None]:
    return [snapshot_step(path) for path in snapshots(folder)]


def test_the_newest_snapshots_are_kept_and_other_files_stay(tmp_path: Path) -> None:
    for name in OTHERS:
        (tmp_path / name).write_text("mine")
    for step in (2, 9, 10, 100):
        save(tmp_path, step, keep=3)
    assert steps(tmp_path) == [9, 10, 100]  # sorted by number, not by name
    header, _ = read_header(tmp_path / "step-100.safetensors")
    assert (header["step"], header["bleu"], header["limit"]) == (
        100,
        12.5,
        vars(LengthLimit(1.5, 4)),
    )
    assert torch.equal(read_tensors(tmp_path / "step-9.safetensors")["w"], torch.full((2, 3), 9.0))
    remove_snapshots(tmp_path, last_step=9)
    assert steps(tmp_path) == [9]
    (tmp_path / "step-11.safetensors.part").touch()
    remove_parts(tmp_path)
    remove_snapshots(tmp_path, last_step=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(OTHERS)


def test_a_lower_limit_removes_older_snapshots(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step, keep=4)
    save(tmp_path, 5, keep=2)
    assert steps(tmp_path) == [4, 5]


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_other_names_are_not_snapshots(name: str) -> None:
    assert snapshot_step(Path(name)) is None
