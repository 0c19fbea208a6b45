"""Scheduled sampling: some inputs of the decoder are the model's own (Bengio et al. 2015).

At each target position a coin decides between the true piece before it and the one that the model
thinks likeliest there, given the inputs so chosen so far. No gradient goes through a choice. So
the inputs are chosen first, by stepping the model as search does, and training over them is then
plain teacher forcing, fast unrolls included: the loss and its gradient are those of choosing on
the way. The choice is made without dropout, as in search.
"""

import math

import torch
from torch import Tensor

from seq2seq.config.schema import TrainingConfig
from seq2seq.data.batching import Batch
from seq2seq.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from seq2seq.inference.inference_model import InferenceModel


def true_share(config: TrainingConfig, step: int) -> float:
    """The probability that an input of update `step` (from 1) is the true one; section 2.4.

    With k = scheduled_sampling_steps: linear `max(0, 1 - i / k)`; exponential `(e^(-1/k))^i`, the
    base being below 1 as the paper has it; inverse_sigmoid `k / (k + exp(i / k))`.
    """
    k = config.scheduled_sampling_steps
    if config.scheduled_sampling is None or k is None:
        return 1.0
    match config.scheduled_sampling:
        case "linear":
            return max(0.0, 1 - step / k)
        case "exponential":
            return math.exp(-step / k)
    return k / (k + math.exp(min(step / k, 700.0)))


def with_own_inputs(model: InferenceModel, batch: Batch, share: float) -> Batch:
    """The batch, each of its inputs after START true with probability `share`, else the model's.

    Coins come from torch's generator on the CPU, and none are thrown where all inputs are true.
    PAD, START and END, which nothing follows, are never put in the place of a piece.
    """
    if share >= 1:
        return batch
    true = torch.rand(batch.tgt_in.shape, device="cpu") < share
    if true.all():
        return batch
    return batch._replace(tgt_in=_chosen(model, batch, true.to(batch.tgt_in.device)))


@torch.no_grad()
def _chosen(model: InferenceModel, batch: Batch, true: Tensor) -> Tensor:
    """Inputs [B, T], the batch's where `true` [B, T], the model's likeliest pieces elsewhere."""
    memory, state = model.start(model.encode(batch.src, batch.src_lengths))
    ids = batch.tgt_in[:, 0]
    chosen = [ids]
    for t in range(1, batch.tgt_in.shape[1]):
        step = model.step(ids, state, memory)
        state = step.state
        logits = model.project(step.outputs)
        for piece in (PAD_ID, BOS_ID, EOS_ID):  # a list would have to be sent to the device
            logits[:, piece] = -torch.inf
        ids = batch.tgt_in[:, t].where(true[:, t], logits.argmax(dim=-1))
        chosen.append(ids)
    return torch.stack(chosen, dim=1)
