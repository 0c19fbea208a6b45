"""Checkpoints: write and load the config, the vocabulary and the weights of a run folder.

Every write is atomic. Weights carry checksums of themselves and of the vocabulary, and the config
keys that they depend on.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import (
    Config,
    DecodingConfig,
    dump_config,
    read_config_file,
    with_paths,
)
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.files import checksums_of, save_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.model.builder import build_model, check_score
from seq2seq.model.external_score import ScoreError
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs import tensor_file
from seq2seq.runs.exported_files import DESCRIPTION
from seq2seq.runs.layout import (
    BEST,
    CONFIG,
    LAST,
    PREVIOUS,
    VOCABULARY,
    check_weights,
    recovery_hint,
    snapshot_step,
    snapshots,
    with_recovery_hint,
    writing,
)
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runs.provenance import (
    EARLIER_VERSION,
    Header,
    check_model_keys,
    recorded_vocabularies,
)
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UnreadableFile, UserError, is_out_of_memory
from seq2seq.runtime.files import LONE_SURROGATE, atomic_write, check_paths, check_readable
from seq2seq.runtime.suggestions import suggest_file

SOURCE = "source"  # header field of the source profile
# Remedies for a model that does not fit into memory.
_TO_TRAIN = "lower model.hidden_size, embedding_size or layers"
_TO_LOAD = "free memory"


def create_run(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Create a run folder with its config and vocabulary."""
    with writing(folder, folder):
        folder.mkdir(parents=True, exist_ok=True)
    update_config(folder, config)
    update_vocabularies(folder, vocabularies)


def update_config(folder: Path, config: Config) -> None:
    """Replace the config of a run: a resumed run may change some keys.

    Paths are made absolute, so that the run finds its texts from any working directory.
    """
    with writing(folder / CONFIG):
        atomic_write(folder / CONFIG, dump_config(_absolute(config)).encode())


def _absolute(config: Config) -> Config:
    if LONE_SURROGATE.search(str(Path.cwd())):
        return config  # YAML cannot hold a name that is not UTF-8
    return with_paths(config, Path.absolute)


def _relocated(config: Config, folder: Path) -> Config:
    """Return the config of a run with the paths of its texts, if they were moved with the run.

    If a file does not exist, one at the same place relative to the run folder replaces it.
    """

    def find(path: Path) -> Path:
        if os.path.exists(path):  # noqa: PTH110 -- False, too, for what may not be searched
            return path
        with suppress(ValueError):  # on another drive
            moved = os.path.normpath(folder.absolute() / os.path.relpath(path, config.run_dir))
            return Path(moved) if os.path.isfile(moved) else path  # noqa: PTH113
        return path

    return with_paths(config, find).model_copy(update={"run_dir": config.run_dir})


def update_vocabularies(folder: Path, vocabularies: Vocabularies) -> None:
    """Write the vocabulary of a run, in place of a damaged one."""
    with writing(folder / VOCABULARY):
        save_vocabularies(vocabularies, folder / VOCABULARY)


def read_config(folder: Path) -> Config:
    """Load the config of a run folder; raises UserError if there is none."""
    if folder.is_file():
        raise UserError(f"{folder}: {_kind_of_file(folder)}")
    if not folder.is_dir():
        similar = suggest_file(folder) if folder.parent.is_dir() else ""
        hint = similar or "; `seq2seq train CONFIG` creates one"
        raise UserError(f"{folder}: no such run folder{hint}")
    check_paths(folder / CONFIG)
    check_readable(folder / CONFIG)
    if (folder / DESCRIPTION).is_file():
        raise UserError(
            f"{folder}: is an exported model, which translates only; give the run folder that it "
            "was exported from"
        )
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: not a run folder, it has no {CONFIG}")
    try:
        return _relocated(read_config_file(folder / CONFIG).config, folder)
    except ConfigError as error:
        remedy = "`seq2seq train CONFIG --resume` writes it again"
        if any(each.renamed for each in error.issues):
            remedy = EARLIER_VERSION
        elif newer := _newer_version(folder):
            remedy = newer
        raise UserError(f"{'; '.join(error.lines)} ({remedy})") from None


def _kind_of_file(path: Path) -> str:
    """Describe a file that was given as run folder, with the folder that was probably meant."""
    if (path.parent / CONFIG).is_file() and (path.parent / VOCABULARY).is_dir():
        return f"is a file; give the run folder, {path.parent}"
    if path.suffix in (".yaml", ".yml"):
        with suppress(ConfigError):
            run = read_config_file(path).config.run_dir
            if os.path.isdir(run):  # noqa: PTH112 -- False, too, for a name that is too long
                return f"is a config; give its run folder, {run}"
            train = f"`seq2seq train {shlex.quote(str(path))}`"
            return f"is a config; {train} creates its run folder, {run}"
    return "is a file, not a run folder; `seq2seq train CONFIG` creates one"


def _newer_version(folder: Path) -> str | None:
    """Say that a newer version wrote the checkpoints of a run; None if it did not."""
    paths = [*(folder / name for name in (BEST, LAST, PREVIOUS)), *snapshots(folder)]
    return next(filter(None, map(tensor_file.newer_version, paths)), None)


def overridden_decoding(folder: Path, config: Config, overrides: Iterable[str]) -> DecodingConfig:
    """Return the `decoding` section of a run with overrides; raises UserError for other keys."""
    overrides = argument_types.text_list(overrides, "overrides", "such as decoding.beam_size=3")
    for each in overrides:
        if not each.startswith("decoding."):
            raise UserError(
                f"{each}: a trained run takes other values of decoding.* keys only, such as "
                "decoding.length_penalty=0.6"
            )
    if not overrides:
        return config.decoding
    try:
        return read_config_file(folder / CONFIG, overrides).config.decoding
    except ConfigError as error:
        lines = (line.strip() for line in str(error).splitlines())
        raise UserError("; ".join(lines)) from None


