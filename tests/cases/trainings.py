"""Trainings of the small corpus, and the results that are compared."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from seq2seq.config.schema import Config, load_config
from seq2seq.data.padding import Batch
from seq2seq.runs.layout import BEST, LAST, LOG, METRICS, snapshots
from seq2seq.training import loop
from seq2seq.training.loop import Interrupted, train
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import StepResult, train_step


def configured(corpus: Path, *overrides: str, run: str = "run") -> Config:
    """Return the config of the small corpus with overrides and a run folder of this name."""
    short = ("decoding.max_length=5", f"run_dir={corpus.parent / run}")
    return load_config(corpus, [*short, *overrides])


def trained(corpus: Path, *overrides: str, run: str = "run") -> Path:
    return train(configured(corpus, *overrides, run=run), "cpu")


def state_of(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return counters and tensors of a checkpoint."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["seq2seq"]), tensors


def fingerprint(run: Path) -> tuple[bytes, list[bytes]]:
    """Return the result of a training: its metrics and last weights."""
    tensors = state_of(run / LAST)[1]
    weights = [tensor.numpy().tobytes() for name, tensor in tensors.items() if "weights." in name]
    return (run / METRICS).read_bytes(), weights


BASE = ("training.max_steps=4", "training.max_epochs=2", "training.validate_every=1")


def lines_of(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def validations(run: Path) -> list[dict[str, float]]:
    return [line for line in lines_of(run / METRICS) if "valid_bleu" in line]


def log_of(run: Path) -> str:
    return (run / LOG).read_text(encoding="utf-8")


def after_steps(number: int, act: Callable[[], object]) -> Callable[..., StepResult]:
    """Return `train_step` with an action after the step of this number."""
    numbers = count(1)

    def step(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        result = train_step(run, batches, rate)
        if next(numbers) == number:
            act()
        return result

    return step


def always(bleu: float) -> Callable[[TrainingSession], float]:
    """Return a validation that translates nothing and has this BLEU."""

    def valid_bleu(session: TrainingSession) -> float:
        session.hypotheses = [""] * len(session.data.valid)
        return bleu

    return valid_bleu


def interrupt(number: int = signal.SIGTERM) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def stop_after(
    steps: int, config: Config, signal_number: int = signal.SIGTERM, resume: bool = False
) -> Interrupted:
    """Start or resume a training that a signal stops after some steps; return what it raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", after_steps(steps, interrupt(signal_number)))
        with pytest.raises(Interrupted) as stopped:
            train(config, "cpu", resume=resume)
    return stopped.value


def assert_same_run(run: Path, expected: Path) -> None:
    """Check that all that the seed determines is bitwise equal."""
    assert [path.name for path in snapshots(run)] == [path.name for path in snapshots(expected)]
    for path in snapshots(expected):
        assert (run / path.name).read_bytes() == path.read_bytes()
    assert (run / METRICS).read_text() == (expected / METRICS).read_text()
    assert (run / BEST).read_bytes() == (expected / BEST).read_bytes()
    (counters, tensors), (expected_counters, expected_tensors) = (
        state_of(run / LAST),
        state_of(expected / LAST),
    )
    assert counters["progress"] == expected_counters["progress"]
    assert counters["limit"] == expected_counters["limit"]
    assert tensors.keys() == expected_tensors.keys()
    for name, tensor in expected_tensors.items():
        assert torch.equal(tensors[name], tensor), name


def steps_of(run: Path) -> int:
    return int(state_of(run / LAST)[0]["progress"]["step"])
