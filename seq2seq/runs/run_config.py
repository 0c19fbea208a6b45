"""Read a run folder without torch: its config, its vocabularies, and what its weights record."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from seq2seq.config import errors, schema
from seq2seq.config.schema import Config, DecodingConfig, read_config_file
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary import vocabulary
from seq2seq.runs import layout, tensor_file
from seq2seq.runs.packaged_models import is_packaged, packaged_models
from seq2seq.runs.tensor_file import header_errors
from seq2seq.runtime import argument_types, files
from seq2seq.runtime.errors import UnreadableFile, UserError
from seq2seq.text.joined_profile import joined
from seq2seq.text.source_profile import SourceProfile

SOURCE = "source"  # header field of the source profile
Header = dict[str, Any]
T = TypeVar("T")
Read = Callable[[Path], tuple[Header, T]]


def _similar_run(folder: Path) -> str:
    """Return a hint at the closest name of a run beside a folder that is absent, or in runs/.

    The models of the package are among these names.
    """
    places = folder.parent, "runs" / folder.parent  # the second one of an absolute path is the same
    configs = [path for place in places for path in place.glob(f"*/{layout.CONFIG}")]
    runs = {name: Path(name) for name in packaged_models()}
    runs |= {path.parent.name: path.parent for path in configs}
    close = difflib.get_close_matches(folder.name, runs, n=1)
    return f"; did you mean '{runs[close[0]]}'?" if close else ""


def read_config(folder: Path) -> Config:
    """Load the config of a run folder; raises UserError if there is none."""
    if folder.is_file():
        raise UserError(f"{folder}: is a file, not a run folder; give its run_dir")
    if is_packaged(folder):
        raise UserError(f"{folder}: is an exported model of the package, which translates only")
    if not folder.is_dir():
        hint = _similar_run(folder) or "; `seq2seq train CONFIG` creates one"
        raise UserError(f"{folder}: no such run folder{hint}")
    files.check_paths(folder / layout.CONFIG)
    files.check_readable(folder / layout.CONFIG)
    if (folder / layout.DESCRIPTION).is_file():
        remedy = "give the run folder that it was exported from"
        raise UserError(f"{folder}: is an exported model, which translates only; {remedy}")
    if not (folder / layout.CONFIG).is_file():
        raise UserError(f"{folder}: not a run folder, it has no {layout.CONFIG}")
    try:
        return read_config_file(folder / layout.CONFIG).config
    except errors.ConfigError as error:
        lines = "; ".join(error.lines)
        raise UserError(f"{lines} (`seq2seq train CONFIG --resume` writes it again)") from None


def overridden_decoding(folder: Path, config: Config, overrides: Iterable[str]) -> DecodingConfig:
    """Return the `decoding` section of a run with overrides; raises UserError for other keys."""
    overrides = argument_types.text_list(overrides, "overrides", "such as decoding.beam_size=3")
    for override in overrides:
        if not override.startswith("decoding."):
            text = "a trained run takes other values of decoding.* keys only"
            raise UserError(f"{override}: {text}, such as decoding.length_penalty=0.6")
    if not overrides:
        return config.decoding
    try:
        return read_config_file(folder / layout.CONFIG, overrides).config.decoding
    except errors.ConfigError as error:
        lines = (line.strip() for line in str(error).splitlines())
        raise UserError("; ".join(lines)) from None


@dataclass(frozen=True)
class StoredRun:
    """A run folder, but for its weights."""

    path: Path  # file of the weights
    step: int
    checksum: str  # SHA-256 of the tensors
    config: Config
    vocabularies: vocabulary.Vocabularies
    limit: LengthLimit
    source: SourceProfile  # as the weights record it of the training text

    def vocabulary_and_direction(self) -> tuple[object, str]:
        """Return what runs that are combined share: checksums of a vocabulary, and languages."""
        return vocabulary.checksums_of(self.vocabularies), self.config.data.direction


R = TypeVar("R", bound=StoredRun)


def with_joined_profile(runs: Sequence[R]) -> R:
    """Return the first of runs that are combined, with length limit and source profile of all."""
    limit = reduce(LengthLimit.joined, (run.limit for run in runs))
    return replace(runs[0], limit=limit, source=joined(run.source for run in runs))


def stored_run(folder: Path, name: str = layout.BEST) -> StoredRun:
    """Read a run folder without its weights; raises UserError as `load_model` does."""
    return read_run(folder, name, tensor_file.read_header)[0]


def read_run(folder: Path, name: str, read: Read[T]) -> tuple[StoredRun, T]:
    """Read a run, and what `read` returns beside the header of weights; raises UserError."""
    config = read_config(folder)
    path = folder / name
    check_exists(path)
    with layout.with_recovery_hint(path):
        header, tensors = read(path)
        limit = tensor_file.read_record(LengthLimit, header, "limit", path)
        source = SourceProfile()
        if SOURCE in header:
            source = tensor_file.read_record(SourceProfile, header, SOURCE, path)
        with header_errors(path):
            step = int(header["step"])
            checksum = str(header["tensors"])
        check_model_keys(path, header, config, folder / layout.CONFIG)
        vocabularies = recorded_vocabularies(path, header, folder / layout.VOCABULARY)
    return StoredRun(path, step, checksum, config, vocabularies, limit, source), tensors


def check_exists(path: Path) -> None:
    """Raise UserError if a run has no weights of this name."""
    if path.exists():
        return
    if path.name != layout.BEST:
        raise UserError(f"{path.parent}: has no {path.name}")
    hint = layout.recovery_hint(path.parent, layout.BEST)
    text = f"has no {layout.BEST}, which the first validation writes. {hint}"
    raise UserError(f"{path.parent}: {text}")


_MODEL_KEYS = ("model.", "vocabulary.")  # all that matters to weights used for translation only
_SHAPELESS = ("model.dropout.", "vocabulary.sampling:")  # act on training only
_NAMES = "vocabulary.names."  # the same, unless names are placeholders


def provenance_of(
    config: Config, vocabularies: vocabulary.Vocabularies, model_keys_only: bool = False
) -> Header:
    """Return the header fields that record a config and a vocabulary."""
    keys = schema.recorded_keys(config)
    if model_keys_only:
        keys = {key: value for key, value in keys.items() if key.startswith(_MODEL_KEYS)}
    return {"config": keys, "vocabulary": vocabulary.checksums_of(vocabularies)}


def config_changes(path: Path, header: Header, config: Config) -> list[str]:
    """List the keys, as `KEY: OLD -> NEW`, that differ from those recorded in the header."""
    with header_errors(path):
        return schema.changed_since(dict(header["config"]), config)


def that_change_weights(
    changes: Iterable[str], config: Config, sections: tuple[str, ...] = _MODEL_KEYS
) -> list[str]:
    """Select from changes, as `KEY: OLD -> NEW`, those that make weights unfit for a config."""
    if config.model.score is not None and config.model.score.name == "location":
        sections += ("data.max_length:",)  # the score has weights for each position
    return [
        change
        for change in changes
        if change.startswith(sections)
        and not change.startswith(_SHAPELESS)
        and not (change.startswith(_NAMES) and "placeholders" not in change)
    ]


def check_model_keys(path: Path, header: Header, config: Config, config_path: Path) -> None:
    """Raise UserError if the config defines another model than the weights in `path` have."""
    changes = config_changes(path, header, config)
    if changes := [change for change in changes if change.startswith(_MODEL_KEYS)]:
        text = f"does not fit {path}, trained with other values: {', '.join(changes)}"
        remedy = "restore them, or take both files from the same run"
        raise UserError(f"{config_path}: {text}; {remedy}")


def recorded_vocabularies(
    path: Path, header: Header, folder: Path, sampling: float = 0.0
) -> vocabulary.Vocabularies:
    """Load the vocabularies in `folder`; raises UserError if the header records other checksums."""
    with header_errors(path):
        checksums = header["vocabulary"]
        if not vocabulary.are_checksums(checksums):
            raise ValueError("vocabulary")
    try:
        return vocabulary.load_vocabularies(folder, sampling, checksums)
    except UnreadableFile:
        raise
    except UserError as error:
        raise UserError(f"{error}; copy it from the run again, or train again") from None
