"""Where the loss is no number: the log names the batches, and in the end training goes back."""

from collections.abc import Sequence

from seq2seq.data.batching import Rows, epoch_order
from seq2seq.runtime.errors import RunError
from seq2seq.training.reporting import Reporter
from seq2seq.training.session import Run, restore

MOST_UNTAKEN = 10  # updates in a row, after which the weights are no longer trusted
LEAST_RATE_FACTOR = 1 / 8
_NAMED = 3  # batches that the log names at a time


def log_skipped(run: Run, reporter: Reporter) -> None:
    """Say which updates were not taken since the last report, and count those in a row."""
    progress = run.progress
    skipped = run.skipped_updates()
    for step in skipped[:_NAMED]:
        reporter.say(
            f"update {step} was not taken: its loss or gradient is not finite ({_batch(run, step)})"
        )
    if len(skipped) > _NAMED:
        reporter.say(f"nor were {len(skipped) - _NAMED} more up to update {skipped[-1]}")
    for step in range(progress.reported_step + 1, progress.step + 1):
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if step in skipped else 0
    progress.reported_step = progress.step
    run.skipped.zero_()


def _batch(run: Run, step: int) -> str:
    """How many pairs the update saw, and how the first begins."""
    pairs, progress, accumulate = run.train, run.progress, run.config.training.accumulate
    epoch, number = progress.epoch, _updates(progress.batch, accumulate) - (progress.step - step)
    order = _order(run, epoch)
    while number <= 0:
        epoch -= 1
        if epoch < 0:
            return "in an epoch before"
        order = _order(run, epoch)
        number += _updates(len(order), accumulate)
    taken = order[(number - 1) * accumulate : number * accumulate]
    text = pairs.src_texts[taken[0][0]]
    count = sum(len(rows) for rows in taken)
    return f"{count} pairs, the first: {text[:60]!r}"


def _order(run: Run, epoch: int) -> Sequence[Rows]:
    return epoch_order(run.train, run.config.training.batch_tokens, run.config.seed, epoch)


def _updates(batches: int, accumulate: int) -> int:
    return -(-batches // accumulate)


def diverged(run: Run) -> bool:
    """Whether so many updates in a row were not taken that more of them are no use."""
    return run.progress.skipped_in_a_row >= MOST_UNTAKEN


def roll_back(run: Run, reporter: Reporter) -> None:
    """Return to the last saved state, with half the learning rate from there on.

    Raises RunError where going back did not help.
    """
    step, factor = run.progress.step, run.progress.rate_factor / 2
    found = f"update {step}: no finite loss in {run.progress.skipped_in_a_row} updates in a row"
    remedy = "lower training.learning_rate or training.clip_norm"
    if factor < LEAST_RATE_FACTOR:
        raise RunError(
            f"{found}, also at {run.progress.rate_factor:g} of the learning rate; {remedy}; "
            f"what {run.config.run_dir} held before is whole"
        )
    notes = restore(run)
    run.skipped.zero_()
    run.progress.skipped_in_a_row = 0
    run.progress.rate_factor = factor
    reporter.roll_back(run.progress.step)
    reporter.say(
        f"{found}: back to update {run.progress.step}, with {factor:g} of the learning rate"
    )
    for note in notes:
        reporter.say(note)
