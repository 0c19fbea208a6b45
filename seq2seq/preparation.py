"""A config made ready to train: data read and checked, folder, vocabulary, model and state."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seq2seq.batches import EncodedPairs, encode_pairs, seed_of
from seq2seq.checkpoint import (
    BEST,
    CONFIG,
    LAST,
    PREVIOUS,
    VOCABULARY,
    LengthLimit,
    Progress,
    best_is_whole,
    create_run,
    empty_model,
    own_weights,
    update_config,
    update_vocabularies,
    writing,
)
from seq2seq.config import Config, DataConfig, ParallelFiles
from seq2seq.corpus import ParallelText, check_direction, read_pairs, same_sides, usable
from seq2seq.errors import DamagedFile, UserError
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.optimization import make_optimizer
from seq2seq.origin import config_changes, origin_of, recorded_vocabularies
from seq2seq.reporting import LOG, METRICS, TENSORBOARD, TIMING
from seq2seq.tensor_file import read_header
from seq2seq.training_state import check_last, load_last, resumable, save_last
from seq2seq.vocabulary import Vocabularies, checksums_of, train_vocabularies
from seq2seq.whole_file import PART


@dataclass
class Run:
    """All that training works on."""

    config: Config
    device: torch.device
    vocabularies: Vocabularies
    train: EncodedPairs
    valid: ParallelText
    valid_pairs: EncodedPairs
    model: Seq2Seq
    averages: dict[str, Tensor]  # empty without averaging
    optimizer: torch.optim.Optimizer
    limit: LengthLimit
    loss: Tensor  # since the last report, on the device: nats, and of how many tokens
    untaken: Tensor  # [log_every], on the device: which updates since then were not taken
    largest_piece: int | None = None  # target positions that memory has room for, if it ran out
    progress: Progress = field(default_factory=Progress)
    seconds: float = 0.0  # trained before this process
    hypotheses: list[str] = field(default_factory=list)  # of the last validation

    def untaken_updates(self) -> list[int]:
        """Those since the last report that were not taken, their loss being no finite number."""
        flags, last = self.untaken.tolist(), self.progress.step
        first = max(self.progress.reported_step, last - len(flags)) + 1
        return [step for step in range(first, last + 1) if flags[step % len(flags)]]


class Texts(NamedTuple):
    """The parallel texts of a config, blank lines included."""

    train: ParallelText
    valid: ParallelText
    test: ParallelText | None


def check_folder(config: Config, resume: bool, overwrite: bool) -> None:
    """Refuse a folder another run lives in, and resuming what is not there or another config."""
    folder = config.run_dir
    if resume and overwrite:
        raise UserError("--resume and --overwrite: give one of them")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"run_dir: {folder} is a file; choose another name")
    above = next(each for each in folder.absolute().parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"run_dir: {folder} cannot be made in {above}; choose another place")
    if resume:
        _check_resumed(config)
    elif run_lives(folder) and not overwrite:
        raise UserError(
            f"{folder}: a run lives here already; go on with --resume, "
            "replace it with --overwrite, or set another run_dir"
        )


def run_lives(folder: Path) -> bool:
    """Whether a run was begun in this folder."""
    return any((folder / name).exists() for name in (CONFIG, BEST, LAST, PREVIOUS))


def _check_resumed(config: Config) -> None:
    """Refuse to resume unless the run was of this config; it may have been killed unsaved."""
    folder = config.run_dir
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; train without --resume")
    for name in (METRICS, TIMING, LOG, TENSORBOARD):
        if (folder / name).is_symlink():
            raise UserError(f"{folder / name}: is a link, through which no run writes; remove it")
    last = check_last(folder)
    if last is not None:
        changes = config_changes(*last, config)
        if changes:
            raise UserError(
                f"{folder}: --resume goes on with the config it began with, but these differ:\n  "
                + "\n  ".join(changes)
            )
    elif (folder / BEST).exists():
        raise UserError(
            f"{folder}: nothing to resume, it has no {LAST}; train again with --overwrite"
        )
    elif not (folder / CONFIG).exists():
        raise UserError(f"{folder}: not a run folder, it has no {CONFIG}; train without --resume")


def prepare(config: Config, device: torch.device, resume: bool) -> tuple[Run, list[str]]:
    """Read and check all data, make or read vocabulary, model and state; returns run and notes."""
    resume = resume and resumable(config.run_dir) is not None  # or else nothing was saved yet
    texts = read_texts(config.data)
    train, train_blank = usable(texts.train)
    valid, valid_blank = usable(texts.valid)
    if resume:
        vocabularies, repairs = _resumed_vocabularies(config, train)
    else:
        vocabularies = train_vocabularies(config.vocabulary, train.src, train.tgt)
        repairs = []
    run = assemble(config, device, vocabularies, train, valid)
    if resume:
        repairs += restore(run)
        _remove_parts(config.run_dir)
        update_config(config.run_dir, config)
    else:
        _clear(config.run_dir)
        create_run(config.run_dir, config, vocabularies)
        save_run(run, 0.0)  # whatever happens from here on, --resume finds something
    same = filter(None, map(same_sides, (train, valid)))
    return run, [*_notes(run, train_blank, valid_blank), *repairs, *same]


def follow(config: Config, device: torch.device) -> Run:
    """The run that another rank has prepared: read from its folder, in which nothing is written.

    Raises UserError where this process does not see that folder.
    """
    last = resumable(config.run_dir)
    if last is None:
        raise UserError(f"run_dir: {config.run_dir} is not seen by all ranks; let them share it")
    texts = read_texts(config.data)
    (train, _), (valid, _) = usable(texts.train), usable(texts.valid)
    header, _ = read_header(last)
    sampling = config.vocabulary.sampling
    vocabularies = recorded_vocabularies(last, header, config.run_dir / VOCABULARY, sampling)
    run = assemble(config, device, vocabularies, train, valid)
    restore(run)
    return run


def _resumed_vocabularies(config: Config, text: ParallelText) -> tuple[Vocabularies, list[str]]:
    """The run's vocabulary, learnt anew where its files are damaged: checksums tell it is the same.

    Returns a note where that was done.
    """
    folder, sampling = config.run_dir / VOCABULARY, config.vocabulary.sampling
    last = resumable(config.run_dir)
    assert last is not None, "only a run with a saved state is resumed"
    header, _ = read_header(last)
    try:
        return recorded_vocabularies(last, header, folder, sampling), []
    except DamagedFile:
        raise  # the header itself
    except UserError as error:
        vocabularies = train_vocabularies(config.vocabulary, text.src, text.tgt)
        if checksums_of(vocabularies) != header["vocabulary"]:
            raise UserError(
                f"{error}, but the training text does not give it either; "
                "put back the text or the vocabulary that the run began with"
            ) from None
        update_vocabularies(config.run_dir, vocabularies)
        return vocabularies, [f"{folder} was damaged; learnt anew, it is the same to the bit"]


def read_texts(data: DataConfig) -> Texts:
    """The three splits as they are in their files.

    Raises UserError as `read_pairs` does, and where the languages of one seem to be swapped.
    """
    texts = Texts(_read(data.train), _read(data.valid), _read(data.test) if data.test else None)
    for other in texts[1:]:
        if other is not None:
            check_direction(texts.train, other)
    return texts


def assemble(
    config: Config,
    device: torch.device,
    vocabularies: Vocabularies,
    train: ParallelText,
    valid: ParallelText,
) -> Run:
    """A run in memory, before its first update; the texts have no blank side.

    Raises UserError where no training pair is short enough.
    """
    longest = config.training.max_length
    pairs = encode_pairs(train.src, train.tgt, vocabularies, longest)
    if not len(pairs):
        raise UserError(
            f"training.max_length: every training pair is longer than {longest} pieces; raise it"
        )
    valid_pairs = encode_pairs(valid.src, valid.tgt, vocabularies, None)
    torch.manual_seed(seed_of(config.seed, 0, 0))
    model = empty_model(config, vocabularies).to(device)
    weights = own_weights(model)
    averages = {name: weight.clone() for name, weight in weights.items()}
    return Run(
        config,
        device,
        vocabularies,
        pairs,
        valid,
        valid_pairs,
        model,
        averages if config.training.average else {},
        make_optimizer(config.training, list(model.parameters())),
        learn_limit(pairs),
        torch.zeros(2, dtype=torch.float64, device=device),
        torch.zeros(config.training.log_every, dtype=torch.bool, device=device),
    )


def restore(run: Run) -> list[str]:
    """Put the run back where it was last saved; raises UserError where that cannot be read.

    Where the best weights are damaged, sees to it that they are written anew, and notes so.
    """
    folder = run.config.run_dir
    progress, run.limit, run.seconds = load_last(
        folder, run.model, run.averages, run.optimizer, run.device
    )
    run.progress = progress
    run.loss[0], run.loss[1] = progress.loss_sum, progress.loss_tokens
    run.untaken.zero_()
    for step in progress.untaken:
        run.untaken[step % len(run.untaken)] = True
    origin = origin_of(run.config, run.vocabularies, shaping_only=True)
    if not progress.best_step or best_is_whole(folder, origin):
        return []
    progress.best_bleu, progress.best_step, progress.validated_step = -1.0, 0, 0
    return [f"{folder / BEST} is damaged or missing; the next validation writes it anew"]


def save_run(run: Run, seconds: float) -> None:
    """Write all that training goes on from, after so many seconds of it."""
    loss, tokens = run.loss.tolist()
    run.progress.loss_sum, run.progress.loss_tokens = loss, int(tokens)
    run.progress.untaken = run.untaken_updates()
    save_last(
        run.config.run_dir,
        own_weights(run.model),
        run.averages,
        run.optimizer,
        run.progress,
        run.limit,
        seconds,
        origin_of(run.config, run.vocabularies),
    )


def _read(files: ParallelFiles) -> ParallelText:
    return read_pairs(files.src, files.tgt, files.tsv)


def _clear(folder: Path) -> None:
    """Remove a run, and nothing else that may lie beside it."""
    with writing(folder):
        for name in (PREVIOUS, LAST, BEST, METRICS, TIMING, LOG, CONFIG):
            (folder / name).unlink(missing_ok=True)
        for name in (VOCABULARY, TENSORBOARD):
            if (folder / name).is_symlink():
                (folder / name).unlink()
            elif (folder / name).is_dir():
                shutil.rmtree(folder / name)
    _remove_parts(folder)


def _remove_parts(folder: Path) -> None:
    """Remove what a killed process was writing."""
    with writing(folder):
        for name in (LAST, BEST, METRICS, CONFIG):
            (folder / f"{name}{PART}").unlink(missing_ok=True)


def learn_limit(pairs: EncodedPairs) -> LengthLimit:
    """All but a hundredth of the training pairs, and ten pieces more, fit the limit."""
    src = np.array([len(ids) + 1 for ids in pairs.src])
    tgt = np.array([len(ids) + 1 for ids in pairs.tgt])
    return LengthLimit(float(np.quantile(tgt / src, 0.99)), 10)


def _notes(run: Run, train_blank: int, valid_blank: int) -> list[str]:
    """What the log says of data, model and device before the first update."""
    data = run.config.data
    parameters = sum(weight.numel() for weight in own_weights(run.model).values())
    src, tgt = (len(vocabulary) for vocabulary in run.vocabularies)
    sizes = f"{src:,} pieces, joint" if run.vocabularies.joint else f"{src:,} and {tgt:,} pieces"
    notes = [
        f"{run.config.name}: {data.src_lang} -> {data.tgt_lang}, "
        f"{len(run.train):,} training pairs, {len(run.valid):,} validation pairs, "
        f"vocabulary of {sizes}",
        f"{run.config.model.decoder} decoder, {parameters:,} parameters, on {run.device}, "
        f"{torch.get_num_threads()} threads, {run.config.training.precision}",
    ]
    longest = run.config.training.max_length
    for count, why in (
        (train_blank, "in training: pairs with a blank side"),
        (run.train.too_long, f"in training: pairs of more than {longest} pieces a side"),
        (valid_blank, "in validation: pairs with a blank side"),
    ):
        if count:
            notes.append(f"skipped {why}: {count:,}")
    if run.progress.step:
        notes.append(f"resumed at update {run.progress.step}, epoch {run.progress.epoch + 1}")
    return notes
