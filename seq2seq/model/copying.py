"""Copying of source tokens: the pointer-generator of See et al. (2017) over a joint vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.model.state import DecoderState, SourcePositions

MIN_COPIED = 0.01  # probability of copying a token below which it counts as not copied
MIN_LOGIT = -80.0  # exp(80) is finite in float32


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
        log_sum = (-gate.abs()).exp().log1p()
        log_probs = log_probs + (gate.clamp(max=0) - log_sum)  # log g p
        generated = log_probs.gather(1, self.src)  # [N, S]
        copied = (-gate).clamp(max=0) - log_sum + self.mass.to(log_probs.dtype).log()
        larger = torch.maximum(generated, copied)
        difference = (generated - copied).abs()
        mixed = larger + (-difference).exp().log1p()  # `generated` where no mass is
        return log_probs.scatter_reduce(1, self.src, mixed, "amax")


class CopyStep(NamedTuple):
    """Result of one decoder step for N hypotheses whose tokens may be copied."""

    outputs: CopyOutputs
    state: DecoderState
    attention_weights: Tensor  # [N, S], the mean over heads
    head_weights: Tensor | None  # [N, M, S] of M heads; None of a score with one head


class Copying(nn.Module):
    """Gate g between generating a token and copying one, and the distribution c of copied tokens.

    Tokens are copied where the decoder attends, as See et al. (2017) do, or where copying
    continues: a copied name has many tokens, which attention alone repeats and skips. With the
    attention weights a_t (divided by their sum, which a predictive window leaves below 1),

        c_t = (1 - l_t sum(r_t)) a_t + l_t r_t,

    where `r_t(s + 1)` is the share of `c_{t-1}(s)` among the positions of the last token, as in
    the selective read of Gu et al. (2016), eq. 9. g and l are sigmoids of `w . o_t + b + u . h_s`
    for the decoder's outputs o_t, averaged over the positions s that c_t (for g) and r_t (for l)
    would copy. In See's eq. 8, g reads context, state and input: these have already entered o_t.
    No gradient flows through r_t. The copied tokens are subwords of a shared vocabulary with byte
    fallback, which spell every string, so no vocabulary is extended by the words of a source;
    end-of-sentence can be copied as well.
    """

    def __init__(self, output_size: int, context_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(output_size, 1)
        self.continuation = nn.Linear(output_size, 1)
        self.position_weight = nn.Parameter(torch.zeros(2, context_size))

    def position_scores(self, values: Tensor) -> Tensor:
        """Return `u . h_s` of the memory's values [B, S, C] for gate and continuation: [B, S, 2].

        They are sums, as matrix-vector products are not batch-invariant.
        """
        return torch.stack([(values * weight).sum(-1) for weight in self.position_weight], -1)

    def forward(
        self,
        outputs: Tensor,
        attention_weights: Tensor,
        continued: Tensor,
        positions: SourcePositions,
    ) -> tuple[CopyOutputs, Tensor]:
        """Return all that the mixture reads, and c [N, S].

        Takes outputs [N, R], attention weights and the positions that would be continued [N, S].
        """
        shares = self._shares(
            _product(outputs, self.continuation), attention_weights, continued, positions
        )
        mass = torch.zeros_like(shares).scatter_add(1, positions.first, shares)
        gate = _product(outputs, self.gate) + (shares * positions.scores[..., 0]).sum(-1)
        return CopyOutputs(outputs, gate, mass, positions.src), shares

    def _shares(
        self,
        logit: Tensor,
        attention_weights: Tensor,
        continued: Tensor,
        positions: SourcePositions,
    ) -> Tensor:
        logit = logit + (continued * positions.scores[..., 1]).sum(-1)
        continuing = (
            1 / (1 + (-logit.clamp(min=MIN_LOGIT)).exp())[:, None]
        )  # as `sigmoid`, batch-invariant
        attended = attention_weights / attention_weights.sum(-1, keepdim=True)
        total = continued.sum(-1, keepdim=True)
        return (1 - continuing * total) * attended + continuing * continued

    @torch.no_grad()
    def continuations(
        self, outputs: Tensor, attention_weights: Tensor, tgt_in: Tensor, positions: SourcePositions
    ) -> Tensor:
        """Return r_t of all steps [B, T, S], given outputs [B, T, R] and last ids [B, T]."""
        logits = _product(outputs, self.continuation)  # [B, T]
        weights = attention_weights.to(logits.dtype)
        shares = torch.zeros_like(weights[:, 0])
        continued = []
        for t, ids in enumerate(tgt_in.unbind(1)):
            continued.append(continuation(shares, ids, positions.src))
            shares = self._shares(logits[:, t], weights[:, t], continued[-1], positions)
        return torch.stack(continued, 1)


def continuation(copied: Tensor, ids: Tensor, src: Tensor) -> Tensor:
    """Return the positions after those that the last tokens were copied from: r [N, S].

    The copy distribution [N, S] of the last step is restricted to positions in src [N, S] with the
    last ids [N]. r sums to nearly 1, or to nearly 0 if it was improbable to copy the last token.
    """
    here = copied * (src == ids[:, None])
    here = here / (here.sum(-1, keepdim=True) + MIN_COPIED)
    return torch.cat([torch.zeros_like(here[:, :1]), here[:, :-1]], 1)


def _product(outputs: Tensor, layer: nn.Linear) -> Tensor:
    """Return `w . o + b` [...] of outputs [..., R], as a sum, which is batch-invariant."""
    return (outputs * layer.weight[0]).sum(-1) + layer.bias


def first_positions(src: Tensor) -> Tensor:
    """Return for each position of ids [B, S] the first position with the same id: [B, S]."""
    return (src[:, :, None] == src[:, None]).int().argmax(-1)  # the first of equal values
