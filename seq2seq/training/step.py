"""One optimizer step: accumulate gradients, halve micro-batches that do not fit memory, update.

Steps with a non-finite loss or gradient are skipped on the device, without a host sync. On CUDA,
the passes over a micro-batch of each rounded shape and the update are CUDA graphs.

With scheduled sampling some decoder inputs are the model's own predictions (Bengio et al. 2015). At
each target position a coin decides between the reference token before it and the model's best
prediction for it, given the inputs chosen so far. No gradient flows through the choice, so the
inputs are chosen first, by stepping the model without dropout as search does. Training on them is
then plain teacher forcing, with its fused passes: loss and gradient are the same as if the inputs
were chosen on the way.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.padding import Batch
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runtime.device import derive_seed, empty_cache, tensor_cores_for_lstm, trim_memory
from seq2seq.runtime.errors import TrainingFailed, is_out_of_memory
from seq2seq.training.loss import batch_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.optimizer import averaging_rate, update_average, update_loss_scale
from seq2seq.training.session import TrainingSession, call_on_device

_TRIM_EVERY = 64  # steps; trimming after every step would take a tenth of the time


class StepResult(NamedTuple):
    """Outcome of a step; the tensors are on the device, for `Progress.add`."""

    tokens: int  # target tokens of this rank's batches
    losses: Tensor  # [3], as `Progress.losses`, of all ranks; zeros if skipped
    skipped: Tensor  # [], bool
    max_micro_batch_positions: int  # as in `Progress`


def train_step(session: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
    """Take step `progress.step` on all the batches, at a learning rate.

    Each rank gives its share of the batches, on the CPU, and all take the same step. If loss or
    gradient is not finite, weights, averages and optimizer state stay as they are. Raises
    TrainingFailed if memory does not suffice for one pair.
    """
    settings, step = session.config.training, session.progress.step
    tokens = sum(batch.tokens for batch in batches)
    sums, max_positions = compute_gradient(session, batches)
    sums, all_tokens = _sum_over_ranks(session, sums, sums.new_full((), tokens))
    rates: tuple[float, float] | Tensor = rate, averaging_rate(settings.average, step)
    if session.is_static:
        update, rates = partial(_update, session), torch.tensor(rates)
        losses, skipped = session.graphs.call("update", update, rates, sums, all_tokens)
    else:
        losses, skipped = _update(session, rates, sums, all_tokens)
    if session.device.type == "cpu" and step % _TRIM_EVERY == 0:
        trim_memory()
    return StepResult(tokens, losses, skipped, max_positions)


def compute_gradient(session: TrainingSession, batches: Sequence[Batch]) -> tuple[Tensor, int]:
    """Set the gradient of this rank's batches; return their losses [2], and the limit in halves.

    Raises TrainingFailed if memory does not suffice for one pair.
    """
    tokens = sum(batch.tokens for batch in batches)
    divisor = tokens if session.run.group.size == 1 else _divisor_of_all_ranks(session)
    with tensor_cores_for_lstm(session.device, session.progress.precision):
        return in_halves(session, batches, partial(_backward, session, divisor))


def _update(
    session: TrainingSession, rates: tuple[float, float] | Tensor, sums: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Update weights and averages if all is finite; return losses [3] and if it was skipped []."""
    settings = session.config.training
    gradients = (parameter.grad for parameter in session.model.parameters())
    norms = [torch.linalg.vector_norm(grad) for grad in gradients if grad is not None]
    norm, scale = torch.linalg.vector_norm(torch.stack(norms)), _loss_scale(session)
    if scale is not None:
        norm = norm / scale
    skipped = ~(norm.isfinite() & sums.isfinite().all())
    skip = skipped.to(torch.float32)
    divisor_of_step = (norm / settings.clip_norm).clamp(min=1)
    if scale is not None:
        divisor_of_step = divisor_of_step * scale
        update_loss_scale(session.progress.loss_scale, skipped)
    session.optimizer.step(rates[0], divisor_of_step, skip)
    if session.averages:
        averages = list(session.averages.values())
        update_average(averages, list(named_weights(session.model).values()), rates[1], skip)
    return torch.cat([sums, tokens[None]]).where(~skipped, 0), skipped