def save_weights(
    path: Path,
    weights: Mapping[str, Tensor],
    limit: LengthLimit,
    step: int,
    bleu: float | None,
    provenance: Header,
) -> None:
    """Write the weights of a step, with its validation BLEU and the length limit of search.

    Raises RunError if they are not finite, or if the file cannot be written.
    """
    check_weights(path, weights)
    header = {"limit": asdict(limit), "step": step, "bleu": bleu, **provenance}
    with writing(path):
        tensor_file.save_tensors(path, weights, header)


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
    _remove(snapshots(folder)[:-keep])


def remove_snapshots(folder: Path, after: int) -> None:
    """Remove the snapshots of later steps, which training will repeat."""
    _remove([path for path in snapshots(folder) if (snapshot_step(path) or 0) > after])


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with writing(path):
            path.unlink(missing_ok=True)


def load_model(
    folder: Path, device: torch.device, name: str = BEST
) -> tuple[Seq2Seq, Vocabularies, LengthLimit, Config]:
    """Load a run's best weights, or those of another of its files, for translation.

    Raises UserError if files are missing or damaged, do not belong together, or if a weight is not
    finite.
    """
    config, path = read_config(folder), folder / name
    check_exists(path)
    with with_recovery_hint(path):
        header, weights = tensor_file.read_file(path)
        limit = tensor_file.read_dataclass(LengthLimit, header, "limit", path)
        check_model_keys(path, header, config, folder / CONFIG)
        vocabularies = recorded_vocabularies(path, header, folder / VOCABULARY)
        model = new_model(config, vocabularies, "meta")
        tensor_file.check_shapes(path, weights, named_weights(model))
        tensor_file.check_finite(path, weights)
    with _enough_memory(_TO_LOAD if device.type == "cpu" else f"{_TO_LOAD}, or use --device cpu"):
        own = {name: torch.empty(each.shape, device=device) for name, each in weights.items()}
    tensor_file.copy_into(weights, own, path)
    _put_weights(model, own)
    return model.eval(), vocabularies, limit, config


def read_vocabularies(folder: Path) -> Vocabularies:
    """Load the vocabularies of a run's best weights; raises UserError as `load_model` does."""
    path = folder / BEST
    check_exists(path)
    with with_recovery_hint(path):
        header, _ = tensor_file.read_header(path)
        return recorded_vocabularies(path, header, folder / VOCABULARY)


def check_exists(path: Path) -> None:
    """Raise UserError if a run has no weights of this name."""
    if path.exists():
        return
    if path.name != BEST:
        raise UserError(f"{path.parent}: has no {path.name}")
    if any("valid_loss" in line for line in read_metrics(path.parent)):
        raise UserError(f"{path.parent}: {BEST} is missing. {recovery_hint(path.parent, BEST)}")
    raise UserError(f"{path.parent}: has no {BEST} yet; it is written at the first validation")


def read_source_profile(folder: Path, name: str = BEST) -> SourceProfile:
    """Read what a run's weights record of the training text; earlier versions recorded nothing."""
    path = folder / name
    with with_recovery_hint(path):
        header, _ = tensor_file.read_header(path)
        if SOURCE not in header:
            return SourceProfile()
        return tensor_file.read_dataclass(SourceProfile, header, SOURCE, path)


def best_is_intact(folder: Path, config: Config, vocabularies: Vocabularies) -> bool:
    """Return whether the best weights are undamaged, finite and fit config and vocabulary."""
    path = folder / BEST
    try:
        header, weights = tensor_file.read_file(path)
        tensor_file.check_finite(path, weights)
        check_model_keys(path, header, config, folder / CONFIG)
    except UnreadableFile:
        raise
    except UserError:
        return False
    return bool(header.get("vocabulary") == checksums_of(vocabularies))


def new_model(config: Config, vocabularies: Vocabularies, device: str = "cpu") -> Seq2Seq:
    """Build the model of a config with random weights, or with shapes only on device "meta".

    Raises UserError if it does not fit memory.
    """
    sizes = len(vocabularies.src), len(vocabularies.tgt)
    with _enough_memory(_TO_TRAIN), _score_errors(), torch.device(device):
        longest = config.data.max_length
        return build_model(config.model, *sizes, vocabularies.joint, longest)


def check_score_class(config: Config) -> None:
    """Raise UserError if `model.score` is a class from outside that does not fit."""
    with _score_errors():
        check_score(config.model)


@contextmanager
def _score_errors() -> Iterator[None]:
    try:
        yield
    except ScoreError as error:
        raise UserError(f"model.score: {error}") from None


@contextmanager
def _enough_memory(remedy: str) -> Iterator[None]:
    """Convert a failed allocation into a UserError."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if not (is_out_of_memory(error) or "calculation overflowed" in reason):
            raise
        raise UserError(
            f"model: too large for the memory of this machine ({reason}); {remedy}"
        ) from None


def _put_weights(model: Seq2Seq, weights: Mapping[str, Tensor]) -> None:
    """Give a model on "meta" its weights, without gradients; tied weights stay tied."""
    named = model.named_parameters()
    own = {each: nn.Parameter(weights[name], requires_grad=False) for name, each in named}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, own[parameter])
