"""Training: teacher forcing with validation, patience and checkpoints; the loop fits one screen."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from seq2seq.config.schema import Config
from seq2seq.data.batching import Batch, Rows, derive_seed, epoch_order, make_batch, sampled_pairs
from seq2seq.runs.checkpoint import BEST
from seq2seq.runs.run_folder import check_folder
from seq2seq.runtime.device import bf16_note, choose_device, deterministic, memory_limit
from seq2seq.runtime.locks import exclusive_lock
from seq2seq.runtime.process_group import ProcessGroup, process_group
from seq2seq.training.diagnosis import Outcome, diagnose
from seq2seq.training.divergence import diverged, log_skipped, roll_back
from seq2seq.training.optimizer import learning_rate
from seq2seq.training.reporting import METRICS, Clock, NullReporter, Reporter, minutes, read_metrics
from seq2seq.training.session import Run, join_run, prepare, save_run
from seq2seq.training.step import train_step
from seq2seq.training.stopping import StopSync, nothing_left, stop_signals, why_stop
from seq2seq.training.validation import validate


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, after the state was saved; `done` where nothing was left to train."""

    def __init__(self, signal_number: int, done: bool = False) -> None:
        super().__init__()
        self.exit_code, self.done = 128 + signal_number, done


def train(
    config: Config,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    init_from: Path | None = None,
) -> Path:
    """Train as the config says, together with what else torchrun started; returns the run folder.

    A new run begins with what the run in the folder `init_from` has learnt, if that is given.

    Raises UserError before any work where data, folder or device do not allow it, RunError where
    the work fails, and Interrupted, the state saved, on Ctrl-C or SIGTERM.
    """
    with process_group() as group:
        if group.restarted():
            resume, overwrite = True, False
        if group.is_main:
            check_folder(config, resume, overwrite)
        chosen = choose_device(group.device_for(device))
        with deterministic(chosen, config.training.deterministic):  # before anything starts CUDA
            group.use_device(chosen)
            lock = exclusive_lock(config.run_dir) if group.is_main else nullcontext()
            with memory_limit(chosen, config.training.memory_gb), lock:
                return _train(config, chosen, group, resume, init_from)


def _train(
    config: Config,
    device: torch.device,
    group: ProcessGroup,
    resume: bool,
    init_from: Path | None,
) -> Path:
    """`train`, alone in the run folder."""
    run, notes = _prepared(config, device, group, resume, init_from)
    last_step, began = total_steps(run), run.progress.step
    with (
        Reporter(config.run_dir, began, last_step) if group.is_main else NullReporter() as reporter,
        stop_signals() as stops,
    ):
        for note in [*notes, *(missing_figures(run) if group.is_main else ())]:
            reporter.say(note)
        clock = Clock(run.seconds)
        if init_from is not None and began == 0 and run.progress.best_bleu < 0:
            validate(run, reporter, clock)  # what it begins with may stay the best
            save(run, reporter, clock)
        sync = StopSync(group, stops, lambda: clock.seconds)
        while (reason := why_stop(config.training, run.progress, sync.seconds)) is None:
            train_epoch(run, reporter, clock, last_step, sync)
        log_skipped(run, reporter)
        trained = run.progress.step > began
        reporter.say(f"Done: {reason}." if trained else nothing_left(run.config, reason))
        if run.progress.validated_step < run.progress.step:
            validate(run, reporter, clock)
        save(run, reporter, clock)
        reporter.say(
            f"Best validation BLEU {run.progress.best_bleu:.1f} (greedy) "
            f"at update {run.progress.best_step}: {config.run_dir / BEST}"
        )
        for complaint in diagnose_run(run) if group.is_main else ():
            reporter.say(f"warning: {complaint}")
        sync.after_step(0, run.max_micro_batch_positions)  # signals that came since the last
        if sync.stops:
            group.barrier()
            raise Interrupted(sync.stops[0], done=True)
    return config.run_dir


def missing_figures(run: Run) -> list[str]:
    """What to say where metrics.jsonl no longer holds what the run counts there."""
    validated, metrics = run.progress.validated_step, read_metrics(run.config.run_dir)
    if not validated or any(line["step"] == validated for line in metrics):
        return []
    return [
        f"warning: {run.config.run_dir / METRICS} lacks the figures of update {validated}: it was "
        "cut off or replaced; the weights are whole, and later figures follow"
    ]


def _prepared(
    config: Config,
    device: torch.device,
    group: ProcessGroup,
    resume: bool,
    init_from: Path | None,
) -> tuple[Run, list[str]]:
    """The run and what to say of it: rank 0 prepares it, then the others read what it wrote."""
    notes: list[str] = []
    if group.is_main:
        run, notes = prepare(config, device, resume, init_from, group)
        slow = None if run.progress.step else bf16_note(device, config.training.precision)
        notes += [f"warning: {slow}"] if slow else []
    else:
        group.wait_for_main()
        run = join_run(config, device, group)
    group.start([len(run.train), run.progress.step, _fingerprint(run)])
    if group.size > 1:
        notes.append(f"{group.size} processes, each with a share of every batch")
    return run, notes


def _fingerprint(run: Run) -> int:
    """A number that tells texts and configs apart; where the texts lie does not matter."""
    config = run.config.model_dump(mode="json", exclude={"data", "run_dir"})
    text = json.dumps([config, run.checksums], sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)  # a float holds as much


