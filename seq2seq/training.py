"""Training: teacher forcing with validation, patience and checkpoints; the loop fits one screen."""

import hashlib
import math
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from torch import Tensor

from seq2seq.batches import (
    Batch,
    EncodedPairs,
    Rows,
    encode_pairs,
    epoch_order,
    make_batch,
    sampled_pairs,
)
from seq2seq.checkpoint import (
    BEST,
    CONFIG,
    LAST,
    VOCABULARY,
    LengthLimit,
    Progress,
    create_run,
    empty_model,
    load_last,
    own_weights,
    read_config,
    save_best,
    save_last,
)
from seq2seq.config import Config, ParallelFiles, changed_keys
from seq2seq.corpus import ParallelText, read_pairs, usable
from seq2seq.device import choose_device
from seq2seq.errors import RunError, UserError
from seq2seq.evaluation import bleu_score
from seq2seq.loss import token_loss
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.optimization import learning_rate, make_optimizer, update_average
from seq2seq.reporting import LOG, METRICS, TENSORBOARD, TIMING, Reporter
from seq2seq.translator import Translator
from seq2seq.vocabulary import Vocabularies, load_vocabularies, train_vocabularies


class Interrupted(Exception):
    """Ctrl-C or SIGTERM, after the state was saved."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.exit_code = 128 + signal_number


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
    loss: Tensor  # since the last report, nats, on the device
    loss_tokens: int = 0
    progress: Progress = field(default_factory=Progress)
    seconds: float = 0.0  # trained before this process


def train(
    config: Config, device: str = "auto", resume: bool = False, overwrite: bool = False
) -> Path:
    """Train as the config says; returns the run folder.

    Raises UserError before any work where data, folder or device do not allow it, RunError where
    the work fails, and Interrupted, the state saved, on Ctrl-C or SIGTERM.
    """
    check_folder(config, resume, overwrite)
    run, notes = prepare(config, choose_device(device), resume)
    last_step = last_update(run)
    with (
        Reporter(config.run_dir, run.progress.step, last_step) as reporter,
        stop_signals() as stops,
    ):
        for note in notes:
            reporter.say(note)
        clock = Clock(run.seconds)
        while (reason := why_stop(run, clock)) is None:
            train_epoch(run, reporter, clock, last_step, stops)
        reporter.say(f"Done: {reason}.")
        if run.progress.best_step == 0:
            validate(run, reporter, clock)
        save(run, clock)
        reporter.say(
            f"Best validation BLEU {run.progress.best_bleu:.1f} (greedy) "
            f"at update {run.progress.best_step}: {config.run_dir / BEST}"
        )
    return config.run_dir


def train_epoch(
    run: Run, reporter: Reporter, clock: "Clock", last_step: int | None, stops: list[int]
) -> None:
    """The rest of the epoch that progress stands in, or less where training ends within it."""
    settings, progress = run.config.training, run.progress
    order = epoch_order(run.train, settings.batch_tokens, run.config.seed, progress.epoch)
    for start in range(progress.batch, len(order), settings.accumulate):
        taken = order[start : start + settings.accumulate]
        progress.step += 1
        batches = [
            batch_of(run, rows, seed_of(run.config.seed, progress.step, piece))
            for piece, rows in enumerate(taken)
        ]
        rate = learning_rate(settings, progress.step, last_step)
        loss, tokens = train_step(run, batches, rate)
        progress.batch = start + len(taken)
        progress.tokens += tokens
        run.loss += loss
        run.loss_tokens += tokens
        clock.count(tokens)
        if progress.step % settings.log_every == 0:
            report(run, reporter, clock, rate, last_step)
        reporter.advance()
        if validation_due(run, len(order)):
            validate(run, reporter, clock)
            save(run, clock)
        if stops:
            save(run, clock)
            reporter.say(
                f"Stopped at update {progress.step}, saved. "
                "Go on with the same command and --resume."
            )
            raise Interrupted(stops[0])
        if why_stop(run, clock) is not None:
            return
    progress.epoch, progress.batch = progress.epoch + 1, 0


def train_step(run: Run, batches: Sequence[Batch], rate: float) -> tuple[Tensor, int]:
    """One update from all the batches; returns their summed loss (on the device) and tokens."""
    settings, model = run.config.training, run.model.train()
    tokens = sum(len(batch.tgt_out) for batch in batches)
    run.optimizer.zero_grad()
    total = torch.zeros((), device=run.device)
    for piece, batch in enumerate(batches):
        torch.manual_seed(seed_of(run.config.seed, run.progress.step, piece))
        with torch.autocast(
            run.device.type, dtype=torch.bfloat16, enabled=settings.precision == "bf16"
        ):
            loss = batch_loss(model, batch, settings.label_smoothing)
        (loss / tokens).backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.optimizer.step()
    if run.averages:
        weights = list(own_weights(model).values())
        update_average(list(run.averages.values()), weights, settings.average, run.progress.step)
    return total, tokens


def batch_loss(model: Seq2Seq, batch: Batch, label_smoothing: float) -> Tensor:
    """The summed loss of a batch's target tokens, nats."""
    outputs = model(batch.src, batch.src_lengths, batch.tgt_in)
    real = outputs.flatten(0, 1).index_select(0, batch.tgt_positions)
    return token_loss(real, model.projection, batch.tgt_out, label_smoothing)


