"""Average checkpoints of a run, or of several, and measure the result as validation does."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.config.schema import changed_keys
from seq2seq.data.corpus import ParallelText, paths_of, read_pairs, usable
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs import checkpoint, layout, run_config, run_folder
from seq2seq.runs.checkpoint import LoadedRun, weights_header
from seq2seq.runs.engine_folder import check_fit
from seq2seq.runs.run_config import provenance_of, that_change_weights, with_joined_profile
from seq2seq.runtime.console import one_line, progress_bar
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import RunError, UserError, argument
from seq2seq.runtime.files import PART_SUFFIX, outside_notes
from seq2seq.runtime.locks import LOCK, exclusive_lock
from seq2seq.training import validation

_TOO_FEW = "an average needs at least 2 checkpoints"


def average(  # noqa: PLR0913
    runs: Sequence[Path],
    folder: Path,
    device: str = "auto",
    last: int | None = None,
    overwrite: bool = False,
    report: Callable[[str], object] = print,
) -> list[str]:
    """Write a run folder with the mean of the weights of checkpoints; return notes for the user.

    Reports the greedy validation BLEU of all, if the data can be read. Raises UserError for
    checkpoints of several models, and for a `folder` that contains anything else.
    """
    paths = select_checkpoints(runs, last)
    check_destination(folder, paths, overwrite)
    checkpoints = load_checkpoints(paths, choose_device(device))
    valid = None
    notes = []
    try:
        files = checkpoints[0].config.data.valid
        valid = read_pairs(files)
        notes += outside_notes(paths_of(files).values(), paths[0].parent)
        usable(valid)  # raises if no pair has text
    except UserError as error:
        notes.append(f"note: no validation BLEU was measured: {error}")
    if len(seeds := {run.config.seed for run in checkpoints}) > 1:
        notes.append(
            f"warning: the runs have different seeds ({', '.join(map(str, sorted(seeds)))}), so "
            "they started from different weights, whose mean rarely translates well; "
            "use them as an ensemble (`seq2seq translate -m RUN -m RUN`) instead"
        )
    model = average_models([run.model for run in checkpoints])
    names = [f"{run.path}, step {run.step}" for run in checkpoints]
    names.append(f"{folder}, the average of {len(paths)}")
    averaged = replace(with_joined_profile(checkpoints), model=model)
    scores = []
    for name, run in zip(names, (*checkpoints, averaged), strict=True):
        scores.append(None if valid is None else _bleu(run, valid))
        text = "" if scores[-1] is None else f": validation BLEU {scores[-1]:.2f}"
        report(one_line(f"{name}{text}"))
    bleu = scores.pop()
    save_average(folder, model, checkpoints, bleu, overwrite)
    best, path = max((score or 0.0, path) for score, path in zip(scores, paths, strict=True))
    if bleu is not None and bleu <= best:
        notes.append(f"note: the average is no better than {path} (validation BLEU {best:.2f})")
    return notes


def _bleu(run: LoadedRun, valid: ParallelText) -> float:
    device = next(run.model.parameters()).device
    config = run.config
    settings = config.decoding, config.data.max_length, device, run.source
    engine = TorchEngine(run.model.eval(), device)
    translator = Translator(LoadedModel(engine, run.vocabularies, run.limit, *settings))
    with progress_bar("translated", " lines", len(valid)) as bar:
        bleu, _ = validation.greedy_bleu(
            translator, valid, config.data.tgt_lang, on_translated=bar.update
        )
    return bleu


def select_checkpoints(runs: Sequence[Path], last: int | None = None) -> list[Path]:
    """Return the files to average: these files, or the best weights of each of several runs.

    Of a single run these are its newest `last` snapshots, or all; raises UserError for too few.
    """
    if len(runs) == 1 and not runs[0].is_file():
        return _select_snapshots(runs[0], last)
    if last is not None:
        text = "selects snapshots of a single run folder; name only one"
        raise UserError(text, argument="last", value=last)
    paths = [run if run.is_file() else run / layout.BEST for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if path.name != layout.BEST and layout.snapshot_step(path) is None:
            remedy = f"give a run folder, its {layout.BEST} or a step-N.safetensors"
            raise UserError(f"{run}: not a checkpoint; {remedy}")
    return paths


def _select_snapshots(run: Path, last: int | None) -> list[Path]:
    run_config.read_config(run)  # raises UserError if it is not a run folder
    if last == 1:
        raise UserError(_TOO_FEW, argument="last", value=1)
    snapshots = layout.snapshots(run)
    count = max(2, last or 0)
    if len(snapshots) < count:
        text = f"too few snapshots (step-N.safetensors): {len(snapshots)} of {count}"
        raise UserError(f"{run}: {text}; train with training.keep, or name several runs")
    return snapshots if last is None else snapshots[-last:]


def check_destination(folder: Path, paths: Sequence[Path], overwrite: bool) -> None:
    """Refuse a folder that contains an input, other files or, without `overwrite`, a run."""
    run_folder.check_place(folder)
    if any(path.resolve().parent == folder.resolve() for path in paths):
        raise UserError(f"{folder}: is one of the runs to average; choose a new folder")
    if not folder.exists() or all(map(_is_left_over, folder.iterdir())):
        return
    if not run_folder.holds_run(folder):
        raise UserError(f"{folder}: contains files other than a run's; choose a new folder")
    if not overwrite:
        remedy = f"replace it with {argument('overwrite', True)}"
        raise UserError(f"{folder}: already contains a run; {remedy}")


def _is_left_over(path: Path) -> bool:
    """Return whether a killed average, or one that has not begun, leaves a file of this name."""
    is_part = path.name.endswith(PART_SUFFIX) and layout.is_reserved(path.name)
    return is_part or path.name in (LOCK, layout.CONFIG, layout.VOCABULARY)


def load_checkpoints(paths: Sequence[Path], device: torch.device) -> list[LoadedRun]:
    """Load checkpoints of one model; raises UserError if they differ in more than their weights."""
    if len(paths) < 2:
        raise UserError(f"{paths[0]}: {_TOO_FEW}")
    # All of them at once: training may remove its snapshots meanwhile.
    runs = [checkpoint.load_model(path.parent, device, path.name) for path in paths]
    check_fit([run.path for run in runs], [run.vocabulary_and_direction() for run in runs])
    first = runs[0]
    same = dict[str, Path]()
    for run in runs:
        changes = changed_keys(first.config, run.config)
        if changes := that_change_weights(changes, run.config, ("model.",)):
            reason = f"{run.path}: has another model than {first.path}:"
            raise UserError(f"{reason} {', '.join(changes)}")
        if run.checksum in same:
            text = f"has the same weights as {same[run.checksum]}; name each checkpoint only once"
            raise UserError(f"{run.path}: {text}")
        same[run.checksum] = run.path
    return runs


def average_models(models: Sequence[Seq2Seq]) -> Seq2Seq:
    """Return a copy of the first model with the mean of the weights of all."""
    averaged = copy.deepcopy(models[0])
    means = average_weights([named_weights(model) for model in models])
    for name, weight in named_weights(averaged).items():
        weight.copy_(means[name])
    return averaged


def average_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each named weight, summed in float64: equal weights are left unchanged."""
    means = {}
    for name in weights[0]:
        total = reduce(torch.add, (weight[name].cpu().double() for weight in weights))
        means[name] = (total / len(weights)).float()
    return means


