"""Read a run folder without torch: its config, its vocabularies, and what its weights record."""

import difflib
import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import Config, DecodingConfig, read_config_file, with_paths
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runs import tensor_file
from seq2seq.runs.engine_folder import DESCRIPTION
from seq2seq.runs.layout import BEST, CONFIG, VOCABULARY, recovery_hint, with_recovery_hint
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.runs.provenance import Header, recorded_vocabularies
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths, check_readable

SOURCE = "source"  # header field of the source profile


def _similar_run(folder: Path) -> str:
    """Return a hint at the run with the closest name in runs/ or beside a folder that is absent."""
    places = folder.parent, "runs" / folder.parent  # the second one of an absolute path is the same
    configs = [path for place in places for path in place.glob(f"*/{CONFIG}")]
    runs = {path.parent.name: path.parent for path in configs}
    close = difflib.get_close_matches(folder.name, runs, n=1)
    return f"; did you mean '{runs[close[0]]}'?" if close else ""


def read_config(folder: Path) -> Config:
    """Load the config of a run folder; raises UserError if there is none."""
    if folder.is_file():
        raise UserError(f"{folder}: {_kind_of_file(folder)}")
    if not folder.is_dir():
        hint = _similar_run(folder) or "; `seq2seq train CONFIG` creates one"
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
        lines = "; ".join(error.lines)
        raise UserError(f"{lines} (`seq2seq train CONFIG --resume` writes it again)") from None


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


def overridden_decoding(folder: Path, config: Config, overrides: Iterable[str]) -> DecodingConfig:
    """Return the `decoding` section of a run with overrides; raises UserError for other keys."""
    overrides = argument_types.text_list(overrides, "overrides", "such as decoding.beam_size=3")
    for override in overrides:
        if not override.startswith("decoding."):
            raise UserError(
                f"{override}: a trained run takes other values of decoding.* keys only, such as "
                "decoding.length_penalty=0.6"
            )
    if not overrides:
        return config.decoding
    try:
        return read_config_file(folder / CONFIG, overrides).config.decoding
    except ConfigError as error:
        lines = (line.strip() for line in str(error).splitlines())
        raise UserError("; ".join(lines)) from None


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


def read_source_profile(folder: Path) -> SourceProfile:
    """Read what a run's best weights record of the training text, if anything."""
    path = folder / BEST
    with with_recovery_hint(path):
        return source_of(tensor_file.read_header(path)[0], path)


def source_of(header: Header, path: Path) -> SourceProfile:
    """Return what the header of weights records of the training text; nothing, if it does not."""
    if SOURCE not in header:
        return SourceProfile()
    return tensor_file.read_dataclass(SourceProfile, header, SOURCE, path)