def batch_of(run: Run, rows: Rows, seed: int) -> Batch:
    """The pairs `rows` on the device, under random segmentations where the config asks for them."""
    if run.config.vocabulary.sampling > 0:
        longest = run.config.training.max_length
        src, tgt = sampled_pairs(run.train, rows, run.vocabularies, longest, seed)
    else:
        src, tgt = [run.train.src[i] for i in rows], [run.train.tgt[i] for i in rows]
    return make_batch(src, tgt).to(run.device)


def seed_of(*parts: int) -> int:
    """A seed that is a pure function of what it is for: (seed, step, piece)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")


# --------------------------------------------------------------------------------------- validation


def validate(run: Run, reporter: Reporter, clock: "Clock") -> None:
    """Validation loss, perplexity and greedy BLEU, of the averages if any; keeps the best."""
    began, progress = time.monotonic(), run.progress
    with averaged(run):
        loss = valid_loss(run)
        bleu = valid_bleu(run)
        better = bleu > progress.best_bleu
        if better:
            progress.best_bleu, progress.best_step, progress.worse = bleu, progress.step, 0
            save_best(run.config.run_dir, own_weights(run.model), run.limit, progress)
        else:
            progress.worse += 1
    perplexity = math.exp(min(loss, 700.0))
    reporter.metrics(
        progress.step, {"valid_loss": loss, "valid_perplexity": perplexity, "valid_bleu": bleu}
    )
    reporter.timing(progress.step, {"validation_seconds": time.monotonic() - began})
    reporter.say(
        f"update {progress.step}, epoch {progress.epoch + 1}, {clock.now()}: "
        f"validation loss {loss:.3f}, perplexity {perplexity:.2f}, "
        f"BLEU {bleu:.1f}{' (best so far)' if better else ''}"
    )
    clock.leave_out(time.monotonic() - began)


def valid_loss(run: Run) -> float:
    """Mean negative log-likelihood of a validation target token, nats."""
    model, pairs = run.model.eval(), run.valid_pairs
    total, tokens = 0.0, 0
    with torch.no_grad():
        for rows in epoch_order(pairs, run.config.training.batch_tokens, 0, None):
            batch = make_batch([pairs.src[i] for i in rows], [pairs.tgt[i] for i in rows])
            total += batch_loss(model, batch.to(run.device), 0.0).item()
            tokens += len(batch.tgt_out)
    return total / tokens


def valid_bleu(run: Run) -> float:
    """Greedy BLEU of the validation set, cased, sacrebleu's 13a."""
    translator = Translator(
        run.model.eval(),
        run.vocabularies,
        run.limit,
        run.config.decoding,
        run.config.training.max_length,
        run.device,
    )
    translations = translator.translate(run.valid.src, beam_size=1)
    return bleu_score([translation.text for translation in translations], run.valid.tgt)


