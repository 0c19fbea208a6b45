"""Checkpoint averaging: the mean of the weights of several checkpoints of one model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config
from seq2seq.data.corpus import ParallelText, read_pairs, usable
from seq2seq.data.vocabulary import Vocabularies, checksums_of
from seq2seq.evaluation.metrics import bleu_score, tokenizer_of
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import (
    BEST,
    LengthLimit,
    create_run,
    load_best,
    own_weights,
    read_config,
    save_weights,
)
from seq2seq.runs.provenance import Header, config_changes, provenance_of
from seq2seq.runs.run_folder import check_place, clear, run_lives
from seq2seq.runs.snapshots import snapshot_step, snapshots
from seq2seq.runs.tensor_file import copy_into, header_errors, read_header, shapes_of
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.locks import LOCK, exclusive_lock

_ONCE = "each checkpoint counts once in an average"


class _Source(NamedTuple):
    """A checkpoint, and what the header of the average tells of it."""

    path: Path
    step: int
    tensors: str  # checksum


class _Loaded(NamedTuple):
    """A checkpoint, its header, and what it translates with."""

    path: Path
    header: Header
    model: Seq2Seq
    vocabularies: Vocabularies
    limit: LengthLimit
    config: Config


def average(
    runs: Sequence[Path],
    new: Path,
    device: str = "auto",
    last: int | None = None,
    overwrite: bool = False,
    tell: Callable[[str], object] = print,
) -> list[str]:
    """Write a run folder with the mean of the weights of checkpoints, which stay as they are.

    Which those are `checkpoints` says. Tells the validation BLEU (greedy, as in training) of each
    and of their mean, where the data are still there. Returns what else is to be said. Raises
    UserError where they are not of one model, or where `new` is another's.
    """
    paths = checkpoints(runs, last)
    _check_new(new, paths, overwrite)
    if len(paths) == 1:
        raise UserError(f"{paths[0]}: one checkpoint is its own average; name at least 2")
    chosen = choose_device(device)
    loaded: list[_Loaded] = []  # all are kept: a run that still trains removes snapshots
    sources: list[_Source] = []
    mean = WeightMean()
    for path in paths:
        loaded.append(_load(path, chosen))
        _check_alike(loaded[-1], loaded[0])
        sources.append(_source(loaded[-1], sources))
        mean.add(own_weights(loaded[-1].model))
    averaged = loaded[0]
    valid, notes = _validation_text(averaged.config)
    notes += _seed_notes(paths)
    scores = []
    for source, each in zip(sources, loaded, strict=True):
        scores.append(_bleu(each, valid))
        tell(_with_bleu(f"{source.path}, update {source.step}", scores[-1]))
    copy_into(mean.mean(), own_weights(averaged.model), averaged.path)  # no longer its own
    bleu = _bleu(averaged, valid)
    tell(_with_bleu(f"{new}, the average of {len(paths)}", bleu))
    _write(new, averaged, bleu, sources)
    return [*notes, *_verdict(bleu, scores, paths)]


class WeightMean:
    """The mean of weights by name, added up in float64: that of equal weights is equal to them."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, weights: Mapping[str, Tensor]) -> None:
        """Take in one more set of weights, of the same names and shapes."""
        for name, weight in weights.items():
            exact = weight.cpu().double()
            self._sums[name] = exact if not self._count else self._sums[name] + exact
        self._count += 1

    def mean(self) -> dict[str, Tensor]:
        """The mean of all so far, in float32."""
        return {name: (total / self._count).float() for name, total in self._sums.items()}


def checkpoints(runs: Sequence[Path], last: int | None = None) -> list[Path]:
    """The files to average: of one run its snapshots, or the newest `last` of them.

    Of several runs the best weights of each; where a file is named, that. Raises UserError where
    there are too few.
    """
    if len(runs) == 1 and not runs[0].is_file():
        return _kept(runs[0], last)
    if last is not None:
        raise UserError(f"--last {last}: belongs to a single run folder, whose snapshots it counts")
    paths = [each if each.is_file() else each / BEST for each in runs]
    for given, path in zip(runs, paths, strict=True):
        if path.name != BEST and snapshot_step(path) is None:
            raise UserError(f"{given}: give a run folder, or its {BEST} or a step-N.safetensors")
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise UserError(f"{given}: given twice; {_ONCE}")
    return paths


def _kept(run: Path, last: int | None) -> list[Path]:
    read_config(run)  # refuses what is no run folder
    if last == 1:
        raise UserError("--last 1: one checkpoint is its own average; give at least 2")
    found, wanted = snapshots(run), max(2, last or 0)
    if len(found) < wanted:
        raise UserError(
            f"{run}: too few snapshots of its weights, step-N.safetensors: {len(found)} of at "
            f"least {wanted}; train with training.keep, or name several runs"
        )
    return found if last is None else found[-last:]


