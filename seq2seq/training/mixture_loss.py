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


class MixtureLoss(NamedTuple):
    """Summed objective and negative log-likelihood, with two gradients of the objective."""

    objective: Tensor  # []
    nll: Tensor  # []
    grad_gate: Tensor  # [M]
    grad_mass: Tensor  # [M, S]


class _Gains(NamedTuple):
    """Contribution of copying to the log-probabilities; zero at all but first positions."""

    log_gate: Tensor  # [M], log g
    gain: Tensor  # [M, S], log P(src_s) - log g p(src_s)
    copied: Tensor  # [M, S], posterior probability that src_s, if it is next, was copied
    slope: Tensor  # [M, S], d log P(src_s) / d c(src_s)


def mixture_loss(
    chunk: TokenChunk, surprisal: Tensor, terms: CopyTerms, weights: LossWeights
) -> MixtureLoss:
    """Return the loss of a chunk of tokens and its gradients.

    A token costs `(1 - e) * -log P(y) + e * mean over v of -log P(v)`, the cross-entropy of the
    mixture with the smoothed target, and with a weight `consistency` the divergence of R-Drop
    between mixtures. The logits and probabilities are those of p, and so is `surprisal` [M],
    `-log p(y)`. Turns the probabilities, in place, into the gradient with respect to the logits,
    without the `- e / V` of smoothing.
    """
    logits, probabilities, means, tgt, real = chunk
    smoothing, consistency = weights.smoothing, weights.consistency
    rows, share = torch.arange(len(tgt), device=tgt.device), smoothing / logits.shape[1]
    log_normalizer = logits[rows, tgt].to(means.dtype) + surprisal
    gains = _gains(logits, log_normalizer, terms)
    gate, is_tgt = terms.gate.sigmoid(), (terms.src == tgt[:, None]).to(means.dtype)
    tgt_gain = (gains.gain * is_tgt).sum(1)
    nll = surprisal - gains.log_gate - tgt_gain
    generated_mean = log_normalizer - means - gains.log_gate  # mean over v of -log g p(v)
    objective = (1 - smoothing) * nll + smoothing * generated_mean - share * gains.gain.sum(1)
    if real is not None:
        objective, nll = objective * real, nll * real
    total = objective.sum()
    by_tgt, by_src = (1 - smoothing) * (-tgt_gain).exp(), share * gains.copied
    grad_gate = by_src.sum(1) - smoothing * (1 - gate) - by_tgt + (1 - smoothing) * gate
    grad_mass = -((1 - smoothing) * is_tgt + share) * gains.slope
    scale = by_tgt + smoothing - by_src.sum(1)
    by_logits = None
    if consistency:
        log_probs = logits - (log_normalizer - gains.log_gate)[:, None]
        log_probs.scatter_add_(1, terms.src, gains.gain)
        costs, by_log_probs = _divergence(log_probs, consistency / 2)
        costs = costs if real is None else costs * real[::2, None]
        divergence = consistency / 2 * costs.sum()
        of_src = by_log_probs.gather(1, terms.src)
        total = total + divergence
        grad_gate += by_log_probs.sum(1) * (1 - gate) - (of_src * gains.copied).sum(1)
        grad_mass += of_src * gains.slope
        by_logits = by_log_probs.scatter_add_(1, terms.src, -of_src * gains.copied)
        scale -= by_logits.sum(1)
    probabilities *= scale[:, None].to(probabilities.dtype)
    probabilities[rows, tgt] -= by_tgt.to(probabilities.dtype)
    probabilities.scatter_add_(1, terms.src, by_src.to(probabilities.dtype))
    if by_logits is not None:
        probabilities += by_logits.to(probabilities.dtype)
    return MixtureLoss(total, nll.sum(), grad_gate, grad_mass)


def _gains(logits: Tensor, log_normalizer: Tensor, terms: CopyTerms) -> _Gains:
    log_gate, log_copy = F.logsigmoid(terms.gate), F.logsigmoid(-terms.gate)
    log_p = logits.gather(1, terms.src).to(log_normalizer.dtype) - log_normalizer[:, None]
    generated = log_gate[:, None] + log_p  # finite
    log_probs = torch.logaddexp(generated, log_copy[:, None] + terms.mass.log())
    gain = log_probs - generated
    slope = (log_copy[:, None] - log_probs).clamp(max=MAX_LOG_SLOPE).exp()
    return _Gains(log_gate, gain, -torch.expm1(-gain), slope)


def _divergence(log_probs: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """Return the terms [N, V] of `KL(P, Q) + KL(Q, P)` of adjacent rows, and a weighted gradient.

    Rows [2N, V] are log-probabilities, of which the gradient [2N, V] is.
    """
    log_p, log_q = log_probs.unflatten(0, (-1, 2)).unbind(1)
    p, q, ratio = log_p.exp(), log_q.exp(), log_p - log_q
    by_p = weight * (p * ratio + (p - q))
    by_q = -weight * (q * ratio + (p - q))
    return (p - q) * ratio, torch.stack([by_p, by_q], 1).flatten(0, 1)