def save_average(
    folder: Path,
    model: Seq2Seq,
    checkpoints: Sequence[LoadedRun],
    bleu: float | None,
    overwrite: bool,
) -> None:
    """Write a run folder for the averaged model, recording the checkpoints that went into it.

    Nothing is left if it cannot be written. Raises UserError if another process wrote there since.
    """
    first = with_joined_profile(checkpoints)
    vocabularies = first.vocabularies
    config = first.config
    provenance = provenance_of(config, vocabularies, model_keys_only=True)
    provenance["averaged"] = [
        {"path": str(run.path), "step": run.step, "tensors": run.checksum} for run in checkpoints
    ]
    provenance[run_config.SOURCE] = asdict(first.source)
    with exclusive_lock(folder):
        check_destination(folder, [run.path for run in checkpoints], overwrite)
        run_folder.clear(folder)
        step = max(run.step for run in checkpoints)
        header = weights_header(first.limit, step, bleu, provenance)
        new_config = config.model_copy(update={"run_dir": folder})
        try:
            checkpoint.create_run(folder, new_config, vocabularies)
            checkpoint.save_weights(folder / layout.BEST, named_weights(model), header)
        except RunError:
            with suppress(RunError, OSError):
                run_folder.clear(folder)
                folder.rmdir()
            raise