def _check_new(new: Path, paths: Sequence[Path], overwrite: bool) -> None:
    """Refuse to write where an input lies, or over what is not asked to be replaced."""
    check_place(new)
    if any(path.resolve().parent == new.resolve() for path in paths):
        raise UserError(f"{new}: is one of the runs to average; give the name of a new folder")
    if not new.exists() or all(entry.name == LOCK for entry in new.iterdir()):
        return
    if not run_lives(new):
        raise UserError(f"{new}: holds other things than a run; give the name of a new folder")
    if not overwrite:
        raise UserError(f"{new}: a run lives here already; replace it with --overwrite")


def _source(loaded: _Loaded, others: Sequence[_Source]) -> _Source:
    """What is told of a checkpoint; UserError where its weights are those of another."""
    path, header = loaded.path, loaded.header
    with header_errors(path):
        source = _Source(path, int(header["step"]), str(header["tensors"]))
    for other in others:
        if other.tensors == source.tensors:
            raise UserError(f"{path}: holds the weights of {other.path}; {_ONCE}")
    return source


def _load(path: Path, device: torch.device) -> _Loaded:
    parts = load_best(path.parent, device, path.name)
    return _Loaded(path, read_header(path)[0], *parts)


def _check_alike(loaded: _Loaded, first: _Loaded) -> None:
    """Refuse weights of another model: what they have in common is not their mean."""
    path = loaded.path
    if checksums_of(loaded.vocabularies) != checksums_of(first.vocabularies):
        raise UserError(f"{path}: its vocabulary is not that of {first.path}; an average needs one")
    directions = [each.config.data.direction for each in (loaded, first)]
    if directions[0] != directions[1]:
        raise UserError(f"{path}: translates {directions[0]}, {first.path} {directions[1]}")
    changes = [
        each
        for each in config_changes(first.path, first.header, loaded.config)
        if each.startswith("model.") and not each.startswith("model.dropout:")
    ]
    shapes = [shapes_of(own_weights(each.model)) for each in (loaded, first)]
    if changes or shapes[0] != shapes[1]:
        difference = ", ".join(changes) or "data.max_length"
        raise UserError(f"{path}: is not the model of {first.path}: {difference}")


def _seed_notes(paths: Sequence[Path]) -> list[str]:
    seeds = sorted({read_config(path.parent).seed for path in paths})
    if len(seeds) < 2:
        return []
    return [
        f"warning: runs of different seeds ({', '.join(map(str, seeds))}) began with different "
        "weights, whose mean seldom translates; as an ensemble (-m RUN -m RUN) they do"
    ]


def _validation_text(config: Config) -> tuple[ParallelText | None, list[str]]:
    """What validation looks at; where that cannot be read, none and a note."""
    files = config.data.valid
    try:
        return usable(read_pairs(files.src, files.tgt, files.tsv))[0], []
    except UserError as error:
        return None, [f"note: no validation BLEU was measured: {error}"]


def _bleu(loaded: _Loaded, valid: ParallelText | None) -> float | None:
    """The validation BLEU of greedy search, as training measures it."""
    if valid is None:
        return None
    _, _, model, vocabularies, limit, config = loaded
    device = next(model.parameters()).device
    longest = config.data.max_length
    translator = Translator(model, vocabularies, limit, config.decoding, longest, device)
    translations = translator.translate(valid.src, beam_size=1, text_only=True)
    tokenize = tokenizer_of(config.data.tgt_lang)
    return bleu_score([each.text for each in translations], valid.tgt, tokenize)


def _with_bleu(name: str, bleu: float | None) -> str:
    return name if bleu is None else f"{name}: validation BLEU {bleu:.2f}"


def _verdict(
    bleu: float | None, scores: Sequence[float | None], paths: Sequence[Path]
) -> list[str]:
    """What to say where averaging did not help."""
    best, path = max((score or 0.0, path) for score, path in zip(scores, paths, strict=True))
    if bleu is None or bleu > best:
        return []
    return [f"note: the average is no better than {path} (validation BLEU {best:.2f})"]


def _write(new: Path, averaged: _Loaded, bleu: float | None, sources: Sequence[_Source]) -> None:
    """The run folder; its config comes first, so that `--overwrite` replaces a half-made one."""
    weights, step = own_weights(averaged.model), max(each.step for each in sources)
    provenance = provenance_of(averaged.config, averaged.vocabularies, model_keys_only=True)
    told = [{**each._asdict(), "path": str(each.path)} for each in sources]
    with exclusive_lock(new):
        clear(new)
        create_run(new, averaged.config.model_copy(update={"run_dir": new}), averaged.vocabularies)
        provenance["averaged"] = told
        save_weights(new / BEST, weights, averaged.limit, step, bleu, provenance)
