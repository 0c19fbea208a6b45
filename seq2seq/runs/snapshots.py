"""Snapshots: the weights of the last validations, `step-N.safetensors`, for `seq2seq average`."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from seq2seq.runs.checkpoint import LengthLimit, save_weights, writing
from seq2seq.runs.provenance import Header
from seq2seq.runtime.files import PART_SUFFIX

_NAME = re.compile(r"step-([1-9][0-9]*)\.safetensors")


def snapshot_step(path: Path) -> int | None:
    """Return the step of a snapshot by its file name; None for other names."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else None


def snapshots(folder: Path) -> list[Path]:
    """List the snapshots of a run, oldest first."""
    steps = {path: snapshot_step(path) for path in folder.glob("step-*.safetensors")}
    named = [path for path in steps if steps[path] and not path.is_dir()]
    return sorted(named, key=lambda path: steps[path] or 0)


def save_snapshot(
    folder: Path,
    weights: Mapping[str, Tensor],
    limit: LengthLimit,
    step: int,
    bleu: float,
    provenance: Header,
    keep: int,
) -> None:
    """Save the weights of a step, then remove all but the `keep` newest snapshots."""
    save_weights(folder / f"step-{step}.safetensors", weights, limit, step, bleu, provenance)
    _remove(snapshots(folder)[:-keep], folder)


def remove_snapshots(folder: Path, after: int) -> None:
    """Remove the snapshots of later steps, which training will repeat."""
    _remove([path for path in snapshots(folder) if (snapshot_step(path) or 0) > after], folder)


def remove_partial_snapshots(folder: Path) -> None:
    """Remove incomplete files left by a killed process."""
    parts = folder.glob(f"step-*.safetensors{PART_SUFFIX}")
    _remove(
        [path for path in parts if _NAME.fullmatch(path.name.removesuffix(PART_SUFFIX))], folder
    )


def _remove(paths: list[Path], folder: Path) -> None:
    with writing(folder):
        for path in paths:
            path.unlink(missing_ok=True)