def _sum_over_ranks(
    session: TrainingSession, losses: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum losses and target tokens over the ranks; make the gradient that of their mean loss.

    A non-finite value on one rank is non-finite on all. A rank without a pair adds zeros.
    """
    if session.run.group.size == 1:
        return losses, tokens
    gradients = []
    for parameter in session.model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    session.run.group.add_up([*gradients, losses, tokens])
    torch._foreach_div_(gradients, tokens / _divisor_of_all_ranks(session))
    return losses, tokens


def _divisor_of_all_ranks(session: TrainingSession) -> int:
    """Return the divisor of losses before their gradients are summed over the ranks.

    Without one, fp16 would overflow. It is a power of two, which changes no bits in float32.
    """
    settings = session.config.training
    return 1 << (settings.batch_tokens * settings.accumulate).bit_length()


def in_halves(
    session: TrainingSession, batches: Sequence[Batch], compute: Callable[[Sequence[Batch]], Tensor]
) -> tuple[Tensor, int]:
    """Compute over batches, in halves if memory runs out; return the result and the limit.

    The limit is that of target positions in a micro-batch, 0 for none. Raises TrainingFailed.
    """
    limit = session.progress.max_micro_batch_positions
    while True:
        parts = [part for batch in batches for part in _split(batch, limit)]
        try:
            return compute(parts), limit
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        session.graphs.clear()
        empty_cache(session.device)
        divisible = [part.tgt_in.numel() for part in parts if len(part.src) > 1]
        if not divisible:
            text = f"step {session.progress.step}: out of memory with a single pair."
            raise TrainingFailed(f"{text} Lower data.max_length or the sizes of the model")
        limit = max(divisible) - 1


def _backward(session: TrainingSession, divisor: int, parts: Sequence[Batch]) -> Tensor:
    """Set the gradients of micro-batches' losses / `divisor`; return their `Losses` [2]."""
    config, step = session.config, session.progress.step
    rank = (
        () if session.run.group.is_main else (session.run.group.rank,)
    )  # the main one draws as one alone
    rate = teacher_forcing_rate(config.training, step)
    session.model.train()
    session.optimizer.zero_grad(keep=session.is_static)
    session.sums.zero_()
    for number, part in enumerate(parts):
        torch.manual_seed(derive_seed(config.seed, step, number, *rank))
        references = draw_references(part, rate)
        call_on_device(session, _pass, part, references, torch.tensor(float(divisor)))
    return session.sums.clone()


def _pass(
    session: TrainingSession, batch: Batch, references: Tensor | None, divisor: Tensor
) -> None:
    """Add the gradient of a micro-batch's loss over `divisor`, and its losses to the sums."""
    settings, losses = session.config.training, session.config.training.losses
    with _autocast(session):  # left in between: its cached casts have no gradient
        inputs = sample_inputs(session.inference, batch, references)
    with _autocast(session):
        further_losses = losses.consistency, losses.coverage, losses.guided_alignment
        weights = LossWeights(settings.label_smoothing, *further_losses)
        loss = batch_loss(session.model, inputs, weights)
    objective, scale = loss.objective / divisor, _loss_scale(session)
    (objective if scale is None else objective * scale).backward()
    session.sums.add_(torch.stack(loss).detach())


def _autocast(session: TrainingSession) -> torch.autocast:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(session.progress.precision)
    kind = session.device.type
    return torch.autocast(kind, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def _loss_scale(session: TrainingSession) -> Tensor | None:
    """Return the factor [] on the loss; None but for fp16."""
    scaled = session.progress.precision == "fp16"
    return session.progress.loss_scale[0].clone() if scaled else None


def _split(batch: Batch, max_positions: int) -> Iterator[Batch]:
    """Halve the batch until its parts have at most `max_positions` (0: any), or are single rows."""
    rows, width = batch.tgt_in.shape
    if not max_positions or batch.tgt_in.numel() <= max_positions or rows == 1:
        yield batch
        return
    by_position = {"tgt_out", "tgt_positions", "real"}
    for start, end in ((0, rows // 2), (rows // 2, rows)):
        is_in_chunk = (batch.tgt_positions >= start * width) & (batch.tgt_positions < end * width)
        parts = {
            name: part[is_in_chunk] if name in by_position else part[start:end]
            for name, part in batch._asdict().items()
            if part is not None
        }
        parts["tgt_positions"] -= start * width
        yield from _split(batch._replace(**parts), max_positions)


def teacher_forcing_rate(config: TrainingConfig, step: int) -> float:
    """Return the probability of a reference input at a step (from 1), as in section 2.4.

    With the constant k of the schedule: linear `max(0, 1 - i / k)`; exponential `(e^(-1/k))^i`, its
    base below 1 as in the paper; inverse_sigmoid `k / (k + exp(i / k))`.
    """
    if config.scheduled_sampling is None:
        return 1.0
    k = config.scheduled_sampling.steps
    match config.scheduled_sampling.schedule:
        case "linear":
            return max(0.0, 1 - step / k)
        case "exponential":
            return math.exp(-step / k)
    return k / (k + math.exp(min(step / k, 700.0)))


def draw_references(batch: Batch, rate: float) -> Tensor | None:
    """Draw which inputs [B, T] are reference tokens, each with probability `rate`; None: all.

    Draws from torch's CPU generator, unless the rate is 1; the same for a rounded batch.
    """
    if rate >= 1:
        return None
    rows, width = batch.tgt_in.shape
    if batch.real is not None:
        real = batch.real.view(width, rows) > 0
        rows, width = int(real.any(0).sum()), int(real.any(1).sum())
    references = torch.ones(batch.tgt_in.shape, dtype=torch.bool)
    references[:rows, :width] = torch.rand((rows, width), device="cpu") < rate
    return None if references.all() else references


@torch.no_grad()
def sample_inputs(model: Seq2Seq, batch: Batch, references: Tensor | None) -> Batch:
    """Replace inputs after BOS that are not `references` [B, T] by the model's predictions.

    PAD, BOS and EOS are never predicted, as no token follows them; the paper does not exclude them.
    """
    if references is None:
        return batch
    references = references.to(batch.tgt_in.device)
    memory, state = model.start(model.encode(batch.src, batch.src_lengths))
    ids = batch.tgt_in[:, 0]
    chosen = [ids]
    for t in range(1, batch.tgt_in.shape[1]):
        step = model.step(ids, state, memory)
        state = step.state
        logits = model.project(step.outputs)
        for special in (PAD_ID, BOS_ID, EOS_ID):  # indexing by a list would copy it to the device
            logits[:, special] = -torch.inf
        ids = batch.tgt_in[:, t].where(references[:, t], logits.argmax(dim=-1))
        chosen.append(ids)
    return batch._replace(tgt_in=torch.stack(chosen, dim=1))
