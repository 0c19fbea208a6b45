"""Checkpoint averaging: the mean of the weights of several checkpoints of one model."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs import checkpoint, layout, run_config, run_folder
from seq2seq.runs.provenance import model_changes, provenance_of
from seq2seq.runs.tensor_file import header_errors, read_header
from seq2seq.runtime.errors import UserError, argument
from seq2seq.runtime.locks import LOCK, exclusive_lock

_TOO_FEW = "an average needs at least 2 checkpoints"
_DUPLICATE = "name each checkpoint only once"


class Checkpoint(NamedTuple):
    """A loaded checkpoint and the header fields that identify it."""

    path: Path
    step: int
    checksum: str  # SHA-256 of the tensors
    source: SourceProfile
    model: Seq2Seq
    vocabularies: Vocabularies
    limit: LengthLimit
    config: Config


def select_checkpoints(runs: Sequence[Path], last: int | None = None) -> list[Path]:
    """Return the files to average.

    These are the snapshots of a single run folder, or the newest `last` of them; the best weights
    of each of several; or the files given. Raises UserError for other files, duplicates or too few
    snapshots.
    """
    if len(runs) == 1 and not runs[0].is_file():
        return _select_snapshots(runs[0], last)
    if last is not None:
        raise UserError(
            "selects snapshots of a single run folder; name only one", argument="last", value=last
        )
    paths = [each if each.is_file() else each / layout.BEST for each in runs]
    for given, path in zip(runs, paths, strict=True):
        if path.name != layout.BEST and layout.snapshot_step(path) is None:
            raise UserError(
                f"{given}: not a checkpoint; give a run folder, its {layout.BEST} or a "
                "step-N.safetensors"
            )
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise UserError(f"{given}: given twice; {_DUPLICATE}")
    return paths


def _select_snapshots(run: Path, last: int | None) -> list[Path]:
    run_config.read_config(run)  # raises UserError if it is not a run folder
    if last == 1:
        raise UserError(_TOO_FEW, argument="last", value=1)
    found, wanted = layout.snapshots(run), max(2, last or 0)
    if len(found) < wanted:
        raise UserError(
            f"{run}: too few snapshots (step-N.safetensors): {len(found)} of {wanted}; "
            "train with training.keep, or name several runs"
        )
    return found if last is None else found[-last:]


def check_destination(folder: Path, paths: Sequence[Path], overwrite: bool) -> None:
    """Refuse a folder that contains an input, other files or, without `overwrite`, a run."""
    run_folder.check_place(folder)
    if any(path.resolve().parent == folder.resolve() for path in paths):
        raise UserError(f"{folder}: is one of the runs to average; choose a new folder")
    if not folder.exists() or all(entry.name == LOCK for entry in folder.iterdir()):
        return
    if not run_folder.holds_run(folder):
        raise UserError(f"{folder}: contains files other than a run's; choose a new folder")
    if not overwrite:
        raise UserError(
            f"{folder}: already contains a run; replace it with {argument('overwrite', True)}"
        )


def load_checkpoints(paths: Sequence[Path], device: torch.device) -> list[Checkpoint]:
    """Load checkpoints of one model; raises UserError if they differ in more than their weights.

    All are kept in memory, since a run that is still training may remove its snapshots.
    """
    if len(paths) < 2:
        raise UserError(f"{paths[0]}: {_TOO_FEW}")
    loaded: list[Checkpoint] = []
    for path in paths:
        parts = checkpoint.load_model(path.parent, device, path.name)
        header, _ = read_header(path)
        with header_errors(path):
            step, checksum = int(header["step"]), str(header["tensors"])
        source = run_config.read_source_profile(path.parent, path.name)
        loaded.append(Checkpoint(path, step, checksum, source, *parts))
        _check_compatible(loaded[-1], loaded)
    return loaded


def _check_compatible(added: Checkpoint, loaded: Sequence[Checkpoint]) -> None:
    path, first = added.path, loaded[0]
    if checksums_of(added.vocabularies) != checksums_of(first.vocabularies):
        raise UserError(
            f"{path}: has another vocabulary than {first.path}; average runs that share one"
        )
    directions = [each.config.data.direction for each in (added, first)]
    if directions[0] != directions[1]:
        raise UserError(f"{path}: translates {directions[0]} but {first.path} {directions[1]}")
    if changes := model_changes(first.config, added.config, ("model.",)):
        raise UserError(f"{path}: has another model than {first.path}: {', '.join(changes)}")
    for other in loaded[:-1]:
        if other.checksum == added.checksum:
            raise UserError(f"{path}: has the same weights as {other.path}; {_DUPLICATE}")


def average_models(models: Sequence[Seq2Seq]) -> Seq2Seq:
    """Return a copy of the first model with the mean of the weights of all."""
    averaged = copy.deepcopy(models[0])
    means = average_weights([named_weights(model) for model in models])
    for name, weight in named_weights(averaged).items():
        weight.copy_(means[name])
    return averaged


def average_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each named weight, summed in float64: equal weights are left unchanged."""
    means = {}
    for name in weights[0]:
        total = weights[0][name].cpu().double()
        for other in weights[1:]:
            total = total + other[name].cpu().double()
        means[name] = (total / len(weights)).float()
    return means


def save_average(
    folder: Path,
    model: Seq2Seq,
    checkpoints: Sequence[Checkpoint],
    bleu: float | None,
    overwrite: bool,
) -> None:
    """Write a run folder for the averaged model, recording the checkpoints that went into it.

    The config is written first, so that an incomplete folder can be overwritten. Raises
    UserError as `check_destination` does: another process may have written there since.
    """
    first = checkpoints[0]
    vocabularies, config = first.vocabularies, first.config
    provenance = provenance_of(config, vocabularies, model_keys_only=True)
    provenance["averaged"] = [
        {"path": str(each.path), "step": each.step, "tensors": each.checksum}
        for each in checkpoints
    ]
    provenance[run_config.SOURCE] = asdict(first.source)
    with exclusive_lock(folder):
        check_destination(folder, [each.path for each in checkpoints], overwrite)
        run_folder.clear(folder)
        checkpoint.create_run(folder, config.model_copy(update={"run_dir": folder}), vocabularies)
        step, path = max(each.step for each in checkpoints), folder / layout.BEST
        checkpoint.save_weights(path, named_weights(model), first.limit, step, bleu, provenance)