@contextmanager
def averaged(run: Run) -> Iterator[None]:
    """Put the averages in the place of the weights for a while."""
    if not run.averages:
        yield
        return
    weights = list(own_weights(run.model).values())
    kept = [weight.clone() for weight in weights]
    torch._foreach_copy_(weights, list(run.averages.values()))
    try:
        yield
    finally:
        torch._foreach_copy_(weights, kept)


def validation_due(run: Run, batches: int) -> bool:
    """Whether this update is one after which to validate."""
    every, progress = run.config.training.validate_every, run.progress
    return progress.batch == batches if every is None else progress.step % every == 0


# ---------------------------------------------------------------------------- limits, clock, saving


class Clock:
    """Seconds trained, over all processes of a run, and how fast target tokens went by."""

    def __init__(self, before: float) -> None:
        self._began = time.monotonic() - before
        self._window = time.monotonic()
        self._tokens = 0

    @property
    def seconds(self) -> float:
        """Wall time since training began, validations included."""
        return time.monotonic() - self._began

    def now(self) -> str:
        """The time trained, as minutes:seconds."""
        return _minutes(self.seconds)

    def count(self, tokens: int) -> None:
        """Target tokens that went by."""
        self._tokens += tokens

    def leave_out(self, seconds: float) -> None:
        """Seconds that were not spent on training tokens."""
        self._window += seconds

    def speed(self) -> float:
        """Target tokens a second since last asked."""
        now = time.monotonic()
        speed = self._tokens / max(now - self._window, 1e-9)
        self._window, self._tokens = now, 0
        return speed


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def why_stop(run: Run, clock: Clock) -> str | None:
    """Why training ends here, if it does."""
    settings, progress = run.config.training, run.progress
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"update {progress.step} of training.max_steps {settings.max_steps}"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"epoch {progress.epoch} of training.max_epochs {settings.max_epochs}"
    if settings.max_minutes is not None and clock.seconds >= 60 * settings.max_minutes:
        return f"training.max_minutes {settings.max_minutes:g} are over"
    if settings.patience is not None and progress.worse >= settings.patience:
        return f"no better BLEU in {progress.worse} validations (training.patience)"
    return None


