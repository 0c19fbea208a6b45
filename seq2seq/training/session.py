"""A config made ready to train: data read and checked, folder, vocabulary, model and state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config, DataConfig
from seq2seq.data.batching import EncodedPairs, derive_seed, encode_pairs, length_ratio
from seq2seq.data.corpus import (
    ParallelText,
    check_direction,
    read_pairs,
    same_sides,
    usable,
)
from seq2seq.data.training_data import checksum_of_text, training_data
from seq2seq.data.vocabulary import Vocabularies
from seq2seq.evaluation.metrics import not_nfc_note
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import (
    BEST,
    VOCABULARY,
    LengthLimit,
    Progress,
    best_is_whole,
    create_run,
    new_model,
    own_weights,
    update_config,
)
from seq2seq.runs.provenance import provenance_of, recorded_vocabularies
from seq2seq.runs.resuming import check_texts, resumed_vocabularies
from seq2seq.runs.run_folder import clear, remove_parts
from seq2seq.runs.snapshots import remove_snapshots
from seq2seq.runs.tensor_file import read_header
from seq2seq.runs.training_state import load_last, resumable, save_last
from seq2seq.runs.warm_start import read_warm_start
from seq2seq.runtime.device import trim_memory
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training.optimizer import Optimizer


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
    optimizer: Optimizer
    limit: LengthLimit
    loss: Tensor  # since the last report, on the device: nats, and of how many tokens
    skipped: Tensor  # [log_every or more], on the device: which updates since then were not taken
    max_micro_batch_positions: int | None = (
        None  # target positions that memory has room for, if it ran out
    )
    progress: Progress = field(default_factory=Progress)
    group: ProcessGroup = field(default_factory=ProcessGroup)
    seconds: float = 0.0  # trained before this process
    hypotheses: list[str] = field(default_factory=list)  # of the last validation
    checksums: dict[str, str] = field(default_factory=dict)  # of the texts of train and valid

    @cached_property
    def inference(self) -> InferenceModel:
        """The model behind the calls of search, sharing the weights in training."""
        return InferenceModel(self.model)

    def skipped_updates(self) -> list[int]:
        """Those since the last report that were not taken, their loss being no finite number."""
        flags, last = self.skipped.tolist(), self.progress.step
        first = max(self.progress.reported_step, last - len(flags)) + 1
        return [step for step in range(first, last + 1) if flags[step % len(flags)]]


class Texts(NamedTuple):
    """The parallel texts of a config, blank lines included."""

    train: ParallelText
    valid: ParallelText
    test: ParallelText | None


def prepare(
    config: Config,
    device: torch.device,
    resume: bool,
    init_from: Path | None = None,
    group: ProcessGroup | None = None,
) -> tuple[Run, list[str]]:
    """Read and check all data, make or read vocabulary, model and state; returns run and notes.

    A new run begins with the vocabulary and the best weights of the run `init_from`, if that is
    given.
    """
    resume = resume and resumable(config.run_dir) is not None  # or else nothing was saved yet
    start = read_warm_start(init_from, config) if init_from is not None and not resume else None
    with training_data(config.data.train, config.run_dir) as data:
        text = data.text
        valid, valid_blank = usable(other_texts(config.data, text)[0])
        checksums = {"train": data.checksum, "valid": checksum_of_text(valid)}
        repairs: list[str] = []
        if resume:
            check_texts(config.run_dir, checksums)
            vocabularies, repairs = resumed_vocabularies(config, data, init_from)
        elif start is not None:
            vocabularies = start.vocabularies
        else:
            vocabularies = data.vocabularies(config.vocabulary)
        pairs = data.pairs(vocabularies, config.data.max_length)
        run = assemble(config, device, vocabularies, pairs, valid, start and start.weights)
        run.checksums = checksums
        run.group = group or run.group
    if resume:
        repairs += _resume_folder(run)
    else:
        _begin_folder(run)
    notes = [*_notes(run, data.blank, valid_blank), *data.notes, *repairs]
    if start is not None:
        notes.append(start.note(config))
    odd = (
        same_sides(text, data.same),
        same_sides(valid),
        not_nfc_note(f"{valid.source_name}, target", valid.tgt),
    )
    trim_memory()
    return run, [*notes, *filter(None, odd)]


def _begin_folder(run: Run) -> None:
    """Clear the run folder and write the run's beginning there."""
    folder = run.config.run_dir
    clear(folder)
    create_run(folder, run.config, run.vocabularies)
    save_run(run, 0.0)  # whatever happens from here on, --resume finds something


def _resume_folder(run: Run) -> list[str]:
    """Put run and folder back to where it was last saved; returns what had to be mended."""
    folder = run.config.run_dir
    repairs = restore(run)
    remove_snapshots(folder, after=run.progress.step)
    remove_parts(folder)
    update_config(folder, run.config)
    return repairs


