"""The run folder: config, vocabulary, weights, training state; a write is whole or did not happen.

config.yaml            the resolved config
vocabulary/            joint.model, or src.model and tgt.model
best.safetensors       the weights that translate, and what search must know
step-N.safetensors     the same of other validations, as many as training.keep says
last.safetensors       weights, averages and optimizer moments as tensors, counters in the header
previous.safetensors   the last but one; it stands in where last.safetensors is not there

The weights carry checksums of themselves and of the vocabulary, and what matters of the config.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import Config, dump_config, load_config
from seq2seq.data.vocabulary import Vocabularies, checksums_of, save_vocabularies
from seq2seq.model.builder import build_model
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.provenance import Header, check_model_keys, recorded_vocabularies
from seq2seq.runs.tensor_file import (
    check_shapes,
    copy_into,
    read_dataclass,
    read_file,
    read_header,
    read_tensors,
    save_tensors,
    shapes_of,
)
from seq2seq.runtime.errors import DamagedFile, RunError, UserError
from seq2seq.runtime.files import atomic_write

BEST, LAST, PREVIOUS = "best.safetensors", "last.safetensors", "previous.safetensors"
CONFIG, VOCABULARY = "config.yaml", "vocabulary"


@dataclass(frozen=True)
class LengthLimit:
    """How long a translation may get: `ratio * source length + extra` pieces, learnt from data."""

    ratio: float
    extra: int

    def __post_init__(self) -> None:
        if not (0 <= self.ratio < 1e6 and 0 <= self.extra < 1e6):
            raise ValueError("a length limit")

    def __call__(self, src_length: int) -> int:
        """The most pieces, END not counted, for a source of that many."""
        return max(1, int(self.ratio * src_length) + self.extra)


def create_run(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Begin a run folder: its config and vocabulary."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    update_config(folder, config)
    update_vocabularies(folder, vocabularies)


def update_config(folder: Path, config: Config) -> None:
    """Put a config in the place of the run's, as resuming with other free keys does."""
    with writing(folder / CONFIG):
        atomic_write(folder / CONFIG, dump_config(config).encode())


def update_vocabularies(folder: Path, vocabularies: Vocabularies) -> None:
    """Put a vocabulary in the place of the run's."""
    with writing(folder / VOCABULARY):
        save_vocabularies(vocabularies, folder / VOCABULARY)


def read_config(folder: Path) -> Config:
    """The config of a run folder; raises UserError where it is none."""
    if folder.is_file():
        raise UserError(f"{folder}: is a file; give the run folder, {folder.parent}")
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; `seq2seq train CONFIG` makes one")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: not a run folder, it has no {CONFIG}")
    try:
        return load_config(folder / CONFIG, accept_renamed=True)[0]
    except ConfigError as error:
        raise UserError(
            f"{'; '.join(line.strip() for line in str(error).splitlines())} "
            "(`seq2seq train CONFIG --resume` writes it anew)"
        ) from None


def save_weights(
    path: Path,
    weights: Mapping[str, Tensor],
    limit: LengthLimit,
    step: int,
    bleu: float | None,
    provenance: Header,
) -> None:
    """Write weights that can translate, of this update and validation BLEU."""
    header = {"limit": asdict(limit), "step": step, "bleu": bleu, **provenance}
    with writing(path):
        save_tensors(path, weights, header)


def load_best(
    folder: Path, device: torch.device, name: str = BEST
) -> tuple[Seq2Seq, Vocabularies, LengthLimit, Config]:
    """What a run folder translates with, by its best weights or those in another file of it.

    Raises UserError where it cannot.
    """
    config, path = read_config(folder), folder / name
    if not path.exists():
        when = " yet; it is written at the first validation" if name == BEST else ""
        raise UserError(f"{folder}: has no {name}{when}")
    with with_recovery_hint(path):
        header, shapes = read_header(path)
        limit = read_dataclass(LengthLimit, header, "limit", path)
        check_model_keys(path, header, config, folder / CONFIG)
        vocabularies = recorded_vocabularies(path, header, folder / VOCABULARY)
        model = new_model(config, vocabularies, "meta")
        check_shapes(path, shapes, shapes_of(own_weights(model)))
        weights = read_tensors(path)
    with _enough_memory():
        own = {name: torch.empty(shape, device=device) for name, shape in shapes.items()}
    copy_into(weights, own, path)
    _put_weights(model, own)
    return model.eval(), vocabularies, limit, config


def best_is_whole(folder: Path, config: Config, vocabularies: Vocabularies) -> bool:
    """Whether the run has weights that translate, of this model, without damage."""
    path = folder / BEST
    try:
        header, _ = read_file(path)
        check_model_keys(path, header, config, folder / CONFIG)
    except UserError:
        return False
    return bool(header.get("vocabulary") == checksums_of(vocabularies))


def is_whole(path: Path) -> bool:
    """Whether a file of weights is there, can be used here, and is all that was written."""
    try:
        read_tensors(path)
    except UserError:
        return False
    return True


def new_model(config: Config, vocabularies: Vocabularies, device: str = "cpu") -> Seq2Seq:
    """The model of a config, its weights yet to be learnt or loaded; on "meta" it has only shapes.

    Raises UserError where it is too large.
    """
    sizes = len(vocabularies.src), len(vocabularies.tgt)
    with _enough_memory(), torch.device(device):
        longest = config.data.max_length
        return build_model(config.model, *sizes, vocabularies.joint, longest)


@contextmanager
def _enough_memory() -> Iterator[None]:
    """Raises UserError where what is made inside does not fit into memory."""
    try:
        yield
    except RuntimeError as error:  # torch has no other for want of memory
        raise UserError(
            f"model: too large for the memory of this machine ({str(error).splitlines()[0]}); "
            "lower model.hidden_size, embedding_size or num_layers"
        ) from None


def _put_weights(model: Seq2Seq, weights: Mapping[str, Tensor]) -> None:
    """Give a model that has only shapes its weights, to translate with; what is tied stays tied."""
    named = model.named_parameters()
    own = {each: nn.Parameter(weights[name], requires_grad=False) for name, each in named}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, own[parameter])


def own_weights(model: Seq2Seq) -> dict[str, Tensor]:
    """The model's weights by name, a tied one once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@contextmanager
def with_recovery_hint(path: Path) -> Iterator[None]:
    """Where a file of weights is damaged, say which is whole and what can be done with it."""
    try:
        yield
    except DamagedFile as error:
        raise DamagedFile(f"{error}; {_way_out(path.parent, path.name)}") from None


def _way_out(folder: Path, damaged: str) -> str:
    whole = [name for name in (LAST, PREVIOUS, BEST) if name != damaged and is_whole(folder / name)]
    resume = "`seq2seq train CONFIG --resume` goes on from it"
    if damaged == BEST and LAST in whole:
        return f"{LAST} is whole: {resume} and writes {BEST} anew"
    if damaged == LAST and PREVIOUS in whole:
        return f"{PREVIOUS} is whole: once {LAST} is deleted, {resume}"
    if BEST in whole:
        return f"{BEST} is whole and translates; to train again, --overwrite or set another run_dir"
    return "no other weights here are whole: copy the run again, or train again with --overwrite"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write into a RunError that says what is left."""
    try:
        yield
    except OSError as error:
        there = path.parent.is_dir()
        state = "what was there before is whole" if there else f"{path.parent} is no longer there"
        raise RunError(f"{path}: cannot be written ({error}); {state}") from None
