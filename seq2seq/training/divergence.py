"""Divergence: log the batches of skipped steps; after many in a row, roll back.

`step` skips a step whose loss or gradient is not finite. Training also rolls back from losses that
no sound model has.
"""

import math

from seq2seq.data.batching import EpochOrder
from seq2seq.runs.training_state import read_state
from seq2seq.runtime import console, errors
from seq2seq.training.reporting import Reporter
from seq2seq.training.session import TrainingSession, restore

MAX_SKIPPED = 10  # consecutive skipped steps after which the weights are no longer trusted
MIN_RATE_FACTOR = 1 / 8
MAX_LOSS = 100.0  # nats a token; a uniform distribution over a million tokens has 14
_LOGGED = 3  # skipped steps whose batches are logged at a time


def log_skipped(session: TrainingSession, reporter: Reporter) -> None:
    """Log the steps skipped since the last report, and count the consecutive ones."""
    progress = session.progress
    skipped = progress.skipped_steps()
    for step in skipped[:_LOGGED]:
        batch = describe_batch(session, step)
        reporter.log(f"step {step} skipped: non-finite loss or gradient ({batch})")
    if len(skipped) > _LOGGED:
        reporter.log(f"{len(skipped) - _LOGGED} more skipped up to step {skipped[-1]}")
    for step in range(progress.reported_step + 1, progress.step + 1):
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if step in skipped else 0
    progress.reported_step = progress.step
    progress.skipped.zero_()


def describe_batch(session: TrainingSession, step: int) -> str:
    """Describe the batches of a step by their size and the start of the first source."""
    progress = session.progress
    config = session.config
    train = session.data.train
    settings = config.training
    accumulate = config.training.accumulate
    epoch = progress.epoch
    order = EpochOrder(train, settings.batch_tokens, config.seed, epoch)
    number = -(-progress.batch // accumulate) - 1 - (progress.step - step)
    while number < 0:  # in the epoch before; those of weighted corpora differ in length
        if epoch == 0:
            return "in an earlier epoch"
        epoch -= 1
        order = EpochOrder(train, settings.batch_tokens, config.seed, epoch)
        number += -(-len(order) // accumulate)
    batches = order[number * accumulate : (number + 1) * accumulate]
    count = sum(len(rows) for rows in batches)
    return f"{console.counted(count, 'pair')}, the first: {train.src_texts[batches[0][0]][:60]!r}"


def divergence(session: TrainingSession, loss: float | None) -> str | None:
    """Return the reason if too many consecutive steps were skipped, or the loss is out of range.

    `loss` is the mean negative log-likelihood since the last report; None if all were skipped.
    """
    skipped = session.progress.skipped_in_a_row
    if skipped >= MAX_SKIPPED:
        return f"{skipped} consecutive steps skipped"
    return None if loss is None else loss_fault("training", loss)


def loss_fault(name: str, loss: float) -> str | None:
    """Return the reason if a mean negative log-likelihood is that of a diverged model."""
    if not math.isfinite(loss):
        return f"the {name} loss is not finite"
    return f"the {name} loss is {loss:.3g} nats a token" if loss > MAX_LOSS else None


def roll_back(session: TrainingSession, reporter: Reporter, fault: str) -> None:
    """Return to the last state at half the rate; raises TrainingFailed if that has not helped."""
    progress = session.progress
    folder = session.config.run_dir
    factor = progress.rate_factor / 2
    fault = f"step {progress.step}: {fault}"
    if factor < MIN_RATE_FACTOR:
        text = f"{fault}, also at {progress.rate_factor:g} of the learning rate."
        raise errors.TrainingFailed(f"{text} Lower training.learning_rate or training.clip_norm")
    session.run.verify_lock()
    state = read_state(folder)
    if state is None:
        raise errors.TrainingFailed(f"{fault}, and {folder} holds no saved state to return to")
    notes = restore(session, state)
    progress = session.progress
    progress.skipped.zero_()
    progress.skipped_in_a_row = 0
    progress.rate_factor = factor
    reporter.roll_back(progress.step)
    reporter.log(f"{fault}: back to step {progress.step}, with {factor:g} of the learning rate")
    for note in notes:
        reporter.log(note)
