"""Scheduled sampling: some decoder inputs are the model's own predictions (Bengio et al. 2015).

At each target position a coin decides between the reference token before it and the model's best
prediction for it, given the inputs chosen so far. No gradient flows through the choice, so the
inputs are chosen first, by stepping the model without dropout as search does. Training on them is
then plain teacher forcing, with its fused passes: loss and gradient are the same as if the inputs
were chosen on the way.
"""

import math

import torch
from torch import Tensor

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.batching import Batch
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID
from seq2seq.model.seq2seq import Seq2Seq


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


def sample_inputs(model: Seq2Seq, batch: Batch, references: Tensor | None) -> Batch:
    """Replace inputs after BOS that are not `references` [B, T] by the model's predictions.

    PAD, BOS and EOS are never predicted, as no token follows them; the paper does not exclude them.
    """
    if references is None:
        return batch
    references = references.to(batch.tgt_in.device)
    return batch._replace(tgt_in=_predict_inputs(model, batch, references))


@torch.no_grad()
def _predict_inputs(model: Seq2Seq, batch: Batch, references: Tensor) -> Tensor:
    """Return inputs [B, T]: the batch's `references` [B, T], greedy predictions elsewhere."""
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
    return torch.stack(chosen, dim=1)
