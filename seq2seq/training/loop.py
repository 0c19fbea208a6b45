"""The training loop: epochs of optimizer steps with reports, validations, saves and stops."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import torch

from seq2seq.config.schema import Config
from seq2seq.data.batching import EpochOrder
from seq2seq.runs.layout import BEST
from seq2seq.runs.training_state import OpenFolder, open_folder
from seq2seq.runtime.console import console, fixed
from seq2seq.runtime.cuda_graphs import Graphs
from seq2seq.runtime.device import choose_device, deterministic, trim_memory
from seq2seq.runtime.errors import TrainingFailed
from seq2seq.runtime.locks import FolderLock
from seq2seq.runtime.process_group import ProcessGroup, process_group
from seq2seq.training import stopping
from seq2seq.training.batches import StepBatches
from seq2seq.training.callbacks import Callback
from seq2seq.training.clock import Clock, describe_time_left
from seq2seq.training.diagnosis import ValidationResult, diagnose
from seq2seq.training.divergence import divergence, log_skipped, roll_back
from seq2seq.training.optimizer import end_of_decay, learning_rate, schedule_note
from seq2seq.training.preparation import join_run, prepare
from seq2seq.training.reporting import Reporter, RunReporter
from seq2seq.training.selection import best_note
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import train_step
from seq2seq.training.stopping import StopSync, met_limit, stop_signals
from seq2seq.training.threads import restored_threads
from seq2seq.training.validation import validate

_SLOW = (
    "less than a third of the speed before; if other programs keep the processor busy, stop and "
    "resume with OMP_NUM_THREADS=1 (last digits will differ)"
)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, after the state was saved; `done` if training had finished by itself."""

    def __init__(self, signal_number: int, done: bool = False) -> None:
        super().__init__()
        self.signal_number = signal_number
        self.done = done


def check_is_config(config: object) -> None:
    """Raise TypeError for anything but a Config."""
    if not isinstance(config, Config):
        load = "config = load_config('my-run.yaml')"
        raise TypeError(f"config: must be a Config, not {config!r:.60}; write {load}")


def train(  # noqa: PLR0913
    config: Config,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    init_from: Path | str | None = None,
    callbacks: Iterable[Callback] = (),
    quiet: bool = False,
) -> Path:
    """Train a model and return the run folder; see `trained_run.train`, which users call."""
    check_is_config(config)
    init_from = None if init_from is None else Path(init_from)
    callbacks = [*callbacks]
    with nullcontext() if quiet else console(), process_group() as group, restored_threads():
        torch_device = choose_device(group.device_for(str(device)))
        with deterministic(torch_device):  # set before CUDA starts
            group.use_device(torch_device)
            folder = open_folder(config, resume, overwrite) if group.is_main else nullcontext()
            with folder as main_folder:  # None in the other processes
                session, notes = _set_up(config, torch_device, group, main_folder, init_from)
                if resume and main_folder is not None and main_folder.state is None:
                    notes.append(f"{config.run_dir} had no saved state to resume: started the run")
                _train(session, notes, init_from is not None, callbacks)
                if main_folder is not None:
                    del session  # its memory serves the engine
                    _write_engine(config.run_dir, main_folder.lock)
    return config.run_dir


def _write_engine(folder: Path, lock: FolderLock | None) -> None:
    """Write what the engine on a CPU reads of the best weights, once training has finished."""
    from seq2seq.runs import graphs  # loads ONNX, which training does not need

    trim_memory()
    if lock is not None:
        lock.verify()
    with stop_signals() as stops:
        graphs.store_engine(folder)
    if stops:
        raise Interrupted(stops[0], done=True)


def _set_up(
    config: Config,
    device: torch.device,
    group: ProcessGroup,
    main_folder: OpenFolder | None,
    init_from: Path | None,
) -> tuple[TrainingSession, list[str]]:
    """Set up the run in the main process, then load it in the others; return notes for the log.

    The folder is open in the main process alone, and None in the others.
    """
    if main_folder is None:
        group.wait_for_main()
        session = join_run(config, device, group)
        notes = list[str]()
    else:
        session, notes = prepare(config, device, main_folder, init_from, group)
        if group.size > 1:
            notes.append(f"{group.size} processes, each with a share of every batch")
    # Numbers that differ between ranks with other texts, not paths, or another config.
    keys = config.model_dump(mode="json", exclude={"data", "run_dir"})
    text = json.dumps([keys, session.data.checksums], sort_keys=True)
    digest = int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)  # exact as a float
    group.start([len(session.data.train), session.progress.step, digest])
    return session, notes


