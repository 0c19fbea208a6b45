"""Whether a training may begin in a folder, and making room for it there."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from seq2seq.config.schema import Config, dump_config, load_config
from seq2seq.runs.checkpoint import BEST, CONFIG, LAST, PREVIOUS, VOCABULARY, writing
from seq2seq.runs.provenance import config_changes
from seq2seq.runs.snapshots import remove_partial_snapshots, remove_snapshots, snapshots
from seq2seq.runs.training_state import check_last
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import PART_SUFFIX
from seq2seq.training.reporting import LOG, METRICS, TENSORBOARD, TIMING

_FIGURES = (METRICS, TIMING, LOG, TENSORBOARD)


def check_folder(config: Config, resume: bool, overwrite: bool) -> None:
    """Refuse a folder another run lives in, and resuming what is not there or another config."""
    folder = config.run_dir
    if resume and overwrite:
        raise UserError("--resume and --overwrite: give one of them")
    check_place(folder)
    if resume:
        _check_resumed(config)
        return
    if not run_lives(folder):
        _check_free(folder)
    elif not overwrite:
        raise UserError(
            f"{folder}: a run lives here already; go on with --resume, "
            "replace it with --overwrite, or set another run_dir"
        )


def check_place(folder: Path) -> None:
    """Refuse a run folder that is a file, or that cannot be made."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"run_dir: {folder} is a file; choose another name")
    if not folder.exists():
        above = next(each for each in folder.absolute().parents if each.exists())
        if not (above.is_dir() and os.access(above, os.W_OK)):
            raise UserError(f"run_dir: {folder} cannot be made in {above}; choose another place")


def _check_free(folder: Path) -> None:
    """Refuse a folder, in which no run lives, with what a run would replace there."""
    for name in _replaced(folder, (CONFIG, VOCABULARY, *_FIGURES)):
        raise UserError(
            f"run_dir: {folder} holds {name}, and no run that wrote it; "
            "move that away, or set another run_dir"
        )


def _replaced(folder: Path, names: Sequence[str]) -> list[str]:
    """Which of these are there, and which snapshots."""
    there = [name for name in names if os.path.lexists(folder / name)]
    return [*there, *(path.name for path in snapshots(folder))]


def run_lives(folder: Path) -> bool:
    """Whether a run was begun in this folder: it has weights, or a config as a run writes it."""
    if any((folder / name).exists() for name in (BEST, LAST, PREVIOUS)):
        return True
    try:
        return dump_config(load_config(folder / CONFIG)[0]) == (folder / CONFIG).read_text("utf-8")
    except (UserError, OSError, ValueError):
        return False


def _check_resumed(config: Config) -> None:
    """Refuse to resume unless the run was of this config; it may have been killed unsaved."""
    folder = config.run_dir
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; train without --resume")
    for name in (METRICS, TIMING, LOG, TENSORBOARD):
        if (folder / name).is_symlink():
            raise UserError(f"{folder / name}: is a link, through which no run writes; remove it")
        plain = Path.is_dir if name == TENSORBOARD else Path.is_file
        if (folder / name).exists() and not plain(folder / name):
            raise UserError(f"{folder / name}: is not what a run writes there; remove it")
    last = check_last(folder)
    if last is not None:
        changes = config_changes(*last, config)
        if changes:
            raise UserError(
                f"{folder}: --resume goes on with the config it began with, but these differ:\n  "
                + "\n  ".join(changes)
            )
        return
    if not run_lives(folder):
        raise UserError(
            f"{folder}: not a run folder, it has no {CONFIG} of a run; train without --resume"
        )
    for name in _replaced(folder, (BEST, *_FIGURES)):  # one killed before its first update has none
        raise UserError(
            f"{folder}: nothing to resume, it has {name}, but no {LAST}; "
            "train again with --overwrite, which replaces that"
        )


def clear(folder: Path) -> None:
    """Remove a run, and nothing else that may lie beside it."""
    with writing(folder):
        for name in (PREVIOUS, LAST, BEST, METRICS, TIMING, LOG):
            (folder / name).unlink(missing_ok=True)
        for name in (VOCABULARY, TENSORBOARD):
            if (folder / name).is_symlink():
                (folder / name).unlink()
            elif (folder / name).is_dir():
                shutil.rmtree(folder / name)
    remove_snapshots(folder, after=0)
    remove_parts(folder)
    with writing(folder):
        (folder / CONFIG).unlink(missing_ok=True)  # last: what is left of a run is one to replace


def remove_parts(folder: Path) -> None:
    """Remove what a killed process was writing."""
    with writing(folder):
        for name in (LAST, BEST, METRICS, CONFIG):
            (folder / f"{name}{PART_SUFFIX}").unlink(missing_ok=True)
    remove_partial_snapshots(folder)
