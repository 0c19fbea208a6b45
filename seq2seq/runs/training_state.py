"""Training state: all that resuming needs, in last.safetensors and previous.safetensors.

Weights, averages and moments are tensors; progress, length limit and provenance a header.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.data.source_profile import LengthLimit
from seq2seq.data.training_data import RECORDED_TEXT
from seq2seq.runs import layout, tensor_file
from seq2seq.runs.metrics_file import LineCount, lines_up_to, raw_lines, write_lines
from seq2seq.runs.run_config import Header
from seq2seq.runtime.device import has_float64
from seq2seq.runtime.errors import DamagedFile, UserError, argument

INITIAL_LOSS_SCALE = 2.0**12  # in fp16

OptimizerState = MutableMapping[Tensor, dict[str, Tensor]]  # moments of each parameter

STATE_FORMAT = 3  # increased when header fields or tensors change
_FORMAT = "state_format"
_TEXT = "text."  # prefix, in the header field `data`, of the checksums of a run's texts


@dataclass(eq=False)
class Progress:
    """Counters and statistics of a training; the seed determines all of them but `seconds`."""

    step: int = 0  # optimizer steps
    epoch: int = 0
    batch: int = 0  # batches of this epoch already used
    tokens: int = 0  # target tokens seen
    best_score: float = -1.0  # BLEU or chrF of the best validation, 0 for metric loss; -1: none yet
    best_loss: float = 0.0
    best_step: int = 0
    validated_step: int = 0  # step of the last validation
    improved_score: float = -1.0  # as `best_score`, of the last improvement that patience counts
    improved_loss: float = 0.0
    validations_since_improvement: int = 0
    decays: int = 0  # decays of the learning rate on plateaus
    reported_step: int = 0  # step of the last training loss in metrics.jsonl
    skipped_in_a_row: int = 0  # at reported_step
    rate_factor: float = 1.0  # factor on the learning rate, halved by each roll back
    max_micro_batch_positions: int = 0  # target positions that fit memory; 0: no limit known
    metrics_lines: int = 0  # lines of metrics.jsonl at the last save, and their SHA-256;
    metrics_checksum: str = ""
    precision: str = ""  # float32, bf16 or fp16
    seconds: float = 0.0  # trained at the last save
    # Since reported_step, on the device: summed objective and negative log-likelihood, in nats, and
    # their target tokens [3]; and a ring of flags, in which step n has the place n % length.
    losses: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    skipped: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.bool))
    loss_scale: Tensor = field(  # [2], on the device, of fp16: scale, and steps since it changed
        default_factory=lambda: torch.tensor([INITIAL_LOSS_SCALE, 0.0])
    )

    def add(self, losses: Tensor, skipped: Tensor) -> None:
        """Add the losses [3] of the current step and its flag [], without a host sync."""
        self.losses += losses
        self.skipped[self.step % len(self.skipped)] = skipped

    def skipped_steps(self) -> list[int]:
        """Return the skipped steps since `reported_step`."""
        flags = self.skipped.tolist()
        first = max(self.reported_step, self.step - len(flags)) + 1
        return [step for step in range(first, self.step + 1) if flags[step % len(flags)]]

    def move_to(self, device: torch.device, log_every: int) -> None:
        """Move the statistics to the device; leave room for the flags of `log_every` more steps."""
        precise = torch.float64 if has_float64(device) else torch.float32
        self.losses = self.losses.to(device, precise)
        self.loss_scale = self.loss_scale.to(device)
        self._set_skipped(self.skipped_steps(), log_every, device)

    def _set_skipped(self, steps: list[int], spare: int, device: torch.device | None) -> None:
        length = self.step - self.reported_step + spare
        self.skipped = torch.zeros(length, dtype=torch.bool, device=device)
        for step in steps:
            self.skipped[step % length] = True

    def to_header(self) -> Header:
        """Return the fields as JSON values; what the seed determines is under `progress`."""
        tensors = {"losses": self.losses.tolist(), "loss_scale": self.loss_scale.tolist()}
        values = {**vars(self), **tensors, "skipped": self.skipped_steps()}
        return {"seconds": values.pop("seconds"), "progress": values}

    @classmethod
    def from_header(cls, header: Header, path: Path) -> "Progress":
        """Return the progress that a header records; raises DamagedFile if it is malformed."""
        with tensor_file.header_errors(path):
            counters = dict(header["progress"])
            objective, nll, tokens = map(float, counters.pop("losses"))
            steps = list(counters.pop("skipped"))
            scale, streak = map(float, counters.pop("loss_scale", [INITIAL_LOSS_SCALE, 0]))
            progress = tensor_file.read_dataclass(cls, {"progress": counters}, "progress", path)
            progress.seconds = float(header["seconds"])
            progress.losses = torch.tensor([objective, nll, tokens], dtype=torch.float64)
            progress.loss_scale = torch.tensor([scale, streak])
            progress._set_skipped(steps, 1, None)
            return progress


class TrainingState(NamedTuple):
    """A training state, read and verified."""

    path: Path
    header: Header
    tensors: dict[str, Tensor]  # on the CPU; `restore_tensors` empties it
    progress: Progress
    limit: LengthLimit


class StateTensors(NamedTuple):
    """The tensors of a training, in its model and its optimizer."""

    weights: Mapping[str, Tensor]
    averages: Mapping[str, Tensor]  # empty without averaging
    optimizer: OptimizerState


def save_state(
    folder: Path, state: StateTensors, progress: Progress, limit: LengthLimit, provenance: Header
) -> None:
    """Write last.safetensors, the one before as previous.safetensors; raises RunError."""
    tensors = _weights_of(state)
    layout.check_weights(folder / layout.LAST, tensors)
    for name, moments in zip(state.weights, state.optimizer.values(), strict=True):
        tensors |= {f"{layout.MOMENTS}{key}.{name}": value for key, value in moments.items()}
    header = {_FORMAT: STATE_FORMAT, **progress.to_header(), "limit": asdict(limit), **provenance}
    with layout.writing(folder / layout.LAST):
        tensor_file.save_tensors(folder / layout.LAST, tensors, header, folder / layout.PREVIOUS)


def _weights_of(state: StateTensors) -> dict[str, Tensor]:
    weights = {f"weights.{name}": tensor for name, tensor in state.weights.items()}
    return weights | {f"averages.{name}": tensor for name, tensor in state.averages.items()}


def resumable(folder: Path) -> Path | None:
    """Return the file to resume from: the last state, or the previous one if that is missing."""
    paths = (folder / layout.LAST, folder / layout.PREVIOUS)
    return next(filter(Path.exists, paths), None)


def read_state(folder: Path) -> TrainingState | None:
    """Read and verify the state to resume from; None if nothing was saved; raises UserError."""
    path = resumable(folder)
    if path is None:
        return None
    with layout.with_recovery_hint(path):
        header, tensors = tensor_file.read_file(path)
        if "progress" not in header:
            raise DamagedFile(f"{path}: not a training state")
        state_format = header.get(_FORMAT)
        if state_format != STATE_FORMAT:
            text = f"a training state of format {state_format}; this version of seq2seq resumes"
            start = f"start another run from its best weights with {argument('init_from', folder)}"
            remedy = f"Train again with {argument('overwrite', True)}, or {start}"
            raise UserError(f"{path}: {text} format {STATE_FORMAT} only. {remedy}")
        tensor_file.check_finite(path, layout.model_tensors(tensors))
        progress = Progress.from_header(header, path)
        limit = tensor_file.read_dataclass(LengthLimit, header, "limit", path)
        return TrainingState(path, header, tensors, progress, limit)


def restore_tensors(state: TrainingState, into: StateTensors) -> None:
    """Copy a state into the tensors of a training, and release it; raises UserError for others."""
    path, tensors = state.path, state.tensors
    stored, weights = layout.model_tensors(tensors), _weights_of(into)
    tensor_file.check_shapes(path, stored, weights)
    moments: dict[str, dict[str, Tensor]] = {name: {} for name in into.weights}
    for key in (key for key in tensors if key not in stored):
        moment, _, name = key.removeprefix(layout.MOMENTS).partition(".")
        if name not in moments or tensors[key].shape not in ((), into.weights[name].shape):
            raise tensor_file.shape_mismatch(path, key)
        moments[name][moment] = tensors[key]
    tensor_file.copy_into(stored, weights, path)
    for parameter, values in zip(list(into.optimizer), moments.values(), strict=True):
        placed = {key: value.to(parameter.device, copy=True) for key, value in values.items()}
        into.optimizer[parameter] = placed
    tensors.clear()


def read_saved_metrics(folder: Path, progress: Progress) -> tuple[list[bytes], str | None]:
    """Return the lines of metrics.jsonl that a state counts, and what is lost. Raises OSError."""
    lines, counted = raw_lines(folder / layout.METRICS), progress.metrics_lines
    count = LineCount(lines[:counted])
    if (count.lines, count.checksum) == (counted, progress.metrics_checksum):
        return lines[:counted], None
    intact = lines_up_to(lines, progress.step)
    text = f"{len(intact):,} of {counted:,} lines are left"
    return intact, f"not as it was saved at step {progress.step} ({text})"


def restore_metrics(folder: Path, progress: Progress) -> str | None:
    """Leave in metrics.jsonl the lines that a state counts; return a note on damage."""
    lines, lost = read_saved_metrics(folder, progress)
    write_lines(folder / layout.METRICS, lines)
    text = f"{lost}. Damaged lines were removed; the weights are intact, and later figures follow"
    return lost and f"warning: {folder / layout.METRICS}: {text}"


def text_checksums(train: str, valid: str) -> dict[str, str]:
    """Return what a state records of the content of its texts, given their checksums."""
    return {RECORDED_TEXT: train, f"{_TEXT}valid": valid}


def check_texts(folder: Path, header: Header, checksums: Mapping[str, str]) -> None:
    """Raise UserError for another text than the run was trained on, in whatever files it is."""
    recorded = recorded_digests(header)
    for key, checksum in checksums.items():
        if recorded.get(key, checksum) != checksum:
            split = key.removeprefix(_TEXT)
            remedy = f"Restore that text, or {another_run(folder)}"
            raise UserError(f"data.{split}: is not the text that {folder} was trained on. {remedy}")


def recorded_digests(header: Header) -> dict[str, str]:
    """Return the checksums of the training text and its cache that a run has recorded."""
    recorded = header.get("data")
    if not isinstance(recorded, dict):
        return {}
    return {str(key): value for key, value in recorded.items() if isinstance(value, str)}


def another_run(folder: Path, weights_fit: bool = True) -> str:
    """Return the way to train on with a change that a resumed run refuses."""
    again = f"train again ({argument('overwrite', True)}, or another run_dir)"
    if not (weights_fit and (folder / layout.BEST).exists()):
        return again
    start = "start another run (another run_dir) from its best weights: "
    return f"{again}, or {start}{argument('init_from', folder)}"
