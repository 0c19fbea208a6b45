"""Provenance of weights: the config they were trained with and their vocabulary's checksums.

The header of every file of weights records both, so that a config or a vocabulary that was changed
or belongs to another run is detected.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seq2seq.config.schema import Config, changed_keys, changed_since, recorded_keys
from seq2seq.data.vocabulary.vocabulary import (
    Vocabularies,
    are_checksums,
    checksums_of,
    load_vocabularies,
)
from seq2seq.runs.tensor_file import header_errors
from seq2seq.runtime.errors import UnreadableFile, UserError, argument

Header = dict[str, Any]
_MODEL_KEYS = ("model.", "vocabulary.")  # all that matters to weights used for translation only
_SHAPELESS = ("model.dropout.", "vocabulary.sampling:")  # act on training only
_NAMES = "vocabulary.names."  # the same, unless names are placeholders


def provenance_of(
    config: Config, vocabularies: Vocabularies, model_keys_only: bool = False
) -> Header:
    """Return the header fields that record a config and a vocabulary."""
    keys = recorded_keys(config)
    if model_keys_only:
        keys = {key: value for key, value in keys.items() if key.startswith(_MODEL_KEYS)}
    return {"config": keys, "vocabulary": checksums_of(vocabularies)}


def config_changes(path: Path, header: Header, config: Config) -> list[str]:
    """List the keys, as `KEY: OLD -> NEW`, that differ from those recorded in the header."""
    with header_errors(path):
        return changed_since(dict(header["config"]), config)


def model_changes(
    trained: Config, config: Config, sections: tuple[str, ...] = _MODEL_KEYS
) -> list[str]:
    """List the changed keys in `sections` that make weights of one config unfit for the other."""
    return that_change_weights(changed_keys(trained, config), config, sections)


def that_change_weights(
    changes: Iterable[str], config: Config, sections: tuple[str, ...] = _MODEL_KEYS
) -> list[str]:
    """Select from changes, as `KEY: OLD -> NEW`, those that a warm start refuses, too."""
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
        raise UserError(
            f"{config_path}: does not fit {path}, trained with other values: {', '.join(changes)}; "
            "restore them, or take both files from the same run"
        )


def recorded_vocabularies(
    path: Path, header: Header, folder: Path, sampling: float = 0.0
) -> Vocabularies:
    """Load the vocabularies in `folder`; raises UserError if the header records other checksums."""
    with header_errors(path):
        checksums = header["vocabulary"]
        if not are_checksums(checksums):
            raise ValueError("vocabulary")
    try:
        return load_vocabularies(folder, sampling, checksums)
    except UnreadableFile:
        raise
    except UserError as error:
        if "averaged" in header:
            remedy = f"average the checkpoints again, with {argument('overwrite', True)}"
        else:
            remedy = "`seq2seq train CONFIG --resume` restores it"
        raise UserError(f"{error}; {remedy}") from None
