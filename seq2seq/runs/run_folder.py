"""Run folder of a training: the progress that it records, and which run may train in it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from seq2seq.config.schema import Config, dump_config, read_config_file
from seq2seq.data.training_data import FOLDER as CACHE
from seq2seq.data.training_data import RECORDED_TEXT
from seq2seq.runs import layout, metrics_file, run_config, tensor_file
from seq2seq.runtime.errors import DamagedFile, UserError, argument
from seq2seq.runtime.files import (
    PART_SUFFIX,
    check_paths,
    check_readable,
    delete,
    part_of,
    refused_link,
)
from seq2seq.runtime.locks import LOCK

STATE_FORMAT = 3  # increased when header fields or tensors change
FORMAT = "state_format"
_TEXT = "text."  # prefix, in the header field `data`, of the checksums of a run's texts
STATISTICS = ("losses", "skipped", "loss_scale")  # recorded beside the counters
C = TypeVar("C", bound="Counters")


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
    parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if parent == folder and not folder.is_dir():
        raise UserError(f"run_dir: {folder} is a file; choose another name")
    if parent != folder and not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UserError(f"run_dir: {folder} cannot be created in {parent}; choose another place")


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
        path = folder / name
        plain = Path.is_dir if is_folder else Path.is_file
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
    leftovers = {LOCK, CACHE, *(f"{name}{PART_SUFFIX}" for name in layout.RESERVED)}
    if resumable(folder) is not None or all(path.name in leftovers for path in folder.glob("*")):
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
            if name != LOCK:
                delete(folder / name)  # the config last: until then the rest counts as a run


def remove_parts(folder: Path) -> None:
    """Remove the partial files of a killed process."""
    with layout.writing(folder, folder):
        for path in folder.glob(f"*{PART_SUFFIX}"):
            if layout.is_reserved(path.name):
                path.unlink()


@dataclass(eq=False)
class Counters:
    """Counters of a training; the seed determines all of them but `seconds`."""

    step: int = 0  # optimizer steps
    epoch: int = 0
    batch: int = 0  # batches of this epoch already used
    tokens: int = 0  # target tokens seen
    best_score: float = -1.0  # BLEU or chrF of the best validation, 0 for metric loss; -1: none yet
    best_loss: float = 0.0
    best_step: int = 0
    validated_step: int = 0  # step of the last validation
    improved_score: float = -1.0  # as `best_score`, of the last improvement that patience counts
    improved_loss: float = 0.0
    validations_since_improvement: int = 0
    decays: int = 0  # decays of the learning rate on plateaus
    reported_step: int = 0  # step of the last training loss in metrics.jsonl
    skipped_in_a_row: int = 0  # at reported_step
    rate_factor: float = 1.0  # factor on the learning rate, halved by each roll back
    max_micro_batch_positions: int = 0  # target positions that fit memory; 0: no limit known
    metrics_lines: int = 0  # lines of metrics.jsonl at the last save, and their SHA-256;
    metrics_checksum: str = ""
    precision: str = ""  # float32, bf16 or fp16
    threads: int = 0  # on a CPU; 0: not recorded
    seconds: float = 0.0  # trained at the last save


class SavedProgress(NamedTuple):
    """Record of a training state, but for its tensors."""

    header: run_config.Header
    counters: Counters


def resumable(folder: Path) -> Path | None:
    """Return the file to resume from: the last state, or the previous one if that is missing."""
    paths = (folder / layout.LAST, folder / layout.PREVIOUS)
    return next(filter(Path.exists, paths), None)


def read_progress(config: Config) -> SavedProgress | None:
    """Read what the state to resume from records, if there is one, and verify it but for tensors.

    Raises UserError if it is damaged or of another config.
    """
    path = resumable(config.run_dir)
    if path is None:
        return None
    with layout.with_recovery_hint(path):
        header = tensor_file.read_header(path)[0]
        check_format(path, header)
        counters = read_counters(Counters, header, path)
    check_config(config, path, header)
    return SavedProgress(header, counters)


def read_counters(kind: type[C], header: run_config.Header, path: Path) -> C:
    """Return the counters that a header records; raises DamagedFile if they are malformed."""
    with tensor_file.header_errors(path):
        values = {k: v for k, v in header["progress"].items() if k not in STATISTICS}
        values["seconds"] = float(header["seconds"])
        return tensor_file.read_dataclass(kind, {"progress": values}, "progress", path)


def check_format(path: Path, header: run_config.Header) -> None:
    """Raise UserError if a file is no training state, or one of another version."""
    if "progress" not in header:
        raise DamagedFile(f"{path}: not a training state")
    if (state_format := header.get(FORMAT)) != STATE_FORMAT:
        text = f"a training state of format {state_format}; this version of seq2seq resumes"
        start = f"start another run from its best weights with {argument('init_from', path.parent)}"
        remedy = f"Train again with {argument('overwrite', True)}, or {start}"
        raise UserError(f"{path}: {text} format {STATE_FORMAT} only. {remedy}")


def check_config(config: Config, path: Path, header: run_config.Header) -> None:
    """Raise UserError if the run of a training state has another config."""
    folder = config.run_dir
    if changes := run_config.config_changes(path, header, config):
        remedy = another_run(folder, not run_config.that_change_weights(changes, config))
        raise UserError(
            f"{folder}: {argument('resume', True)} needs the config that the run started with. "
            "These keys differ:",
            *(f"  {change}" for change in changes),
            f"Restore them, or {remedy}",
        )


def read_saved_metrics(folder: Path, progress: Counters) -> tuple[list[bytes], str | None]:
    """Return the lines of metrics.jsonl that a state counts, and what is lost. Raises OSError."""
    lines = metrics_file.raw_lines(folder / layout.METRICS)
    counted = progress.metrics_lines
    count = metrics_file.LineCount(lines[:counted])
    if (count.lines, count.checksum) == (counted, progress.metrics_checksum):
        return lines[:counted], None
    intact = metrics_file.lines_up_to(lines, progress.step)
    text = f"{len(intact):,} of {counted:,} lines are left"
    return intact, f"not as it was saved at step {progress.step} ({text})"


def restore_metrics(folder: Path, progress: Counters) -> str | None:
    """Leave in metrics.jsonl the lines that a state counts; return a note on damage."""
    lines, lost = read_saved_metrics(folder, progress)
    metrics_file.write_lines(folder / layout.METRICS, lines)
    text = f"{lost}. Damaged lines were removed; the weights are intact, and later figures follow"
    return lost and f"warning: {folder / layout.METRICS}: {text}"


def text_checksums(train: str, valid: str) -> dict[str, str]:
    """Return what a state records of the content of its texts, given their checksums."""
    return {RECORDED_TEXT: train, f"{_TEXT}valid": valid}


def check_texts(folder: Path, header: run_config.Header, checksums: Mapping[str, str]) -> None:
    """Raise UserError for another text than the run was trained on, in whatever files it is."""
    digests = recorded_digests(header)
    for key, checksum in checksums.items():
        if digests.get(key, checksum) != checksum:
            split = key.removeprefix(_TEXT)
            remedy = f"Restore that text, or {another_run(folder)}"
            raise UserError(f"data.{split}: is not the text that {folder} was trained on. {remedy}")


def recorded_digests(header: run_config.Header) -> dict[str, str]:
    """Return the checksums of the training text and its cache that a run has recorded."""
    record = header.get("data")
    if not isinstance(record, dict):
        return {}
    return {str(key): value for key, value in record.items() if isinstance(value, str)}


def another_run(folder: Path, weights_fit: bool = True) -> str:
    """Return the way to train on with a change that a resumed run refuses."""
    again = f"train again ({argument('overwrite', True)}, or another run_dir)"
    if not (weights_fit and (folder / layout.BEST).exists()):
        return again
    start = "start another run (another run_dir) from its best weights: "
    return f"{again}, or {start}{argument('init_from', folder)}"