def diagnose_run(run: Run) -> list[str]:
    """What looks wrong with the run by its last validation and all its figures."""
    metrics = read_metrics(run.config.run_dir)
    return diagnose(Outcome(run.valid.src, run.valid.tgt, run.hypotheses, metrics))


def train_epoch(
    run: Run, reporter: Reporter, clock: Clock, last_step: int | None, sync: StopSync
) -> None:
    """The rest of the epoch that progress stands in, or less where training ends within it."""
    settings, progress = run.config.training, run.progress
    order = epoch_order(run.train, settings.batch_tokens, run.config.seed, progress.epoch)
    for start in range(progress.batch, len(order), settings.accumulate):
        taken = order[start : start + settings.accumulate]
        progress.step += 1
        batches = own_batches(run, taken)
        rate = progress.rate_factor * learning_rate(settings, progress.step, last_step)
        max_micro_batch_positions = run.max_micro_batch_positions
        tokens = train_step(run, batches, rate)
        tokens, run.max_micro_batch_positions = sync.after_step(
            tokens, run.max_micro_batch_positions
        )
        if run.max_micro_batch_positions != max_micro_batch_positions:
            reporter.say(
                f"update {progress.step}: out of memory; from here on a batch of more than "
                f"{run.max_micro_batch_positions:,} target positions is done in pieces, "
                "with the same gradient"
            )
        progress.batch = start + len(taken)
        progress.tokens += tokens
        clock.count(tokens)
        reporter.advance()
        if progress.step % settings.log_every == 0:
            report(run, reporter, clock, rate, last_step)
            if diverged(run):
                roll_back(run, reporter)
                return
        if validation_due(run, len(order)):
            validate(run, reporter, clock)
            save(run, reporter, clock)
        if sync.stops:
            save(run, reporter, clock)
            reporter.say(f"Stopped at update {progress.step}, saved.")
            run.group.barrier()  # no rank leaves before the state is saved
            raise Interrupted(sync.stops[0])
        if why_stop(settings, progress, sync.seconds) is not None:
            return
    progress.epoch, progress.batch = progress.epoch + 1, 0


def own_batches(run: Run, taken: Sequence[Rows]) -> list[Batch]:
    """This rank's share of the batches of an update; fewer where one has fewer pairs than ranks."""
    return [
        batch_of(
            run,
            rows,
            derive_seed(run.config.seed, run.progress.step, piece, *run.group.seed_part()),
        )
        for piece, rows in enumerate(map(run.group.share, taken))
        if len(rows)
    ]


def batch_of(run: Run, rows: Rows, seed: int) -> Batch:
    """The pairs `rows` on the device, under random segmentations where the config asks for them."""
    if run.config.vocabulary.sampling > 0:
        longest = run.config.data.max_length
        src, tgt = sampled_pairs(run.train, rows, run.vocabularies, longest, seed)
    else:
        src, tgt = [run.train.src[i] for i in rows], [run.train.tgt[i] for i in rows]
    return make_batch(src, tgt).to(run.device)


def validation_due(run: Run, batches: int) -> bool:
    """Whether this update is one after which to validate."""
    every, progress = run.config.training.validate_every, run.progress
    return progress.batch == batches if every is None else progress.step % every == 0


def total_steps(run: Run) -> int | None:
    """The update at which max_steps or max_epochs ends training; None where neither is set."""
    settings = run.config.training
    order = epoch_order(run.train, settings.batch_tokens, run.config.seed, 0)
    an_epoch = -(-len(order) // settings.accumulate)
    ends = [settings.max_steps, settings.max_epochs and settings.max_epochs * an_epoch]
    return min((end for end in ends if end is not None), default=None)


def report(run: Run, reporter: Reporter, clock: Clock, rate: float, last_step: int | None) -> None:
    """Training loss and speed since the last report, and which updates were not taken."""
    step = run.progress.step
    log_skipped(run, reporter)
    loss, tokens = run.loss.tolist()
    run.loss.zero_()
    figures = {"train_loss": loss / tokens} if tokens else {}
    reporter.metrics(step, {**figures, "learning_rate": rate})
    speed = clock.speed()
    reporter.timing(step, {"target_tokens_per_second": speed, "seconds": clock.seconds})
    shown = f"loss {loss / tokens:.2f}" if tokens else "no update taken"
    left = _time_left(run, clock, last_step)
    reporter.describe(step, f"epoch {run.progress.epoch + 1}, {shown}, {speed:,.0f} tok/s{left}")


def _time_left(run: Run, clock: Clock, last_step: int | None) -> str:
    """How long training may still take, by updates and by the clock."""
    ends = []
    if last_step is not None:
        ends.append(clock.seconds / run.progress.step * (last_step - run.progress.step))
    if run.config.training.max_minutes is not None:
        ends.append(60 * run.config.training.max_minutes - clock.seconds)
    return f", at most {minutes(max(0.0, min(ends)))} left" if ends else ""


def save(run: Run, reporter: Reporter, clock: Clock) -> None:
    """Write all that training goes on from, once the figures it counts are on the disk."""
    reporter.sync()
    if run.group.is_main:
        save_run(run, clock.seconds)
