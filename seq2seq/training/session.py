"""Training session: set up a new or resumed run from its config, with data, model and state."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config, DataConfig
from seq2seq.data.alignment_targets import check_words, note_unaligned
from seq2seq.data.batching import EncodedPairs, encode_pairs, length_ratio
from seq2seq.data.corpus import (
    ParallelText,
    check_directions,
    checksum_of_text,
    read_pairs,
    same_sides,
    usable,
)
from seq2seq.data.invented_names import NameInventor
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.natural_language import note_not_language
from seq2seq.data.source_profile import SourceProfile, describe_source
from seq2seq.data.training_data import training_data
from seq2seq.data.vocabulary.vocabulary import Vocabularies, check_tags
from seq2seq.evaluation.metrics import not_nfc_note
from seq2seq.evaluation.segmentation import segmentation_of
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.model.seq2seq import Seq2Seq, count_parameters, named_weights
from seq2seq.runs import checkpoint, layout
from seq2seq.runs.metrics_file import LineCount, restore_metrics
from seq2seq.runs.provenance import provenance_of, recorded_vocabularies
from seq2seq.runs.run_folder import clear, remove_parts
from seq2seq.runs.training_state import (
    Progress,
    TrainingState,
    check_texts,
    read_state,
    recorded_digests,
    restore_tensors,
    save_state,
    text_checksums,
)
from seq2seq.runs.warm_start import WarmStart, read_warm_start, resumed_vocabularies
from seq2seq.runtime.console import counted
from seq2seq.runtime.device import derive_seed, resolve_precision, trim_memory
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.locks import FolderLock
from seq2seq.runtime.process_group import SINGLE_PROCESS, ProcessGroup
from seq2seq.training.gradient_exchange import GradientExchange
from seq2seq.training.optimizer import Optimizer
from seq2seq.training.pretrained import NOT_PRETRAINED, Pretrained, read_pretrained


class SessionData(NamedTuple):
    """The texts of a run and their ids.

    `valid` has every pair, since BLEU counts every line as `evaluate` does; the ids are those of
    pairs with text on both sides.
    """

    vocabularies: Vocabularies
    train: EncodedPairs
    valid: ParallelText
    valid_pairs: EncodedPairs
    limit: LengthLimit
    checksums: Mapping[str, str]  # texts of the splits, and cache entries of the first
    source: SourceProfile


class NullWriter:
    """Run folder of a rank other than the main process: writes nothing."""

    def verify_lock(self) -> None:
        """Raise RunError if another process may write in the run folder."""

    def save_state(self, session: "TrainingSession") -> None:
        """Write the training state; the file that it replaces becomes the previous one."""

    def save_weights(self, session: "TrainingSession", bleu: float, best: bool) -> None:
        """Write the weights, as the best ones or as a snapshot, or not at all."""


class RunWriter(NullWriter):
    """Run folder of the main process."""

    def __init__(self, lock: FolderLock | None = None) -> None:
        """Write in a folder that this process has locked, if others might train there."""
        self._lock = lock

    def verify_lock(self) -> None:
        if self._lock is not None:
            self._lock.verify()

    def save_state(self, session: "TrainingSession") -> None:
        self.verify_lock()
        config, data, progress = session.config, session.data, session.progress
        weights, moments = named_weights(session.model), session.optimizer.state
        header = {**provenance_of(config, data.vocabularies), "data": data.checksums}
        folder, limit = config.run_dir, data.limit
        save_state(folder, weights, session.averages, moments, progress, limit, header)

    def save_weights(self, session: "TrainingSession", bleu: float, best: bool) -> None:
        config, data, step = session.config, session.data, session.progress.step
        folder, keep, weights = config.run_dir, config.training.keep, named_weights(session.model)
        self.verify_lock()
        provenance = provenance_of(config, data.vocabularies, model_keys_only=True)
        provenance[checkpoint.SOURCE] = asdict(data.source)
        if best:
            path = folder / layout.BEST
            checkpoint.save_weights(path, weights, data.limit, step, bleu, provenance)
        if keep:
            checkpoint.save_snapshot(folder, weights, data.limit, step, bleu, provenance, keep)


@dataclass
class TrainingSession:
    """The objects that training works on; a roll back replaces `progress`."""

    config: Config
    device: torch.device
    data: SessionData
    model: Seq2Seq
    averages: dict[str, Tensor]  # moving averages of the weights; empty without averaging
    optimizer: Optimizer
    progress: Progress
    group: ProcessGroup = SINGLE_PROCESS
    writer: NullWriter = field(default_factory=NullWriter)
    hypotheses: list[str] = field(default_factory=list)  # hypotheses of the last validation

    @cached_property
    def inference(self) -> InferenceModel:
        """The model as search sees it, with the weights in training."""
        return InferenceModel(self.model)

    @cached_property
    def exchange(self) -> GradientExchange | None:
        """The exchange of gradients with other ranks, if there are any."""
        several = self.group.size > 1
        return GradientExchange(self.model.parameters(), self.group) if several else None

    @cached_property
    def inventor(self) -> NameInventor | None:
        """The source of invented names, if the config asks for any."""
        rate, train = self.config.vocabulary.invented_names, self.data.train
        symbols = self.data.vocabularies.src.symbols
        return NameInventor(train.src_texts, train.tgt_texts, rate, symbols) if rate > 0 else None


class Texts(NamedTuple):
    """The parallel texts of a config, pairs with a blank side included."""

    train: ParallelText
    valid: ParallelText
    test: ParallelText | None


def prepare(
    config: Config,
    device: torch.device,
    state: TrainingState | None = None,
    init_from: Path | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
    lock: FolderLock | None = None,
) -> tuple[TrainingSession, list[str]]:
    """Set up a run in its folder, which `lock` protects: a new one, or that of `state` to resume.

    A new run is initialised from the vocabulary and the best weights of the run in `init_from`, if
    given. Returns notes for the log, too. Raises UserError if data, config or state do not fit.
    """
    start = read_warm_start(init_from, config) if init_from is not None and state is None else None
    digests = None if state is None else recorded_digests(state.header)
    with training_data(config.data.train, config.run_dir, digests) as source:
        train = source.text
        valid, _ = other_texts(config.data, train)
        filled, valid_blank = usable(valid)
        checksums = text_checksums(source.checksum, checksum_of_text(valid))
        repairs: list[str] = []
        if state is not None:
            check_texts(config.run_dir, state.header, checksums)
            vocabularies, repairs = resumed_vocabularies(state, config, source, init_from)
        elif start is not None and start.keeps_vocabulary:
            vocabularies = start.trained
        else:
            vocabularies = source.vocabularies(config.vocabulary)
        check_tags(vocabularies, config.data.tags)
        if guided := config.training.losses.guided_alignment > 0:
            check_words(vocabularies)
        pairs = source.pairs(vocabularies, config.data.max_length)
        checksums |= source.digests
        limit = state and state.limit
        random = state is None and start is None
        pretrained = read_pretrained(config, vocabularies) if random else NOT_PRETRAINED
        session = new_session(
            config, device, vocabularies, pairs, valid, checksums, limit, start, pretrained
        )
    session.group, session.writer = group, RunWriter(lock)
    folder = config.run_dir
    session.writer.verify_lock()
    if state is None:
        clear(folder)
        checkpoint.create_run(folder, config, vocabularies)
        session.writer.save_state(session)  # from here on, --resume always finds a state
    else:
        repairs += restore(session, state)
        with layout.writing(folder / layout.METRICS):
            problem = restore_metrics(folder, session.progress)
        repairs += [problem] if problem else []
        checkpoint.remove_snapshots(folder, after=session.progress.step)
        remove_parts(folder)
        checkpoint.update_config(folder, config)
    notes = [*_notes(session, source.blank, valid_blank), *source.notes, *repairs]
    notes += pretrained.notes()
    if start is not None:
        notes.append(start.note(vocabularies))
        if config.data.embeddings is not None:
            notes.append("data.embeddings is not read: --init-from gives all weights")
    suspicious = (
        same_sides(train, source.same),
        same_sides(filled),
        *map(note_not_language, source.samples(), config.data.train),
        *(
            note_unaligned(text, vocabularies)
            for text, files in zip(source.samples(), config.data.train, strict=True)
            if guided and files.alignment is not None
        ),
        not_nfc_note(f"{valid.source_name}, target", valid.tgt),
        segmentation_of(config.data.tgt_lang, [valid.tgt]).validation_note(),
    )
    trim_memory()
    return session, [*notes, *filter(None, suspicious)]


def join_run(config: Config, device: torch.device, group: ProcessGroup) -> TrainingSession:
    """Load, on a rank other than the main process, the run that the main process has set up.

    Its state has the precision that the main process chose for all ranks.
    Raises UserError if this process does not see the run folder or cannot read the data again.
    """
    state = read_state(config.run_dir)
    if state is None:
        raise UserError(
            f"run_dir: {config.run_dir} is not visible to all ranks. Use a shared file system"
        )
    for files in (*config.data.train, config.data.valid):
        for path in files.paths.values():
            if not path.is_file():
                raise UserError(f"{path}: every process reads this file; give a regular file")
    folder, sampling = config.run_dir / layout.VOCABULARY, config.vocabulary.sampling
    vocabularies = recorded_vocabularies(state.path, state.header, folder, sampling)
    digests = recorded_digests(state.header)
    with training_data(config.data.train, config.run_dir, digests) as source:
        valid, _ = other_texts(config.data, source.text)
        pairs = source.pairs(vocabularies, config.data.max_length)
    checksums = text_checksums(source.checksum, checksum_of_text(valid)) | source.digests
    session = new_session(config, device, vocabularies, pairs, valid, checksums, state.limit)
    session.group = group
    restore(session, state)
    return session


def read_texts(data: DataConfig) -> Texts:
    """Read the three splits as they are in their files.

    Raises UserError as `read_pairs` does, and if the languages of a split seem to be swapped.
    """
    train = read_pairs(data.train)
    return Texts(train, *other_texts(data, train))


def other_texts(data: DataConfig, train: ParallelText) -> tuple[ParallelText, ParallelText | None]:
    """Read the validation and test text, checked against the training text."""
    valid, test = read_pairs(data.valid), read_pairs(data.test) if data.test else None
    check_directions(train, [valid] if test is None else [valid, test], data.src_lang)
    return valid, test


def new_session(
    config: Config,
    device: torch.device,
    vocabularies: Vocabularies,
    train: EncodedPairs,
    valid: ParallelText,
    checksums: Mapping[str, str] | None = None,
    limit: LengthLimit | None = None,
    start: WarmStart | None = None,
    pretrained: Pretrained = NOT_PRETRAINED,
) -> TrainingSession:
    """Return a session in memory before its first step, with random weights or a warm start.

    Without a length limit, estimate it. Raises UserError if no training pair is short enough or
    no validation pair has text on both sides.
    """
    if not len(train):
        raise UserError(
            f"data.max_length: every training pair is longer than {config.data.max_length} tokens. "
            "Increase it"
        )
    if limit is None:  # ten tokens more than 99% of the training pairs need
        limit = LengthLimit(length_ratio(train, 0.99), 10)
    with_text, _ = usable(valid)
    valid_pairs = encode_pairs(with_text.src, with_text.tgt, vocabularies, None)
    torch.manual_seed(derive_seed(config.seed, 0, 0))
    model = checkpoint.new_model(config, vocabularies)
    pretrained.initialise(model)
    if start is not None:
        start.initialise(model, vocabularies)
    model = model.to(device)
    own = named_weights(model)
    averages = {name: weight.clone() for name, weight in own.items()}
    progress = Progress(metrics_checksum=LineCount().checksum)
    progress.precision = resolve_precision(config.training.precision, device)
    progress.move_to(device, config.training.log_every)
    source = describe_source(
        train.src_texts, train.tgt_texts, vocabularies.src.symbols, config.model.copy
    )
    return TrainingSession(
        config,
        device,
        SessionData(vocabularies, train, valid, valid_pairs, limit, checksums or {}, source),
        model,
        averages if config.training.average else {},
        Optimizer(config.training, model.parameters()),
        progress,
    )


def restore(session: TrainingSession, state: TrainingState) -> list[str]:
    """Restore the session to a saved state.

    If the best weights are damaged, let the next validation write them again and return a note.
    """
    config, progress = session.config, state.progress
    restore_tensors(state, named_weights(session.model), session.averages, session.optimizer.state)
    progress.move_to(session.device, config.training.log_every)
    progress.precision = progress.precision or session.progress.precision
    session.progress = progress
    vocabularies = session.data.vocabularies
    if progress.best_score < 0 or checkpoint.best_is_intact(config.run_dir, config, vocabularies):
        return []
    progress.best_score, progress.best_step, progress.validated_step = -1.0, 0, 0
    best = config.run_dir / layout.BEST
    return [f"{best} is damaged or missing; the next validation writes it again"]


def _notes(session: TrainingSession, train_blank: int, valid_blank: int) -> list[str]:
    """Describe data, model and device for the log."""
    config, data, progress = session.config, session.data, session.progress
    parameters = count_parameters(session.model)
    src, tgt = (len(vocabulary) for vocabulary in data.vocabularies[:2])
    threads = torch.get_num_threads()
    sizes = f"{src:,} tokens, joint" if data.vocabularies.joint else f"{src:,} and {tgt:,} tokens"
    notes = [
        f"{config.name}: {config.data.src_lang} -> {config.data.tgt_lang}, "
        f"{len(data.train):,} training pairs, {len(data.valid_pairs):,} validation pairs, "
        f"vocabulary of {sizes}",
        f"{config.model.decoder} decoder, {parameters:,} parameters, on {session.device}, "
        f"{counted(threads, 'thread')}, {progress.precision}",
    ]
    if data.train.links is not None and not config.training.losses.guided_alignment:
        notes.append("data.train.alignment has no effect: training.losses.guided_alignment is 0")
    longest = config.data.max_length
    for count, reason in (
        (train_blank, "with a blank side"),
        (data.train.too_long, f"with more than {longest} tokens on a side"),
    ):
        if count:
            notes.append(f"skipped in training: {counted(count, 'pair')} {reason}")
    if valid_blank:
        notes.append(
            f"in validation: {counted(valid_blank, 'pair')} with a blank side, "
            "which the loss leaves out and BLEU counts, as seq2seq evaluate does"
        )
    if progress.step:
        notes.append(f"resumed at step {progress.step}, epoch {progress.epoch + 1}")
    return notes