def last_update(run: Run) -> int | None:
    """The update at which max_steps or max_epochs ends training; None where neither is set."""
    settings = run.config.training
    order = epoch_order(run.train, settings.batch_tokens, run.config.seed, 0)
    an_epoch = -(-len(order) // settings.accumulate)
    ends = [settings.max_steps, settings.max_epochs and settings.max_epochs * an_epoch]
    return min((end for end in ends if end is not None), default=None)


def report(run: Run, reporter: Reporter, clock: Clock, rate: float, last_step: int | None) -> None:
    """Training loss and speed since the last report; raises RunError where it is no number."""
    progress = run.progress
    loss = run.loss.item() / run.loss_tokens
    run.loss.zero_()
    run.loss_tokens = 0
    if not math.isfinite(loss):
        raise RunError(
            f"the training loss is {loss} at update {progress.step}; lower training.learning_rate "
            f"or training.clip_norm; {run.config.run_dir / BEST} is still whole"
        )
    speed = clock.speed()
    reporter.metrics(progress.step, {"train_loss": loss, "learning_rate": rate})
    reporter.timing(progress.step, {"target_tokens_per_second": speed, "seconds": clock.seconds})
    left = _time_left(run, clock, last_step)
    reporter.describe(
        progress.step, f"epoch {progress.epoch + 1}, loss {loss:.2f}, {speed:,.0f} tok/s{left}"
    )


def _time_left(run: Run, clock: Clock, last_step: int | None) -> str:
    """How long training may still take, by updates and by the clock."""
    ends = []
    if last_step is not None:
        ends.append(clock.seconds / run.progress.step * (last_step - run.progress.step))
    if run.config.training.max_minutes is not None:
        ends.append(60 * run.config.training.max_minutes - clock.seconds)
    return f", at most {_minutes(max(0.0, min(ends)))} left" if ends else ""


def save(run: Run, clock: Clock) -> None:
    """Write all that training goes on from."""
    run.progress.loss_sum, run.progress.loss_tokens = run.loss.item(), run.loss_tokens
    save_last(
        run.config.run_dir,
        own_weights(run.model),
        run.averages,
        run.optimizer,
        run.progress,
        run.limit,
        clock.seconds,
    )


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Gather Ctrl-C and SIGTERM instead of dying of them; a second Ctrl-C kills as usual."""
    caught: list[int] = []

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -------------------------------------------------------------------------------------- preparation


def check_folder(config: Config, resume: bool, overwrite: bool) -> None:
    """Refuse a folder another run lives in, and resuming what is not there or another config."""
    folder = config.run_dir
    if resume and overwrite:
        raise UserError("--resume and --overwrite: give one of them")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"run_dir: {folder} is a file; choose another name")
    lives = any((folder / name).exists() for name in (CONFIG, BEST, LAST))
    if resume:
        changes = changed_keys(read_config(folder), config)
        if changes:
            raise UserError(
                f"{folder}: --resume goes on with the config it began with, but these differ:\n  "
                + "\n  ".join(changes)
            )
    elif lives and not overwrite:
        raise UserError(
            f"{folder}: a run lives here already; go on with --resume, "
            "replace it with --overwrite, or set another run_dir"
        )


def prepare(config: Config, device: torch.device, resume: bool) -> tuple[Run, list[str]]:
    """Read and check all data, make or read vocabulary, model and state; returns run and notes."""
    train_text, train_blank = usable(_read(config.data.train))
    valid, valid_blank = usable(_read(config.data.valid))
    if config.data.test is not None:
        _read(config.data.test)
    sampling = config.vocabulary.sampling
    if resume:
        vocabularies = load_vocabularies(config.run_dir / VOCABULARY, sampling)
    else:
        vocabularies = train_vocabularies(config.vocabulary, train_text.src, train_text.tgt)
    longest = config.training.max_length
    pairs = encode_pairs(train_text.src, train_text.tgt, vocabularies, longest)
    if not len(pairs):
        raise UserError(
            f"training.max_length: every training pair is longer than {longest} pieces; raise it"
        )
    valid_pairs = encode_pairs(valid.src, valid.tgt, vocabularies, None)
    torch.manual_seed(seed_of(config.seed, 0, 0))
    model = empty_model(config, vocabularies).to(device)
    weights = own_weights(model)
    averages = {name: weight.clone() for name, weight in weights.items()}
    run = Run(
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
        torch.zeros((), dtype=torch.float64, device=device),
    )
    if resume:
        _restore(run)
    else:
        _clear(config.run_dir)
        create_run(config.run_dir, config, vocabularies)
    return run, _notes(run, train_blank, valid_blank)


def _restore(run: Run) -> None:
    run.progress, run.limit, run.seconds = load_last(
        run.config.run_dir, run.model, run.averages, run.optimizer, run.device
    )
    run.loss.fill_(run.progress.loss_sum)
    run.loss_tokens = run.progress.loss_tokens


def _read(files: ParallelFiles) -> ParallelText:
    return read_pairs(files.src, files.tgt, files.tsv)


def _clear(folder: Path) -> None:
    """Remove a run, and nothing else that may lie beside it."""
    for name in (CONFIG, BEST, LAST, METRICS, TIMING, LOG):
        (folder / name).unlink(missing_ok=True)
    for name in (VOCABULARY, TENSORBOARD):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)


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
    if train_blank:
        notes.append(f"skipped in training: {train_blank:,} pairs with a blank side")
    if run.train.too_long:
        longest = run.config.training.max_length
        notes.append(
            f"skipped in training: {run.train.too_long:,} pairs of more than {longest} pieces"
        )
    if valid_blank:
        notes.append(f"skipped in validation: {valid_blank:,} pairs with a blank side")
    if run.progress.step:
        notes.append(f"resumed at update {run.progress.step}, epoch {run.progress.epoch + 1}")
    return notes
