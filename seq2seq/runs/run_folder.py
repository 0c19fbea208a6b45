"""Run folder: which run may train in it, and the removal of an old run."""

import os
import shutil
from pathlib import Path

from seq2seq.config.schema import Config, dump_config, read_config_file
from seq2seq.data.training_data import FOLDER as CACHE
from seq2seq.runs import layout
from seq2seq.runs.progress import resumable
from seq2seq.runtime.errors import UserError, argument
from seq2seq.runtime.files import PART_SUFFIX, check_paths, check_readable, part_of, refused_link
from seq2seq.runtime.locks import LOCK


def check_folder(config: Config, resume: bool, overwrite: bool) -> None:
    """Raise UserError if the folder holds another run, or one that cannot be resumed.

    An absent or empty folder can always be resumed: the run starts there.
    """
    folder = config.run_dir
    if resume and overwrite:
        names = f"{argument('resume', True)} and {argument('overwrite', True)}"
        raise UserError(f"{names}: give one of them")
    check_place(folder)
    check_paths(*config.data.paths())
    check_readable(folder / layout.CONFIG)
    _check_files(folder)
    for path in config.data.paths():
        if layout.belongs_to_run(path, folder):
            text = f"{path} is one of the files that the run in {folder} writes"
            raise UserError(f"data: {text}; move the text, or set another run_dir")
    if resume:
        _check_holds_run(folder)
    elif not holds_run(folder):
        for name in layout.existing(folder, (layout.CONFIG, layout.VOCABULARY, *layout.FIGURES)):
            text = f"{folder} holds {name}, which no run wrote"
            raise UserError(f"run_dir: {text}. Move it away, or set another run_dir")
    elif not overwrite:
        ways = f"Resume it with {argument('resume', True)}, replace it with "
        ways += f"{argument('overwrite', True)}, or set another run_dir"
        raise UserError(f"{folder}: already holds a run. {ways}")


def check_place(folder: Path) -> None:
    """Raise UserError if a run folder is a file, cannot be searched or cannot be created."""
    check_paths(folder, part_of(folder / layout.METRICS))
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if above == folder and not folder.is_dir():
        raise UserError(f"run_dir: {folder} is a file; choose another name")
    if above != folder and not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"run_dir: {folder} cannot be created in {above}; choose another place")


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run: weights, or a config as a run writes it."""
    if any((folder / name).exists() for name in (layout.BEST, layout.LAST, layout.PREVIOUS)):
        return True
    try:
        config = read_config_file(folder / layout.CONFIG).config
        return dump_config(config) == (folder / layout.CONFIG).read_text("utf-8")
    except (UserError, OSError, ValueError):
        return False


def _check_files(folder: Path) -> None:
    """Raise UserError for files of a run that training cannot replace, or may not trust.

    Files are trusted of this user, root, and the owner of the folder, whom the user has chosen.
    """
    trusted = {os.geteuid(), 0, folder.stat().st_uid} if folder.is_dir() else set()
    for name in layout.existing(folder, layout.RESERVED):
        is_folder = name in (layout.VOCABULARY, layout.TENSORBOARD, layout.ENGINE)
        path, plain = folder / name, Path.is_dir if is_folder else Path.is_file
        if path.exists() and not path.is_symlink() and not plain(path):
            raise UserError(f"{path}: is not a {'folder' if is_folder else 'file'}. Remove it")
        if (owner := path.lstat().st_uid) not in trusted:
            text = f"belongs to another user (uid {owner}), who does not own the run folder"
            remedy = "Remove it or take it over (chown), or set another run_dir"
            raise UserError(f"{path}: {text}. {remedy}")


def _check_holds_run(folder: Path) -> None:
    """Raise UserError if the folder is not empty and has no run, or one that cannot be resumed."""
    for name in (*layout.FIGURES, layout.VOCABULARY):  # other files are replaced, links included
        if (folder / name).is_symlink():
            raise refused_link(folder / name)
    # A process that is killed before the run starts leaves these.
    left = {LOCK, CACHE, *(f"{name}{PART_SUFFIX}" for name in layout.RESERVED)}
    if resumable(folder) is not None or all(path.name in left for path in folder.glob("*")):
        return
    if not holds_run(folder):
        text = f"not a run folder, it has no {layout.CONFIG} of a run, and it is not empty either"
        remedy = f"train without {argument('resume', True)}, or set another run_dir"
        raise UserError(f"{folder}: {text}; {remedy}")
    # A run that was killed before its first save has none of these.
    for name in layout.existing(folder, (layout.BEST, *layout.FIGURES)):
        remedy = f"Train again with {argument('overwrite', True)}, which replaces the run"
        text = f"nothing to resume: it has {name}, but no {layout.LAST}"
        raise UserError(f"{folder}: {text}. {remedy}")


def clear(folder: Path) -> None:
    """Remove a run, but no other files that lie beside it."""
    remove_parts(folder)
    with layout.writing(folder, folder):
        for name in reversed(layout.existing(folder, layout.RESERVED)):
            path = folder / name  # the config is the last: until then the rest counts as a run
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif name != LOCK:
                path.unlink(missing_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove the partial files of a killed process."""
    with layout.writing(folder, folder):
        for path in folder.glob(f"*{PART_SUFFIX}"):
            if layout.is_reserved(path.name):
                path.unlink()
