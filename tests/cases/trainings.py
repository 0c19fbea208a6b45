"""Trainings of the small corpus, and the results that are compared."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from seq2seq.config.schema import Config, load_config
from seq2seq.runs.layout import LAST, METRICS
from seq2seq.training.loop import train


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