def _train(
    session: TrainingSession, notes: Sequence[str], warm_start: bool, callbacks: Sequence[Callback]
) -> None:
    """Train until a stopping criterion is met, then validate and save once more."""
    config = session.config
    first_step = session.progress.step
    last_step = stopping.last_step_of(config, session.data.train)
    reporter = Reporter()
    if session.run.group.is_main:
        reporter = RunReporter(config.run_dir, first_step, last_step, callbacks)
    with reporter, stop_signals() as stops:
        for note in notes:
            reporter.log(note)
        if first_step == 0 and (risk := schedule_note(config.training, last_step)):
            reporter.log(f"warning: {risk}")
        clock = Clock(session.progress.seconds, last_step, config.training.max_minutes)
        if warm_start and first_step == 0 and session.progress.best_score < 0:
            validate_sound(session, reporter, clock)  # the initial weights may remain the best
            save(session, reporter, clock)
        sync = StopSync(session.run.group, stops, lambda: clock.seconds)
        with StepBatches(session) as batches:
            while (limit := met_limit(config.training, session.progress, sync.seconds)) is None:
                train_epoch(session, reporter, batches, clock, sync)
        log_skipped(session, reporter)
        if (progress := session.progress).validated_step < progress.step:
            validate_sound(session, reporter, clock)
        planned = last_step if progress.step > first_step else None
        reason = stopping.limit_reached(config.training, limit, progress, planned)
        finished = f"Training finished: {reason}."
        reporter.end_bar()
        reporter.log(
            finished if progress.step > first_step else stopping.finished_note(config, reason)
        )
        save(session, reporter, clock)
        _log_result(session, reporter, limit)
        sync.after_step(0, progress.max_micro_batch_positions)  # signals since the last step
        if sync.stops:
            session.run.group.barrier()
            raise Interrupted(sync.stops[0], done=True)


def _log_result(session: TrainingSession, reporter: Reporter, limit: str) -> None:
    """Log the best weights, and what a diagnosis of the last validation finds."""
    config = session.config
    progress = session.progress
    best = best_note(progress, config.training)
    reporter.log(f"{best} at step {progress.best_step}: {config.run_dir / BEST}")
    valid = session.data.valid
    metrics = reporter.read_metrics()
    last = ValidationResult(valid.src, valid.tgt, session.hypotheses, metrics, limit)
    for finding in diagnose(last, config):
        reporter.log(f"warning: {finding}")


def validate_sound(session: TrainingSession, reporter: Reporter, clock: Clock) -> None:
    """Validate weights that are not trained further; raises TrainingFailed if they diverged."""
    if (fault := validate(session, reporter, clock)) is None:
        return
    progress = session.progress
    path = session.config.run_dir / BEST
    best = f"; {path} has the weights of step {progress.best_step}" if path.exists() else ""
    raise TrainingFailed(f"step {progress.step}: {fault}. Lower training.learning_rate{best}")


def train_epoch(
    session: TrainingSession, reporter: Reporter, batches: StepBatches, clock: Clock, sync: StopSync
) -> None:
    """Train to the end of the current epoch, or to the step where training stops or diverges."""
    config = session.config
    settings = session.config.training
    progress = session.progress
    order = EpochOrder(session.data.train, settings.batch_tokens, config.seed, progress.epoch)
    starts = range(progress.batch, len(order), settings.accumulate)
    for start, micro_batches in zip(starts, batches.of_steps(order, starts), strict=True):
        progress.step += 1
        end = end_of_decay(settings, progress.step, clock.last_step, sync.seconds)
        rate = learning_rate(settings, progress.step, end, progress.decays) * progress.rate_factor
        result = train_step(session, micro_batches, rate)
        progress.add(result.losses, result.skipped)
        tokens, limit = sync.after_step(result.tokens, result.max_micro_batch_positions)
        if limit != progress.max_micro_batch_positions:
            progress.max_micro_batch_positions = limit
            log_split(reporter, progress.step, limit)
        log_fallbacks(reporter, batches, session.graphs)
        progress.batch = min(start + settings.accumulate, len(order))
        progress.tokens += tokens
        clock.count(tokens)
        reporter.advance(progress.step)
        if reporter.bar_is_due():
            show(session, reporter, clock)
        fault = None
        interval = settings.validate_every
        is_due = progress.step % interval == 0 if interval else progress.batch == len(order)
        if progress.step % settings.log_every == 0:
            fault = divergence(session, report_interval(session, reporter, clock, rate))
        if fault is None and is_due:
            fault = validate(session, reporter, clock)
        if fault is not None:
            roll_back(session, reporter, fault)
            return
        if is_due or save_due(session, clock):
            save(session, reporter, clock)
        if sync.stops:
            save_and_stop(session, reporter, clock, sync.stops[0])
        if met_limit(settings, progress, sync.seconds) is not None:
            return
    progress.epoch = progress.epoch + 1
    progress.batch = 0