def join_run(config: Config, device: torch.device, group: ProcessGroup) -> Run:
    """The run that another rank has prepared: what it wrote is read, and no state is written.

    Raises UserError where this process does not see it.
    """
    last = resumable(config.run_dir)
    if last is None:
        raise UserError(f"run_dir: {config.run_dir} is not seen by all ranks; let them share it")
    for files in (config.data.train, config.data.valid):
        for path in filter(None, (files.src, files.tgt, files.tsv)):
            if not path.is_file():
                raise UserError(f"{path}: each of several processes reads it; give a plain file")
    header, _ = read_header(last)
    sampling = config.vocabulary.sampling
    vocabularies = recorded_vocabularies(last, header, config.run_dir / VOCABULARY, sampling)
    with training_data(config.data.train, config.run_dir) as data:
        valid, _ = usable(other_texts(config.data, data.text)[0])
        pairs = data.pairs(vocabularies, config.data.max_length)
    run = assemble(config, device, vocabularies, pairs, valid)
    run.group = group
    run.checksums = {"train": data.checksum, "valid": checksum_of_text(valid)}
    restore(run)
    return run


def read_texts(data: DataConfig) -> Texts:
    """The three splits as they are in their files.

    Raises UserError as `read_pairs` does, and where the languages of one seem to be swapped.
    """
    train = read_pairs(data.train)
    return Texts(train, *other_texts(data, train))


def other_texts(data: DataConfig, train: ParallelText) -> tuple[ParallelText, ParallelText | None]:
    """Validation and test, checked against the training text."""
    valid, test = read_pairs(data.valid), read_pairs(data.test) if data.test else None
    for other in (valid, test):
        if other is not None:
            check_direction(train, other)
    return valid, test


def assemble(
    config: Config,
    device: torch.device,
    vocabularies: Vocabularies,
    train: EncodedPairs,
    valid: ParallelText,
    begin_with: Mapping[str, Tensor] | None = None,
) -> Run:
    """A run in memory, before its first update; no text has a blank side.

    Its weights are random, or those that are given. Raises UserError where no training pair is
    short enough.
    """
    longest = config.data.max_length
    if not len(train):
        raise UserError(
            f"data.max_length: every training pair is longer than {longest} pieces; raise it"
        )
    valid_pairs = encode_pairs(valid.src, valid.tgt, vocabularies, None)
    torch.manual_seed(derive_seed(config.seed, 0, 0))
    model = new_model(config, vocabularies).to(device)
    weights = own_weights(model)
    with torch.no_grad():
        for name, weight in (begin_with or {}).items():
            weights[name].copy_(weight)
    averages = {name: weight.clone() for name, weight in weights.items()}
    return Run(
        config=config,
        device=device,
        vocabularies=vocabularies,
        train=train,
        valid=valid,
        valid_pairs=valid_pairs,
        model=model,
        averages=averages if config.training.average else {},
        optimizer=Optimizer(config.training, model.parameters()),
        limit=learn_limit(train),
        loss=torch.zeros(2, dtype=torch.float64, device=device),
        skipped=torch.zeros(config.training.log_every, dtype=torch.bool, device=device),
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
    run.max_micro_batch_positions = progress.max_micro_batch_positions or None
    unreported = progress.step - progress.reported_step + run.config.training.log_every
    run.skipped = torch.zeros(unreported, dtype=torch.bool, device=run.device)
    for step in progress.skipped:
        run.skipped[step % len(run.skipped)] = True
    if progress.best_bleu < 0 or best_is_whole(folder, run.config, run.vocabularies):
        return []
    progress.best_bleu, progress.best_step, progress.validated_step = -1.0, 0, 0
    return [f"{folder / BEST} is damaged or missing; the next validation writes it anew"]


def save_run(run: Run, seconds: float) -> None:
    """Write all that training goes on from, after so many seconds of it."""
    loss, tokens = run.loss.tolist()
    run.progress.loss_sum, run.progress.loss_tokens = loss, int(tokens)
    run.progress.skipped = run.skipped_updates()
    run.progress.max_micro_batch_positions = run.max_micro_batch_positions or 0
    save_last(
        run.config.run_dir,
        own_weights(run.model),
        run.averages,
        run.optimizer,
        run.progress,
        run.limit,
        seconds,
        {**provenance_of(run.config, run.vocabularies), "data": run.checksums},
    )


def learn_limit(pairs: EncodedPairs) -> LengthLimit:
    """All but a hundredth of the training pairs, and ten pieces more, fit the limit."""
    return LengthLimit(length_ratio(pairs, 0.99), 10)


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
    longest = run.config.data.max_length
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
