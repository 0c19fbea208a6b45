"""Copying of source tokens: the pointer-generator of See et al. (2017) over a joint vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.model.state import DecoderState


class CopyOutputs(NamedTuple):
    """Outputs of N decoder steps with all that the mixture of generated and copied tokens reads."""

    outputs: Tensor  # [N, R], to be projected to the vocabulary
    gate: Tensor  # [N], logit of the probability to generate
    mass: Tensor  # [N, S], probability to copy src_s, all of it at its first position
    src: Tensor  # [N, S], source ids

    def mix(self, logits: Tensor) -> Tensor:
        """Return the log-probabilities [N, V] of the mixture; batch-invariant on CPU.

        `P(y) = g p(y) + (1 - g) * sum of a_s over s with src_s = y` (See et al. 2017, eq. 9), for
        logits [N, V] of p. Only exponentials, logarithms and single operations are used: on a CPU
        torch rounds others differently where a row does not fill its vectors.
        """
        log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        gate = self.gate[:, None].to(log_probs.dtype)
        both = (-gate.abs()).exp().log1p()
        log_probs = log_probs + (gate.clamp(max=0) - both)  # log g p
        generated = log_probs.gather(1, self.src)  # [N, S]
        copied = (-gate).clamp(max=0) - both + self.mass.to(log_probs.dtype).log()
        larger, difference = torch.maximum(generated, copied), (generated - copied).abs()
        mixed = larger + (-difference).exp().log1p()  # `generated` where no mass is
        return log_probs.scatter_reduce(1, self.src, mixed, "amax")


class CopyStep(NamedTuple):
    """Result of one decoder step for N hypotheses whose tokens may be copied."""

    outputs: CopyOutputs
    state: DecoderState
    attention_weights: Tensor  # [N, S]


class Copying(nn.Module):
    """Gate g between generating a token and copying one to which the decoder attends.

    `g = sigmoid(w . o_t + b)` for the decoder's outputs o_t, where See et al. (2017), eq. 8, have
    context, state and input: these have already entered o_t. The copied tokens are subwords of a
    shared vocabulary with byte fallback, which spell every string, so no vocabulary is extended
    by the words of a source; end-of-sentence can be copied as well. The attention weights are
    divided by their sum, which a predictive window leaves below 1.
    """

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(output_size, 1)

    def forward(
        self, outputs: Tensor, attention_weights: Tensor, src: Tensor, first: Tensor
    ) -> CopyOutputs:
        """Take outputs [N, R], attention weights, source ids and first positions [N, S]."""
        shares = attention_weights / attention_weights.sum(-1, keepdim=True)
        mass = torch.zeros_like(shares).scatter_add(1, first, shares)
        # A sum instead of a matrix-vector product, which is not batch-invariant.
        gate = (outputs * self.gate.weight[0]).sum(-1) + self.gate.bias
        return CopyOutputs(outputs, gate, mass, src)


def first_positions(src: Tensor) -> Tensor:
    """Return for each position of ids [B, S] the first position with the same id: [B, S]."""
    ordered, order = src.sort(dim=1, stable=True)
    positions = torch.arange(src.shape[1], device=src.device).expand_as(src)
    starts = torch.ones_like(src, dtype=torch.bool)  # runs of equal ids start here
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run_starts = positions.where(starts, 0).cummax(dim=1).values
    return torch.empty_like(src).scatter_(1, order, order.gather(1, run_starts))
