"""One update: the gradient of its batches, in smaller pieces where memory asks, and the step.

A step whose gradient is no number is not taken: the device decides so, and nobody waits for it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from seq2seq.data.batching import Batch, derive_seed
from seq2seq.runs.checkpoint import own_weights
from seq2seq.runtime.device import is_out_of_memory, trim_memory
from seq2seq.runtime.errors import RunError
from seq2seq.training.loss import batch_loss
from seq2seq.training.optimizer import update_average
from seq2seq.training.scheduled_sampling import true_share, with_own_inputs
from seq2seq.training.session import Run

_RETURN_EVERY = 64  # updates; done after every one it would take a tenth of the time


def train_step(run: Run, batches: Sequence[Batch], rate: float) -> int:
    """One update from all the batches at a learning rate; returns their target tokens.

    Of several ranks each gives its share of the batches, and all take the same update.
    Adds to `run.loss`, or to `run.skipped` where loss or gradient is not finite and so neither the
    weights nor the optimizer's state may change. Raises RunError where memory is too small for one
    pair.
    """
    settings = run.config.training
    tokens = sum(len(batch.tgt_out) for batch in batches)
    loss = gradients(run, batches, tokens if run.group.size == 1 else 1)
    loss, all_tokens = _of_all_ranks(run, loss, torch.full_like(loss, tokens))
    norm = torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(each.grad) for each in _with_gradient(run)])
    )
    skipped = ~(norm.isfinite() & loss.isfinite())
    divisor = (norm / settings.clip_norm).clamp(min=1)
    skip = skipped.to(torch.float32)
    run.optimizer.step(rate, divisor, skip)
    if run.averages:
        averages, weights = list(run.averages.values()), list(own_weights(run.model).values())
        update_average(averages, weights, settings.average, run.progress.step, skip)
    run.loss += torch.stack([loss, all_tokens]).where(~skipped, 0)
    run.skipped[run.progress.step % len(run.skipped)] = skipped
    if run.device.type == "cpu" and run.progress.step % _RETURN_EVERY == 0:
        trim_memory()
    return tokens


def _of_all_ranks(run: Run, loss: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Make the gradient of this rank's summed loss that of the mean loss of all ranks.

    Returns the summed loss and the target tokens of all. What is no number on one rank is none on
    any. A rank without a pair adds zeros.
    """
    if run.group.size == 1:
        return loss, tokens
    parameters = list(run.model.parameters())
    own = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    loss, tokens, *summed = run.group.sum_tensors([loss, tokens, *own])
    torch._foreach_div_(summed, tokens)
    for parameter, gradient in zip(parameters, summed, strict=True):
        parameter.grad = gradient
    return loss, tokens


def gradients(run: Run, batches: Sequence[Batch], tokens: int) -> Tensor:
    """Put the gradient of the batches' loss, divided by `tokens`, into the parameters.

    Returns the summed loss.

    Where memory does not suffice all is done again in halves, which have the same gradient (but for
    the dropout drawn in each), and so are later batches as large.
    """
    pieces = [piece for batch in batches for piece in _cut(batch, run.max_micro_batch_positions)]
    while (loss := _accumulated(run, pieces, tokens)) is None:
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            trim_memory()
        divisible = [piece.tgt_in.numel() for piece in pieces if len(piece.src) > 1]
        if not divisible:
            raise RunError(
                f"update {run.progress.step}: out of memory with a single pair; "
                "lower data.max_length or the sizes of the model"
            )
        run.max_micro_batch_positions = max(divisible) - 1
        pieces = [
            piece for batch in batches for piece in _cut(batch, run.max_micro_batch_positions)
        ]
    return loss


def _accumulated(run: Run, pieces: Sequence[Batch], tokens: int) -> Tensor | None:
    """The summed loss of all pieces, their gradients added up; None where memory ran out."""
    settings, model = run.config.training, run.model.train()
    share = true_share(settings, run.progress.step)
    total = torch.zeros((), device=run.device)
    run.optimizer.zero_grad()
    try:
        for number, piece in enumerate(pieces):
            seed = derive_seed(run.config.seed, run.progress.step, number, *run.group.seed_part())
            torch.manual_seed(seed)
            with _precision(run):  # left again: casts made without a gradient are not to be reused
                inputs = with_own_inputs(run.inference, piece, share)
            with _precision(run):
                loss = batch_loss(model, inputs, settings.label_smoothing, settings.consistency)
            (loss / tokens).backward()
            total += loss.detach()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return total


def _precision(run: Run) -> torch.autocast:
    mixed = run.config.training.precision == "bf16"
    return torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=mixed)


def _cut(batch: Batch, largest: int | None) -> Iterator[Batch]:
    """The batch in parts of at most so many target positions, or of single rows."""
    rows, width = batch.tgt_in.shape
    if largest is None or batch.tgt_in.numel() <= largest or rows == 1:
        yield batch
        return
    for start, end in ((0, rows // 2), (rows // 2, rows)):
        inside = (batch.tgt_positions >= start * width) & (batch.tgt_positions < end * width)
        half = Batch(
            batch.src[start:end],
            batch.src_lengths[start:end],
            batch.tgt_in[start:end],
            batch.tgt_out[inside],
            batch.tgt_positions[inside] - start * width,
        )
        yield from _cut(half, largest)


def _with_gradient(run: Run) -> list[Tensor]:
    return [each for each in run.model.parameters() if each.grad is not None]
