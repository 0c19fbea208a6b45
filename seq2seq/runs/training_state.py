"""Training state: all that resuming needs, in last.safetensors and previous.safetensors.

Weights, averages and moments are tensors; progress, length limit and provenance a header.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config
from seq2seq.data.length_limit import LengthLimit
from seq2seq.runs import checkpoint, layout, run_config, run_folder, tensor_file
from seq2seq.runs.run_config import Header
from seq2seq.runs.run_folder import Counters
from seq2seq.runtime.device import has_float64
from seq2seq.runtime.locks import FolderLock, exclusive_lock
from seq2seq.text.source_profile import SourceProfile

INITIAL_LOSS_SCALE = 2.0**12  # in fp16

OptimizerState = MutableMapping[Tensor, dict[str, Tensor]]  # moments of each parameter


@dataclass(eq=False)
class Progress(Counters):
    """Counters and statistics of a training; the seed determines all of them but `seconds`."""

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

    def take_losses(self) -> list[float]:
        """Return the summed losses [3], and begin new sums."""
        losses: list[float] = self.losses.tolist()
        self.losses.zero_()
        return losses

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
            progress = run_folder.read_counters(cls, header, path)
            tree = header["progress"]
            objective, nll, tokens = map(float, tree["losses"])
            scale, streak = map(float, tree.get("loss_scale", [INITIAL_LOSS_SCALE, 0]))
            progress.losses = torch.tensor([objective, nll, tokens], dtype=torch.float64)
            progress.loss_scale = torch.tensor([scale, streak])
            progress._set_skipped(list(tree["skipped"]), 1, None)
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
    layout.check_weights(folder / layout.LAST, {**state.weights, **state.averages})
    tensors = _weights_of(state)
    for name, moments in zip(state.weights, state.optimizer.values(), strict=True):
        tensors |= {f"{layout.MOMENTS}{key}.{name}": value for key, value in moments.items()}
    header = {
        run_folder.FORMAT: run_folder.STATE_FORMAT,
        **progress.to_header(),
        "limit": asdict(limit),
        **provenance,
    }
    with layout.writing(folder / layout.LAST):
        tensor_file.save_tensors(folder / layout.LAST, tensors, header, folder / layout.PREVIOUS)


def _weights_of(state: StateTensors) -> dict[str, Tensor]:
    weights = {f"weights.{name}": tensor for name, tensor in state.weights.items()}
    return weights | {f"averages.{name}": tensor for name, tensor in state.averages.items()}


def read_state(folder: Path) -> TrainingState | None:
    """Read and verify the state to resume from; None if nothing was saved; raises UserError."""
    path = run_folder.resumable(folder)
    if path is None:
        return None
    with layout.with_recovery_hint(path):
        header, tensors = tensor_file.read_file(path)
        run_folder.check_format(path, header)
        tensor_file.check_finite(path, layout.model_tensors(tensors))
        progress = Progress.from_header(header, path)
        limit = tensor_file.read_record(LengthLimit, header, "limit", path)
        return TrainingState(path, header, tensors, progress, limit)


def recorded_source(state: TrainingState) -> SourceProfile | None:
    """Return the source profile that a run initialised from another has so far; None without."""
    if run_config.SOURCE not in state.header:
        return None
    return tensor_file.read_record(SourceProfile, state.header, run_config.SOURCE, state.path)


def restore_tensors(state: TrainingState, into: StateTensors) -> None:
    """Copy a state into the tensors of a training, and release it; raises UserError for others."""
    path = state.path
    tensors = state.tensors
    stored_weights = layout.model_tensors(tensors)
    weights = _weights_of(into)
    tensor_file.check_shapes(path, stored_weights, weights)
    moments: dict[str, dict[str, Tensor]] = {name: {} for name in into.weights}
    for key in (key for key in tensors if key not in stored_weights):
        moment, _, name = key.removeprefix(layout.MOMENTS).partition(".")
        if name not in moments or tensors[key].shape not in ((), into.weights[name].shape):
            raise tensor_file.shape_mismatch(path, key)
        moments[name][moment] = tensors[key]
    tensor_file.copy_into(stored_weights, weights, path)
    for parameter, values in zip(list(into.optimizer), moments.values(), strict=True):
        values_on_device = {
            key: value.to(parameter.device, copy=True) for key, value in values.items()
        }
        into.optimizer[parameter] = values_on_device
    tensors.clear()


class OpenFolder(NamedTuple):
    """A run folder that this process has locked, if others might train there."""

    lock: FolderLock | None
    state: TrainingState | None  # the state to resume from; None for a run to start


@contextmanager
def open_folder(config: Config, resume: bool, overwrite: bool) -> Iterator[OpenFolder]:
    """Lock the run folder, check it and read the state to resume from; raises UserError."""
    run_folder.check_place(config.run_dir)
    with exclusive_lock(config.run_dir) as lock:
        run_folder.check_folder(config, resume, overwrite)
        checkpoint.check_score_class(config)
        state = read_state(config.run_dir) if resume else None
        if state is not None:
            run_folder.check_config(config, state.path, state.header)
        yield OpenFolder(lock, state)
