"""What training goes on from: weights, averages, the optimizer's moments and counters.

It stands in last.safetensors; the one before that is kept as previous.safetensors.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import (
    LAST,
    PREVIOUS,
    LengthLimit,
    Progress,
    own_weights,
    with_recovery_hint,
    writing,
)
from seq2seq.runs.provenance import Header
from seq2seq.runs.tensor_file import (
    Shapes,
    check_shapes,
    copy_into,
    header_errors,
    read_dataclass,
    read_header,
    read_tensors,
    save_tensors,
    shape_mismatch,
    shapes_of,
)
from seq2seq.runtime.errors import UserError
from seq2seq.training.optimizer import Optimizer

T = TypeVar("T")
_GROUPS = ("weights.", "averages.", "optimizer.")


def save_last(
    folder: Path,
    weights: Mapping[str, Tensor],
    averages: Mapping[str, Tensor],
    optimizer: Optimizer,
    progress: Progress,
    limit: LengthLimit,
    seconds: float,
    provenance: Header,
) -> None:
    """Write all that training goes on from; what was last becomes the previous.

    `seconds` is the time trained so far, `provenance` what `provenance_of` gives.
    """
    tensors = {f"weights.{name}": tensor for name, tensor in weights.items()}
    tensors |= {f"averages.{name}": tensor for name, tensor in averages.items()}
    for name, moments in zip(weights, optimizer.state.values(), strict=True):
        tensors |= {f"optimizer.{key}.{name}": value for key, value in moments.items()}
    state = {"progress": asdict(progress), "limit": asdict(limit), "seconds": seconds}
    with writing(folder / LAST):
        save_tensors(folder / LAST, tensors, {**state, **provenance}, folder / PREVIOUS)


def resumable(folder: Path) -> Path | None:
    """The file that training goes on from: the last, or if that is not there, the previous."""
    there = (folder / name for name in (LAST, PREVIOUS) if (folder / name).exists())
    return next(there, None)


def check_last(folder: Path) -> tuple[Path, Header] | None:
    """The file that training goes on from, found whole, and its header; None where none is there.

    Raises DamagedFile with the way out.
    """
    path = resumable(folder)
    if path is None:
        return None
    with with_recovery_hint(path):
        read_tensors(path)
        return path, read_header(path)[0]


def load_last(
    folder: Path,
    model: Seq2Seq,
    averages: dict[str, Tensor],
    optimizer: Optimizer,
    device: torch.device,
) -> tuple[Progress, LengthLimit, float]:
    """Put a saved state into model, averages and optimizer, in place.

    Returns progress, limit and the seconds trained.
    """
    path = resumable(folder)
    if path is None:
        raise UserError(f"{folder}: nothing to resume, it has no {LAST}; train without --resume")
    weights, parameters = own_weights(model), list(optimizer.state)
    with with_recovery_hint(path):
        header, shapes = read_header(path)
        progress = read_dataclass(Progress, header, "progress", path)
        limit = read_dataclass(LengthLimit, header, "limit", path)
        with header_errors(path):
            seconds = float(header["seconds"])
        check_shapes(path, _group(shapes, "weights."), shapes_of(weights))
        check_shapes(path, _group(shapes, "averages."), shapes_of(averages))
        check_shapes(path, _without_group(shapes), {})
        moments = _moments(path, _group(shapes, "optimizer."), shapes_of(weights))
        tensors = read_tensors(path)
    copy_into(_group(tensors, "weights."), weights, path)
    copy_into(_group(tensors, "averages."), averages, path)
    for name, parameter in zip(weights, parameters, strict=True):
        optimizer.state[parameter] = {
            key: tensors[f"optimizer.{key}.{name}"].to(device, copy=True) for key in moments[name]
        }
    return progress, limit, seconds


def _group(named: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}


def _without_group(shapes: Shapes) -> Shapes:
    return {name: shape for name, shape in shapes.items() if not name.startswith(_GROUPS)}


def _moments(path: Path, shapes: Shapes, weights: Shapes) -> dict[str, list[str]]:
    """Of each weight the names of its optimizer's tensors, which have its shape or none."""
    found: dict[str, list[str]] = {name: [] for name in weights}
    for key, shape in shapes.items():
        moment, _, name = key.partition(".")
        if name not in weights or shape not in ((), weights[name]):
            raise shape_mismatch(path, f"optimizer.{key}")
        found[name].append(moment)
    return found