def save_and_stop(
    session: TrainingSession, reporter: Reporter, clock: Clock, signal_number: int
) -> NoReturn:
    """Save the state, then raise Interrupted in all ranks."""
    save(session, reporter, clock)
    reporter.end_bar()
    reporter.log(f"Stopped at step {session.progress.step}, saved.")
    session.run.group.barrier()  # no rank leaves before the state is saved
    raise Interrupted(signal_number)


def log_split(reporter: Reporter, step: int, limit: int) -> None:
    """Log that memory ran out, and the target positions of a micro-batch from now on."""
    reporter.log(
        f"step {step}: out of memory; from now on a batch of more than {limit:,} target positions "
        "is split into micro-batches, with the same gradient"
    )


def log_fallbacks(reporter: Reporter, batches: StepBatches, graphs: Graphs) -> None:
    """Log, once, that batches or steps are computed in a slower way than intended."""
    if batches.note is not None:
        reporter.log(f"warning: {batches.note}")
    if graphs.note is not None:
        text = "steps of further shapes are not captured as CUDA graphs"
        reporter.log(f"note: {text}: {graphs.note}")
    batches.note = graphs.note = None


def save_due(session: TrainingSession, clock: Clock) -> bool:
    """Return whether save_every minutes have passed; not while steps are skipped."""
    interval = session.config.training.save_every
    progress = session.progress
    if interval is None or clock.seconds - clock.saved_seconds < 60 * interval:
        return False
    return not progress.skipped_in_a_row and not progress.skipped_steps()


def report_interval(
    session: TrainingSession, reporter: Reporter, clock: Clock, rate: float
) -> float | None:
    """Report loss, speed and skipped steps since the last report, and begin the next interval.

    Return the loss, or None if all steps were skipped.
    """
    progress = session.progress
    log_skipped(session, reporter)
    objective, nll, tokens = progress.take_losses()
    figures = {}
    losses = "all steps skipped"
    if tokens:
        figures = {"train_loss": nll / tokens, "train_objective": objective / tokens}
        loss = fixed(figures["train_loss"], 2)
        losses = f"loss {loss}, objective {fixed(figures['train_objective'], 2)}"
    reporter.metrics(progress.step, {**figures, "learning_rate": rate})
    speed = clock.speed()
    reporter.timing(progress.step, {"target_tokens_per_second": speed, "seconds": clock.seconds})
    left = describe_time_left(session.config.training, clock.left(progress.step))
    reporter.log_step(
        progress.step, f"epoch {progress.epoch + 1}, {losses}, {speed:,.0f} tok/s{left}"
    )
    if progress.threads > 1 and clock.becomes_slow(speed):
        reporter.log(f"note: step {progress.step}: {_SLOW}")
    return figures.get("train_loss")


def show(session: TrainingSession, reporter: Reporter, clock: Clock) -> None:
    """Show step, current loss, speed and remaining time on a terminal."""
    progress = session.progress
    settings = session.config.training
    _, nll, tokens = progress.losses.tolist()  # since the last report
    loss = f", loss {fixed(nll / tokens, 2)}" if tokens else ""
    left = clock.left(progress.step)
    steps = f"step {progress.step:,}" if left is None else left.steps(progress.step)
    text = f"{steps}, epoch {progress.epoch + 1}{loss}{describe_time_left(settings, left)}"
    reporter.describe(text, None if left is None else left.last_step)


def save(session: TrainingSession, reporter: Reporter, clock: Clock) -> None:
    """Write the training state, after the metrics that it counts are on the disk."""
    reporter.sync()
    progress = session.progress
    count = reporter.count
    progress.seconds = clock.saved_seconds = clock.seconds
    progress.metrics_lines = count.lines
    progress.metrics_checksum = count.checksum
    session.save_state()
