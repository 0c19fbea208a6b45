"""Layout of a run folder: the names of its files, which of them are intact, errors in writing.

config.yaml            resolved config
vocabulary/            joint.model, or src.model and tgt.model; names.json, if there are names
best.safetensors       best weights, with the length limit of search
step-N.safetensors     snapshots: the weights of other validations
engine/                the best weights as ONNX graphs, for translation without torch
last.safetensors       training state
previous.safetensors   the training state before it; resumed from if the last is missing
metrics.jsonl          losses and scores, which the seed determines
metrics.csv            the same as a table, a row for each step
samples.jsonl          a few validation sentences and their translations at each validation
timing.jsonl           speed and times
train.log              log of the training
tensorboard/           metrics, timing and samples for TensorBoard
README.md              model card, which `seq2seq report` writes
report.html            page about the run, which `seq2seq report` writes
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.runs import tensor_file
from seq2seq.runs.engine_folder import ENGINE as ENGINE
from seq2seq.runtime.errors import DamagedFile, RunError, UnreadableFile, UserError, argument
from seq2seq.runtime.files import PART_SUFFIX, same_file
from seq2seq.runtime.locks import LOCK

if TYPE_CHECKING:
    from torch import Tensor

BEST, LAST, PREVIOUS = "best.safetensors", "last.safetensors", "previous.safetensors"
CONFIG, VOCABULARY = "config.yaml", "vocabulary"
_SNAPSHOT = re.compile(r"step-([1-9][0-9]*)\.safetensors")
_OPTIMIZER = "optimizer."  # moments in a training state, which may overflow
METRICS, TIMING, LOG, TENSORBOARD = "metrics.jsonl", "timing.jsonl", "train.log", "tensorboard"
METRICS_TABLE, SAMPLES = "metrics.csv", "samples.jsonl"
PAGE = "report.html"
FIGURES = (METRICS, METRICS_TABLE, SAMPLES, TIMING, LOG, TENSORBOARD)
RESERVED = (
    CONFIG,
    VOCABULARY,
    BEST,
    LAST,
    PREVIOUS,
    ENGINE,
    LOCK,
    *FIGURES,
)  # names in a run folder
REPORT_MARK = "<!-- written by seq2seq report -->"  # in the first bytes of the page
_FIRST_BYTES = 1 << 16


def is_own_report(path: Path) -> bool:
    """Return whether `seq2seq report` wrote a page, not the user."""
    try:
        if not path.is_file():  # reading a pipe would block
            return False
        with path.open("rb") as file:
            return REPORT_MARK.encode() in file.read(_FIRST_BYTES)
    except OSError:
        return False


def model_tensors(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the tensors of a checkpoint or training state that are weights or their averages."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(_OPTIMIZER)}


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


def recovery_hint(folder: Path, damaged: str) -> str:
    """Say how to recover from a damaged or missing checkpoint, after verifying the others."""
    names = [name for name in (LAST, PREVIOUS, BEST) if name != damaged]
    intact = {name: _is_intact(folder / name) for name in names}
    if hint := _resume_hint(folder, damaged, intact):
        return hint
    if unreadable := [name for name in names if intact[name] is None]:
        return f"{' and '.join(unreadable)} cannot be read: make it readable first"
    if intact.get(BEST):
        return (
            f"{BEST} is intact and translates; to train again, {argument('overwrite', True)} or "
            "another run_dir"
        )
    if newest := next((path for path in reversed(snapshots(folder)) if _is_intact(path)), None):
        return f"{newest.name} is intact: copied to {BEST}, it translates"
    return (
        "No other checkpoint here is intact: copy the run again, or train with "
        f"{argument('overwrite', True)}"
    )


def _resume_hint(folder: Path, damaged: str, intact: Mapping[str, bool | None]) -> str | None:
    """Say which training state continues the run; None if there is none, or no need of it."""
    resume = "`seq2seq train CONFIG --resume`"
    if damaged == BEST and intact[LAST]:
        return f"{LAST} is intact: {resume} continues from it and writes {BEST} again"
    if damaged in (BEST, LAST) and intact[PREVIOUS] and intact.get(LAST, False) is not None:
        delete = f"delete {LAST}, and " if (folder / LAST).exists() else ""
        return f"{PREVIOUS} is intact: {delete}{resume} continues from it"
    return None


@contextmanager
def writing(path: Path, folder: Path | None = None) -> Iterator[None]:
    """Convert a failure to write into a RunError; the run folder is that of the file if None."""
    try:
        yield
    except OSError as error:
        raise write_failure(path, folder or path.parent, error) from None


def write_failure(path: Path, folder: Path, error: OSError) -> RunError:
    """Return the error for a file of a run that cannot be written: what is left was verified."""
    return RunError(
        f"{path}: cannot be written ({error.strerror or error}). {_what_remains(folder)}"
    )


def _what_remains(folder: Path) -> str:
    """Say which training state can be resumed from, after verifying its checksum."""
    if not folder.is_dir():
        return f"The run folder {folder} does not exist"
    resume = f"fix the problem and continue with {argument('resume', True)}"
    if _is_intact(folder / LAST):
        return f"{LAST} is intact (checksum verified): {resume}"
    if _is_intact(folder / PREVIOUS):
        first = f"delete {LAST}, " if (folder / LAST).exists() else ""
        return f"{PREVIOUS} is intact (checksum verified): {first}{resume}"
    if _is_intact(folder / LAST) is None:
        return f"{LAST} cannot be read either, and was not verified"
    if not ((folder / LAST).exists() or (folder / PREVIOUS).exists()):
        return "Fix the problem and start again"
    return "Fix the problem and start again: no intact training state was found"


def check_weights(path: Path, weights: "Mapping[str, Tensor]") -> None:
    """Raise RunError for weights that are not finite: no file of a run may hold them."""
    if (fault := tensor_file.non_finite(weights)) is not None:
        raise RunError(
            f"{path}: not written, because {fault}. Train with a lower training.learning_rate"
        )


def _is_intact(path: Path) -> bool | None:
    """Return whether a checkpoint exists and is undamaged; None if it cannot be read."""
    try:
        tensor_file.check_finite(path, model_tensors(tensor_file.read_tensors(path)))
    except UnreadableFile:
        return None
    except UserError:
        return False
    return True


def belongs_to_run(path: Path, folder: Path) -> bool:
    """Return whether a path is, by name or by a link, a file that the run in `folder` writes."""
    target, root = path.resolve(), folder.resolve()
    if target.is_relative_to(root) and target != root:
        name = target.relative_to(root).parts[0].removesuffix(PART_SUFFIX)
        if name in RESERVED or snapshot_step(root / name) is not None:
            return True
    return any(same_file(path, file) for file in _files_of_run(root))


def _files_of_run(folder: Path) -> Iterator[Path]:
    for name in existing(folder, RESERVED):
        yield folder / name
        if (folder / name).is_dir():
            yield from (folder / name).rglob("*")


def existing(folder: Path, names: Sequence[str]) -> list[str]:
    """Return which of these names exist in the folder, and the names of its snapshots."""
    there = [name for name in names if os.path.lexists(folder / name)]
    return [*there, *(path.name for path in snapshots(folder))]
