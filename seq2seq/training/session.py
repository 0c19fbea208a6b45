"""Training session: the data, model and state that training works on."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config
from seq2seq.data import batching, corpus
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.padding import Batch
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.model.seq2seq import Seq2Seq, evaluation_copy, named_weights
from seq2seq.runs import checkpoint, layout, metrics_file, run_config, tensor_file, training_state
from seq2seq.runs.checkpoint import LoadedRun, weights_header
from seq2seq.runs.training_state import Progress, StateTensors, TrainingState
from seq2seq.runtime import cuda_graphs, errors, locks, process_group
from seq2seq.runtime.device import derive_seed, resolve_precision
from seq2seq.text import joined_profile, learned_profile
from seq2seq.text.copied_words import NameInventor
from seq2seq.text.source_profile import SourceProfile
from seq2seq.training.optimizer import Optimizer


class SessionData(NamedTuple):
    """The texts of a run and their ids; ids of `valid` are those of pairs with text."""

    vocabularies: Vocabularies
    train: batching.EncodedPairs
    valid: corpus.ParallelText
    valid_pairs: batching.EncodedPairs
    limit: LengthLimit
    checksums: Mapping[str, str]  # texts of the splits, and cache entries of the first
    source: SourceProfile  # by which lines are changed before search
    # with all habits of this text and of the one that an earlier run was trained on; None without
    joined: SourceProfile | None = None

    def joined_with(self, limit: LengthLimit, source: SourceProfile) -> "SessionData":
        """Return the data with limit and profile of an earlier text, too, whose habits remain.

        Habits that this text alone has are pending: validation adopts them.
        """
        joined = joined_profile.joined([source, self.source])
        in_use = joined_profile.without_new_habits(joined, source)
        return self._replace(limit=limit.joined(self.limit), source=in_use, joined=joined)


def pending_habits(data: SessionData) -> list[str]:
    """Return the habits of the text, as in HABITS, that weights of another run have not learned."""
    return [] if data.joined is None else joined_profile.new_habits(data.joined, data.source)


@dataclass(frozen=True)
class OpenRun:
    """A run that this process trains, alone or as one of a group."""

    lock: locks.FolderLock | None = None  # on its folder, in the process that writes there
    group: process_group.ProcessGroup = process_group.SINGLE_PROCESS

    def verify_lock(self) -> None:
        """Raise RunError if another process may write in the run folder."""
        if self.lock is not None:
            self.lock.verify()


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
    run: OpenRun
    hypotheses: list[str] = field(default_factory=list)  # hypotheses of the last validation

    def tensors(self) -> StateTensors:
        """Return the tensors that a training state records."""
        return StateTensors(named_weights(self.model), self.averages, self.optimizer.state)

    def save_state(self) -> None:
        """Write the training state; the file that it replaces becomes the previous one."""
        if not self.run.group.is_main:
            return
        self.run.verify_lock()
        config = self.config
        data = self.data
        header = {**run_config.provenance_of(config, data.vocabularies), "data": data.checksums}
        if data.joined is not None:
            header[run_config.SOURCE] = asdict(data.source)
        training_state.save_state(config.run_dir, self.tensors(), self.progress, data.limit, header)

    def save_weights(self, bleu: float, best: bool) -> None:
        """Write the weights, as the best ones or as a snapshot, or not at all."""
        if not self.run.group.is_main:
            return
        self.run.verify_lock()
        config = self.config
        data = self.data
        folder = self.config.run_dir
        provenance = run_config.provenance_of(config, data.vocabularies, model_keys_only=True)
        provenance[run_config.SOURCE] = asdict(data.source)
        header = weights_header(data.limit, self.progress.step, bleu, provenance)
        if best:
            checkpoint.save_weights(folder / layout.BEST, named_weights(self.model), header)
        if keep := config.training.keep:
            checkpoint.save_snapshot(folder, named_weights(self.model), header, keep)

    @cached_property
    def inference(self) -> Seq2Seq:
        """The model as search sees it, with the weights in training."""
        return evaluation_copy(self.model)

    @cached_property
    def engine(self) -> TorchEngine:
        """The engine of validation, with the weights in training."""
        return TorchEngine(self.inference, self.device)

    @property
    def is_static(self) -> bool:
        """Return whether steps read and write the same tensors, as CUDA graphs do."""
        return self.device.type not in ("cpu", "mps")

    @cached_property
    def graphs(self) -> cuda_graphs.Graphs:
        """The CUDA graphs of a step."""
        return cuda_graphs.Graphs(self.device)

    @cached_property
    def sums(self) -> Tensor:
        """The summed losses [2] of the micro-batches of a step."""
        return torch.zeros(2, device=self.device)

    @cached_property
    def inventor(self) -> NameInventor | None:
        """The source of invented names, if the config asks for any."""
        rate = self.config.vocabulary.invented_names
        train = self.data.train
        symbols = self.data.vocabularies.src.symbols
        return NameInventor(train.src_texts, train.tgt_texts, rate, symbols) if rate > 0 else None


def call_on_device(
    session: TrainingSession, function: Callable[..., Any], batch: Batch, *further: Tensor | None
) -> Any:
    """Call `function(session, batch, *further)` on the device, on CUDA as a graph.

    Its result is valid until the next call; it uses no other tensors than the session keeps.
    """
    parts = [*batch, *further]
    shapes = tuple(None if part is None else part.shape for part in parts)

    def call(*tensors: Tensor) -> Any:
        inputs = iter(tensors)
        arguments = [None if shape is None else next(inputs) for shape in shapes]
        fields = arguments[: len(batch)]
        return function(session, Batch(*fields), *arguments[len(batch) :])  # type: ignore[arg-type]

    key = function.__name__, *shapes
    return session.graphs.call(key, call, *(part for part in parts if part is not None))


def session_data(
    config: Config,
    vocabularies: Vocabularies,
    train: batching.EncodedPairs,
    valid: corpus.ParallelText,
    limit: LengthLimit | None = None,
) -> SessionData:
    """Return texts and ids as a session needs them; a length limit is estimated if None.

    Raises UserError if no training pair is short enough or no validation pair has text.
    """
    if not len(train):
        reason = f"every training pair is longer than {config.data.max_length} tokens. Increase it"
        raise errors.UserError(f"data.max_length: {reason}")
    if limit is None:  # ten tokens more than 99% of the training pairs need
        limit = LengthLimit(batching.length_ratio(train, 0.99), 10)
    with_text, _ = corpus.usable(valid)
    valid_pairs = batching.encode_pairs(with_text.src, with_text.tgt, vocabularies, None)
    symbols = vocabularies.src.symbols
    copies = config.model.copy
    source = learned_profile.describe_source(train.src_texts, train.tgt_texts, symbols, copies)
    return SessionData(vocabularies, train, valid, valid_pairs, limit, {}, source)


def new_session(
    config: Config,
    device: torch.device,
    data: SessionData,
    start: LoadedRun | None = None,
    run: OpenRun = OpenRun(),
) -> TrainingSession:
    """Return a session before its first step, with random weights or those of a warm start."""
    torch.manual_seed(derive_seed(config.seed, 0, 0))
    model = checkpoint.new_model(config, data.vocabularies)
    if start is not None:
        tensor_file.copy_into(named_weights(start.model), named_weights(model), layout.BEST)
    model = model.to(device)
    averages = {name: weight.clone() for name, weight in named_weights(model).items()}
    progress = Progress(metrics_checksum=metrics_file.LineCount().checksum)
    progress.precision = resolve_precision(config.training.precision, device)
    progress.move_to(device, config.training.log_every)
    return TrainingSession(
        config,
        device,
        data,
        model,
        averages if config.training.average else {},
        Optimizer(config.training, model.parameters()),
        progress,
        run,
    )


def restore(session: TrainingSession, state: TrainingState) -> list[str]:
    """Restore a saved state; return a note if the next validation has to write the best weights."""
    config = session.config
    progress = state.progress
    session.graphs.clear()  # they read tensors that are replaced
    training_state.restore_tensors(state, session.tensors())
    progress.move_to(session.device, config.training.log_every)
    session.progress = progress
    if (source := training_state.recorded_source(state)) is not None:
        session.data = session.data._replace(source=source)
    vocabularies = session.data.vocabularies
    if progress.best_score < 0 or checkpoint.best_is_intact(config.run_dir, config, vocabularies):
        return []
    progress.best_score = -1.0
    progress.best_step = 0
    progress.validated_step = 0
    best = config.run_dir / layout.BEST
    return [f"{best} is damaged or missing; the next validation writes it again"]
