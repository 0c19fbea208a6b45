"""Checkpoints: write and load the config, the vocabulary and the weights of a run folder.

Every write is atomic. Weights carry checksums of themselves and the vocabulary, and config keys.
`tensor_file.py` verifies those of a file, and says where one is damaged.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2seq.config.schema import Config, changed_keys, dump_config, with_paths
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary import vocabulary
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.model.builder import build_model, check_score
from seq2seq.model.external_score import ScoreError, UntrustedScore
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs import layout, run_config, tensor_file
from seq2seq.runs.run_config import Header, StoredRun
from seq2seq.runtime import errors
from seq2seq.runtime.files import LONE_SURROGATE, atomic_write


@dataclass(frozen=True)
class LoadedRun(StoredRun):
    """Weights of a run and all that belongs to them, for translation."""

    model: Seq2Seq


def create_run(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Create a run folder with its config and vocabulary."""
    with layout.writing(folder, folder):
        folder.mkdir(parents=True, exist_ok=True)
    update_config(folder, config)
    with layout.writing(folder / layout.VOCABULARY):
        vocabulary.save_vocabularies(vocabularies, folder / layout.VOCABULARY)


def update_config(folder: Path, config: Config) -> None:
    """Write the config of a run."""
    write_config(folder / layout.CONFIG, config)


def write_config(path: Path, config: Config) -> None:
    """Write a config with absolute paths: it may be used from any folder. Raises RunError."""
    if LONE_SURROGATE.search(str(Path.cwd())) is None:  # YAML cannot hold a name that is not UTF-8
        config = with_paths(config, Path.absolute)
    with layout.writing(path):
        atomic_write(path, dump_config(config).encode())


def weights_header(limit: LengthLimit, step: int, bleu: float | None, provenance: Header) -> Header:
    """Return the header of a file of weights; `bleu` is the validation BLEU at this step."""
    return {"limit": asdict(limit), "step": step, "bleu": bleu, **provenance}


def save_weights(path: Path, weights: Mapping[str, Tensor], header: Header) -> None:
    """Write the weights of a step; raises RunError if they are not finite, or writing fails."""
    layout.check_weights(path, weights)
    with layout.writing(path):
        tensor_file.save_tensors(path, weights, header)


def save_snapshot(folder: Path, weights: Mapping[str, Tensor], header: Header, keep: int) -> None:
    """Save the weights of a step, then remove all but the `keep` newest snapshots."""
    save_weights(folder / f"step-{header['step']}.safetensors", weights, header)
    layout.remove(layout.snapshots(folder)[:-keep])


def load_model(folder: Path, device: torch.device, name: str = layout.BEST) -> LoadedRun:
    """Load a run's best weights, or another of its files, for translation; raises UserError."""
    run, weights = run_config.read_run(folder, name, tensor_file.read_file)
    with layout.with_recovery_hint(run.path):
        model = new_model(run.config, run.vocabularies, "meta")
        tensor_file.check_shapes(run.path, weights, named_weights(model))
        tensor_file.check_finite(run.path, weights)
    elsewhere = "" if device.type == "cpu" else f", or use {errors.argument('device', 'cpu')}"
    with _enough_memory(f"free memory{elsewhere}"):
        empty_weights = {
            key: torch.empty(weight.shape, device=device) for key, weight in weights.items()
        }
    tensor_file.copy_into(weights, empty_weights, run.path)
    _put_weights(model, empty_weights)
    return LoadedRun(**vars(run), model=model.eval())


def best_is_intact(folder: Path, config: Config, vocabularies: Vocabularies) -> bool:
    """Return whether the best weights are undamaged, finite and fit config and vocabulary."""
    path = folder / layout.BEST
    try:
        header, weights = tensor_file.read_file(path)
        tensor_file.check_finite(path, weights)
        run_config.check_model_keys(path, header, config, folder / layout.CONFIG)
    except errors.UnreadableFile:
        raise
    except errors.UserError:
        return False
    return bool(header.get("vocabulary") == vocabulary.checksums_of(vocabularies))


def new_model(config: Config, vocabularies: Vocabularies, device: str = "cpu") -> Seq2Seq:
    """Build a model with random weights, or shapes only on "meta"; raises TooLarge."""
    sizes = len(vocabularies.src), len(vocabularies.tgt)
    remedy = "lower model.hidden_size, embedding_size or layers"
    with _enough_memory(remedy), _score_errors(), torch.device(device):
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
    except UntrustedScore as error:
        remedy = f"if you trust it, add {errors.argument('scores', [error.name])}"
        raise errors.UserError(f"model.score: {error}; {remedy}") from None
    except ScoreError as error:
        raise errors.UserError(f"model.score: {error}") from None


@contextmanager
def _enough_memory(remedy: str) -> Iterator[None]:
    """Convert a failed allocation into TooLarge."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if not (errors.is_out_of_memory(error) or "calculation overflowed" in reason):
            raise
        text = f"model: too large for the memory of this machine ({reason}); {remedy}"
        raise errors.TooLarge(text) from None


def _put_weights(model: Seq2Seq, weights: Mapping[str, Tensor]) -> None:
    """Give a model on "meta" its weights, without gradients; tied weights stay tied."""
    weights_on_device = {
        parameter: nn.Parameter(weights[name], requires_grad=False)
        for name, parameter in model.named_parameters()
    }
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, weights_on_device[parameter])


def read_warm_start(folder: Path, config: Config) -> LoadedRun:
    """Load the best weights of a run to start one of this config; raises UserError."""
    if folder.resolve() == config.run_dir.resolve():
        text = "is run_dir itself; set another run_dir"
        raise errors.UserError(text, argument="init_from", value=folder)
    try:
        run = load_model(folder, torch.device("cpu"))
    except errors.UserError as error:
        raise type(error)(errors.argument("init_from", error)) from None
    changes = run_config.that_change_weights(changed_keys(run.config, config), config)
    models = config.vocabulary.model
    if models and models != run.config.vocabulary.model:
        changes.append("vocabulary.model: the run has its own vocabulary")
    listed = config.vocabulary.listed_names
    if listed and listed != run.config.vocabulary.listed_names:
        changes.append("vocabulary.names: the run has its own names")
    if changes:
        lines = ["its weights do not fit the config; set these keys to its values:"]
        lines += [f"  {change}" for change in changes]
        raise errors.UserError(*lines, argument="init_from", value=folder)
    checksums = vocabulary.checksums_of(run.vocabularies)
    sampling = config.vocabulary.sampling
    vocabularies = vocabulary.load_vocabularies(folder / layout.VOCABULARY, sampling, checksums)
    return replace(run, vocabularies=vocabularies)


def start_note(start: LoadedRun, config: Config) -> str:
    """Return a note for the log on the run that one of this config is initialised from."""
    note = f"initialised from the vocabulary and the best weights of {start.path.parent}"
    direction = start.config.data.direction
    return note if direction == config.data.direction else f"{note}, which translates {direction}"
