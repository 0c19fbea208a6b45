"""What a file of weights belongs to: the config it was trained with and its vocabulary's checksums.

Both stand in the header of the file, so that a file of another run, and a config or a vocabulary
that changed since, are told apart from their own.
"""

from pathlib import Path
from typing import Any

from seq2seq.config.diff import changed_since, recorded_keys
from seq2seq.config.schema import Config
from seq2seq.data.vocabulary import Vocabularies, are_checksums, checksums_of, load_vocabularies
from seq2seq.runs.tensor_file import header_errors
from seq2seq.runtime.errors import UserError

Header = dict[str, Any]
_SHAPING = ("model.", "vocabulary.")  # these keys alone matter to weights that only translate


def provenance_of(
    config: Config, vocabularies: Vocabularies, model_keys_only: bool = False
) -> Header:
    """The part of a header that says where the weights come from."""
    keys = recorded_keys(config)
    if model_keys_only:
        keys = {key: value for key, value in keys.items() if key.startswith(_SHAPING)}
    return {"config": keys, "vocabulary": checksums_of(vocabularies)}


def config_changes(path: Path, header: Header, config: Config) -> list[str]:
    """Which keys of the config are not those that the header of `path` records."""
    with header_errors(path):
        return changed_since(dict(header["config"]), config)


def check_model_keys(path: Path, header: Header, config: Config, config_path: Path) -> None:
    """Raise UserError where the config shapes another model than that of the weights in `path`."""
    changes = [each for each in config_changes(path, header, config) if each.startswith(_SHAPING)]
    if changes:
        raise UserError(
            f"{config_path}: does not fit {path}, trained before it changed: {', '.join(changes)}; "
            "change it back, or take both files from one run"
        )


def recorded_vocabularies(
    path: Path, header: Header, folder: Path, sampling: float = 0.0
) -> Vocabularies:
    """The vocabulary in the folder, if its checksums are those that the header of `path` records.

    Raises UserError otherwise.
    """
    with header_errors(path):
        checksums = header["vocabulary"]
        if not are_checksums(checksums):
            raise ValueError("vocabulary")
    try:
        return load_vocabularies(folder, sampling, checksums)
    except UserError as error:
        raise UserError(f"{error}; {_mending(header)}") from None


def _mending(header: Header) -> str:
    if "averaged" in header:
        return "average anew, with --overwrite"
    return "`seq2seq train CONFIG --resume` mends that"
