"""Layout of a run folder: the names of its files, which of them are intact, errors in writing.

config.yaml            resolved config
vocabulary/            joint.model, or src.model and tgt.model; names.json, if there are names
best.safetensors       best weights, with the length limit of search
step-N.safetensors     snapshots: the weights of other validations
engine/                the best weights as ONNX graphs, for translation without torch
last.safetensors       training state
previous.safetensors   the training state before it; resumed from if the last is missing
metrics.jsonl          losses and scores, which the seed determines
samples.jsonl          a few validation sentences and their translations at each validation
timing.jsonl           speed and times
train.log              log of the training
tensorboard/           metrics, timing and samples for TensorBoard
report.html            page about the run, which `seq2seq report` writes
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.runs import tensor_file
from seq2seq.runtime.errors import DamagedFile, RunError, UnreadableFile, UserError, argument
from seq2seq.runtime.files import PART_SUFFIX, same_file
from seq2seq.runtime.locks import LOCK

if TYPE_CHECKING:
    from torch import Tensor

BEST, LAST, PREVIOUS = "best.safetensors", "last.safetensors", "previous.safetensors"
CONFIG, VOCABULARY = "config.yaml", "vocabulary"
ENGINE = "engine"  # folder of the graphs
DESCRIPTION = "export.json"  # in an exported model
_SNAPSHOT = re.compile(r"step-([1-9][0-9]*)\.safetensors")
MOMENTS = "optimizer."  # prefix of those in a training state, which may overflow
METRICS, TIMING, LOG, TENSORBOARD = "metrics.jsonl", "timing.jsonl", "train.log", "tensorboard"
SAMPLES = "samples.jsonl"
PAGE = "report.html"
FIGURES = (METRICS, SAMPLES, TIMING, LOG, TENSORBOARD)
RESERVED = (CONFIG, VOCABULARY, BEST, LAST, PREVIOUS, ENGINE, LOCK, *FIGURES)  # names of files


def model_tensors(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the tensors of a checkpoint or training state that are weights or their averages."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(MOMENTS)}


def snapshot_step(path: Path) -> int | None:
    """Return the step of a snapshot by its file name; None for other names."""
    match = _SNAPSHOT.fullmatch(path.name)
    return int(match[1]) if match else None


def snapshots(folder: Path) -> list[Path]:
    """List the snapshots of a run, oldest first."""
    paths = folder.glob("step-*.safetensors")
    steps = {path: step for path in paths if (step := snapshot_step(path)) and not path.is_dir()}
    return sorted(steps, key=lambda path: steps[path])


@contextmanager
def with_recovery_hint(path: Path) -> Iterator[None]:
    """Add to a DamagedFile error which checkpoints are intact and how to recover."""
    try:
        yield
    except DamagedFile as error:
        raise DamagedFile(f"{error}. {recovery_hint(path.parent, path.name)}") from None


def recovery_hint(folder: Path, damaged: str = "") -> str:
    """Say which checkpoint of a run is intact, and what to do with it."""
    paths = [folder / LAST, folder / PREVIOUS, folder / BEST, *reversed(snapshots(folder))]
    for path in (path for path in paths if path.name != damaged):
        try:
            tensor_file.check_finite(path, model_tensors(tensor_file.read_tensors(path)))
        except UnreadableFile:
            return f"{path.name} cannot be read: make it readable first"
        except UserError:
            continue
        return f"{path.name} is intact by checksum: {_use_of(path)}"
    remedy = f"copy the run again, or train with {argument('overwrite', True)}"
    return f"No other checkpoint here is intact: {remedy}"


def _use_of(path: Path) -> str:
    if path.name in (LAST, PREVIOUS):
        first = path.name == PREVIOUS and path.with_name(LAST).exists()
        resume = f"training with {argument('resume', True)} continues from it"
        return f"delete {LAST}, and {resume}" if first else resume
    if path.name == BEST:
        return f"it translates; to train again, {argument('overwrite', True)} or another run_dir"
    return f"copied to {BEST}, it translates"


@contextmanager
def writing(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Convert a failure to write into a RunError; the run folder is that of the file if None."""
    folder = folder or path.parent
    try:
        yield
    except OSError as error:
        remedy = "Fix the problem and start again"
        if not folder.is_dir():
            remedy = f"The run folder {folder} does not exist"
        elif existing(folder, (LAST, PREVIOUS, BEST)):
            remedy = recovery_hint(folder)
        text = f"{path}: cannot be written ({error.strerror or error})"
        raise RunError(f"{text}. {remedy}") from None


def remove_snapshots(folder: Path, last_step: int) -> None:
    """Remove the snapshots of later steps, which training will repeat."""
    remove(path for path in snapshots(folder) if (snapshot_step(path) or 0) > last_step)


def remove(paths: Iterable[Path]) -> None:
    """Remove files of a run; raises RunError."""
    for path in paths:
        with writing(path):
            path.unlink(missing_ok=True)


def check_weights(path: Path, weights: "Mapping[str, Tensor]") -> None:
    """Raise RunError for weights that are not finite: no file of a run may hold them."""
    if (fault := tensor_file.non_finite(weights)) is not None:
        remedy = "Train with a lower training.learning_rate"
        raise RunError(f"{path}: not written, because {fault}. {remedy}")


def is_reserved(name: str) -> bool:
    """Return whether a run writes a file or folder of this name, or of this temporary name."""
    name = name.removesuffix(PART_SUFFIX)
    return name in RESERVED or snapshot_step(Path(name)) is not None


def belongs_to_run(path: Path, folder: Path) -> bool:
    """Return whether a path is, by name or by a link, a file that the run in `folder` writes."""
    target, root = path.resolve(), folder.resolve()
    if root in target.parents and is_reserved(target.relative_to(root).parts[0]):
        return True
    files = [root / name for name in existing(root, RESERVED)]
    return any(same_file(path, file) for top in files for file in (top, *top.rglob("*")))


def existing(folder: Path, names: Sequence[str]) -> list[str]:
    """Return which of these names exist in the folder, and the names of its snapshots."""
    existing_names = [name for name in names if os.path.lexists(folder / name)]
    return [*existing_names, *(path.name for path in snapshots(folder))]
