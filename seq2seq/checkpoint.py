"""The run folder: config, vocabulary, weights, training state; a write is whole or did not happen.

config.yaml          the resolved config
vocabulary/          joint.model, or src.model and tgt.model
best.safetensors     the weights that translate, and what search must know
last.safetensors     weights, averages and optimizer moments as tensors, counters in the header
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seq2seq import __version__
from seq2seq.build import build_model
from seq2seq.config import Config, dump_config, load_config
from seq2seq.errors import RunError, UserError
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.vocabulary import Vocabularies, load_vocabularies, save_vocabularies

BEST, LAST, CONFIG, VOCABULARY = "best.safetensors", "last.safetensors", "config.yaml", "vocabulary"
_HEADER = "seq2seq"


@dataclass(frozen=True)
class LengthLimit:
    """How long a translation may get: `ratio * source length + extra` pieces, learnt from data."""

    ratio: float
    extra: int

    def __call__(self, src_length: int) -> int:
        """The most pieces, END not counted, for a source of that many."""
        return max(1, int(self.ratio * src_length) + self.extra)


@dataclass
class Progress:
    """Where training stands; all of it follows from the seed."""

    step: int = 0  # updates taken
    epoch: int = 0
    batch: int = 0  # batches of this epoch already used
    tokens: int = 0  # target tokens seen
    best_bleu: float = -1.0
    best_step: int = 0
    validated_step: int = 0  # of the last validation
    worse: int = 0  # validations since the best
    loss_sum: float = 0.0  # since the last line of metrics, nats
    loss_tokens: int = 0
    reported_step: int = 0  # of the last line of metrics
    untaken: list[int] = field(default_factory=list)  # updates since then that were not taken
    untaken_in_a_row: int = 0  # up to then
    rate_factor: float = 1.0  # halved each time that training had to go back


def create_run(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Begin a run folder: its config and vocabulary."""
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_vocabularies(vocabularies, folder / VOCABULARY)
    update_config(folder, config)


def update_config(folder: Path, config: Config) -> None:
    """Put a config in the place of the run's, as resuming with other free keys does."""
    with _writing(folder / CONFIG):
        _write_whole(folder / CONFIG, dump_config(config).encode())


def read_config(folder: Path) -> Config:
    """The config of a run folder; raises UserError where it is none."""
    if folder.is_file():
        raise UserError(f"{folder}: is a file; give the run folder, {folder.parent}")
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; `seq2seq train CONFIG` makes one")
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder}: not a run folder, it has no {CONFIG}")
    return load_config(folder / CONFIG)[0]


def save_best(
    folder: Path, weights: dict[str, Tensor], limit: LengthLimit, progress: Progress
) -> None:
    """Write the weights that translate."""
    header = {"limit": asdict(limit), "step": progress.step, "bleu": progress.best_bleu}
    _save(folder / BEST, weights, header)


def load_best(
    folder: Path, device: torch.device
) -> tuple[Seq2Seq, Vocabularies, LengthLimit, Config]:
    """What a run folder translates with; raises UserError where it cannot."""
    config = read_config(folder)
    vocabularies = load_vocabularies(folder / VOCABULARY)
    if not (folder / BEST).exists():
        raise UserError(f"{folder}: has no {BEST} yet; it is written at the first validation")
    weights, header = _load(folder / BEST, device)
    model = empty_model(config, vocabularies).to(device).requires_grad_(False)
    _copy(weights, own_weights(model), folder / BEST)
    with _reading_header(folder / BEST):
        limit = LengthLimit(**header["limit"])
    return model.eval(), vocabularies, limit, config


def empty_model(config: Config, vocabularies: Vocabularies) -> Seq2Seq:
    """The model of a config, its weights yet to be learnt or loaded."""
    return build_model(
        config.model, len(vocabularies.src), len(vocabularies.tgt), vocabularies.joint
    )


def own_weights(model: Seq2Seq) -> dict[str, Tensor]:
    """The model's weights by name, a tied one once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_last(
    folder: Path,
    weights: dict[str, Tensor],
    averages: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    limit: LengthLimit,
    seconds: float,
) -> None:
    """Write all that training goes on from; `seconds` is the time trained so far."""
    tensors = {f"weights.{name}": tensor for name, tensor in weights.items()}
    tensors |= {f"averages.{name}": tensor for name, tensor in averages.items()}
    for name, parameter in zip(weights, optimizer.param_groups[0]["params"], strict=True):
        for key, value in optimizer.state[parameter].items():
            if value is not None:
                tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value)
    header = {"progress": asdict(progress), "limit": asdict(limit), "seconds": seconds}
    _save(folder / LAST, tensors, header)


def load_last(
    folder: Path,
    model: Seq2Seq,
    averages: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> tuple[Progress, LengthLimit, float]:
    """Put a saved state into model, averages and optimizer, in place.

    Returns progress, limit and the seconds trained.
    """
    path = folder / LAST
    if not path.exists():
        raise UserError(f"{folder}: nothing to resume, it has no {LAST}; train without --resume")
    tensors, header = _load(path, device)
    groups: dict[str, dict[str, Tensor]] = {"weights": {}, "averages": {}, "optimizer": {}}
    for key, tensor in tensors.items():
        group, _, name = key.partition(".")
        groups.setdefault(group, {})[name] = tensor
    with _reading_header(path):
        progress, limit = Progress(**header["progress"]), LengthLimit(**header["limit"])
        seconds = float(header["seconds"])
    _copy(groups["weights"], own_weights(model), path)
    _copy(groups["averages"], averages, path)
    for name, parameter in zip(
        own_weights(model), optimizer.param_groups[0]["params"], strict=True
    ):
        suffix = f".{name}"
        optimizer.state[parameter] = {
            key.removesuffix(suffix): value
            for key, value in groups["optimizer"].items()
            if key.endswith(suffix) and "." not in key.removesuffix(suffix)
        }
    return progress, limit, seconds


def _copy(tensors: dict[str, Tensor], into: dict[str, Tensor], path: Path) -> None:
    """Copy tensors by name; raises UserError where names or shapes are not those expected."""
    shapes, expected = ({k: t.shape for k, t in each.items()} for each in (tensors, into))
    if shapes != expected:
        name = next(k for k in {**expected, **shapes} if shapes.get(k) != expected.get(k))
        raise UserError(f"{path}: {name} does not fit the config beside it; was either changed?")
    with torch.no_grad():
        for name, tensor in tensors.items():
            into[name].copy_(tensor)


def _save(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    aside = path.with_name(path.name + ".part")
    metadata = {_HEADER: json.dumps({"version": __version__, **header})}
    with _writing(path):
        try:
            save_file({key: t.contiguous() for key, t in tensors.items()}, aside, metadata)
            shutil.copymode(path.with_name(CONFIG), aside)  # safetensors lets only the owner read
            _replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


def _load(path: Path, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get(_HEADER, "null"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise UserError(
            f"{path}: cannot be read, it is damaged or no checkpoint ({error})"
        ) from None
    if header is None:
        raise UserError(f"{path}: not a checkpoint of seq2seq")
    return tensors, header


@contextmanager
def _reading_header(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: its header is damaged or of another version of seq2seq ({error!r})"
        ) from None


def _write_whole(path: Path, content: bytes) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_bytes(content)
    _replace(aside, path)


def _replace(aside: Path, path: Path) -> None:
    """Sync, then rename: whatever happens, `path` is the old file or the new one, whole."""
    with aside.open("rb+") as file:
        os.fsync(file.fileno())
    aside.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise RunError(
            f"{path}: cannot be written ({error}); what was there before is whole"
        ) from None
