"""Loss of generated and copied tokens, a mixture: values and gradients of a chunk of tokens.

`P(v) = g p(v) + (1 - g) c(v)` with p the softmax of the logits, g the sigmoid of the gate and c(v)
the attention mass on v (See et al. 2017, eq. 9). Only source tokens are copied: everywhere else P
is `g p`, so the vocabulary is passed over once, where p becomes the gradient of the logits.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_LOG_SLOPE = 80.0  # e^80 is finite in float32; where it would be exceeded the mass is zero


class LossWeights(NamedTuple):
    """Label smoothing e, and the weights of the losses beside cross-entropy."""

    smoothing: float = 0.0
    consistency: float = 0.0
    coverage: float = 0.0
    guided: float = 0.0  # guided alignment


class TokenChunk(NamedTuple):
    """M of the target tokens, whose logits are in memory."""

    logits: Tensor  # [M, V]
    probabilities: Tensor  # [M, V], which become the gradient of the logits
    means: Tensor  # [M], of the logits of a row
    tgt: Tensor  # [M], ids
    real: Tensor | None  # [M], 0 in rows of padding, which cost nothing; None: no padding


class CopyTerms(NamedTuple):
    """Parts of the mixture beside the logits of M tokens, as in `model.copying.CopyOutputs`."""

    gate: Tensor  # [M], logit of g
    mass: Tensor  # [M, S], c(src_s) at the first position of src_s, else 0
    src: Tensor  # [M, S]

    def rows(self, rows: slice) -> Self:
        """Return the terms of these tokens."""
        return type(self)(*(term[rows] for term in self))


class _Gains(NamedTuple):
    """Contribution of copying to the log-probabilities; zero at all but first positions."""

    log_gate: Tensor  # [M], log g
    gain: Tensor  # [M, S], log P(src_s) - log g p(src_s)
    copied: Tensor  # [M, S], posterior probability that src_s, if it is next, was copied
    slope: Tensor  # [M, S], d log P(src_s) / d c(src_s)


def mixture_loss(
    chunk: TokenChunk, surprisal: Tensor, terms: CopyTerms, smoothing: float
) -> list[Tensor]:
    """Return objective and negative log-likelihood [2] of a chunk, summed, and two gradients.

    The gradients of the objective are those of gate [M] and mass [M, S].
    A token costs `(1 - e) * -log P(y) + e * mean over v of -log P(v)`, the cross-entropy of the
    mixture with the smoothed target. The logits and probabilities are those of p, and so is
    `surprisal` [M], `-log p(y)`. Turns the probabilities, in place, into the gradient with respect
    to the logits, without the `- e / V` of smoothing.
    """
    logits, probabilities, means, tgt, real = chunk
    rows = torch.arange(len(tgt), device=tgt.device)
    share = smoothing / logits.shape[1]
    log_normalizer = logits[rows, tgt].to(means.dtype) + surprisal
    gains = _gains(logits, log_normalizer, terms)
    gate = terms.gate.sigmoid()
    is_tgt = (terms.src == tgt[:, None]).to(means.dtype)
    tgt_gain = (gains.gain * is_tgt).sum(1)
    nll = surprisal - gains.log_gate - tgt_gain
    generated_mean = log_normalizer - means - gains.log_gate  # mean over v of -log g p(v)
    objective = (1 - smoothing) * nll + smoothing * generated_mean - share * gains.gain.sum(1)
    if real is not None:
        objective = objective * real
        nll = nll * real
    by_tgt = (1 - smoothing) * (-tgt_gain).exp()
    by_src = share * gains.copied
    grad_gate = by_src.sum(1) - smoothing * (1 - gate) - by_tgt + (1 - smoothing) * gate
    grad_mass = -((1 - smoothing) * is_tgt + share) * gains.slope
    scale = by_tgt + smoothing - by_src.sum(1)
    probabilities *= scale[:, None].to(probabilities.dtype)
    probabilities[rows, tgt] -= by_tgt.to(probabilities.dtype)
    probabilities.scatter_add_(1, terms.src, by_src.to(probabilities.dtype))
    return [torch.stack([objective.sum(), nll.sum()]), grad_gate, grad_mass]


def _gains(logits: Tensor, log_normalizer: Tensor, terms: CopyTerms) -> _Gains:
    log_gate = F.logsigmoid(terms.gate)
    log_copy = F.logsigmoid(-terms.gate)
    log_p = logits.gather(1, terms.src).to(log_normalizer.dtype) - log_normalizer[:, None]
    generated = log_gate[:, None] + log_p  # finite
    log_probs = torch.logaddexp(generated, log_copy[:, None] + terms.mass.log())
    gain = log_probs - generated
    slope = (log_copy[:, None] - log_probs).clamp(max=MAX_LOG_SLOPE).exp()
    return _Gains(log_gate, gain, -torch.expm1(-gain), slope)
