"""Best tokens of a row: top-k, argmax, and an argmax over int8 logits with an error bound."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.inference.weights import int8_multiplier, quantize

CHUNK = 64  # tokens per chunk of a row; the maxima of chunks are compared first
FEW_ROWS = 2  # rows whose tokens are compared without chunks
HALF_ULP = 2.0**-24  # relative rounding error of float32
MARGIN = 1.001  # covers the rounding of the error bound itself


class Continuations(NamedTuple):
    """Best continuations of the hypotheses of each of B sentences, best first."""

    scores: Tensor  # [B, M], nats
    parents: Tensor  # [B, M], which of the K hypotheses is continued
    tokens: Tensor  # [B, M]


def topk_continuations(log_probs: Tensor, scores: Tensor, count: int) -> Continuations:
    """Return the `count` largest `scores + log_probs` per sentence: scores [B, K], [B K, V].

    Equal to sorting all of them, in less than half the time for large V: the largest sums lie in
    the chunks with the largest maxima, so only these chunks are sorted.
    """
    (batch, beam), width = scores.shape, log_probs.shape[-1]
    count, full = min(count, beam * width), width // CHUNK
    rest = full * CHUNK  # start of the last, shorter chunk, if any
    if beam * full < 2 * count:
        totals = log_probs.view(batch, beam, width) + scores[:, :, None]
        best, places = totals.flatten(1).topk(count, dim=-1)
        return Continuations(best, places // width, places % width)
    maxima = log_probs[:, :rest].unflatten(1, (full, CHUNK)).amax(-1)
    if rest < width:
        maxima = torch.cat([maxima, log_probs[:, rest:].amax(-1, keepdim=True)], dim=1)
    chunks = (maxima + scores.view(-1, 1)).view(batch, -1).topk(count, dim=-1).indices  # [B, M]
    parents, chunks = chunks // maxima.shape[1], chunks % maxima.shape[1]
    tokens = chunks[:, :, None] * CHUNK + torch.arange(CHUNK, device=scores.device)  # [B, M, CHUNK]
    places = parents[:, :, None] * width + tokens.clamp(max=width - 1)
    found = log_probs.view(batch, -1).gather(1, places.flatten(1)).view_as(places)
    if rest < width:
        found.masked_fill_(tokens >= width, -torch.inf)
    totals = found + scores.gather(1, parents)[:, :, None]
    best, where = totals.flatten(1).topk(count, dim=-1)
    places = places.flatten(1).gather(1, where)
    return Continuations(best, places // width, places % width)


def diverse_continuations(
    log_probs: Tensor, scores: Tensor, groups: int, diversity: float
) -> Continuations:
    """Return the continuations of groups, chosen one after the other: [B G, 2 K / G].

    Diverse beam search (Vijayakumar et al. 2018) with Hamming diversity: a group ranks tokens by
    their log-probability minus `diversity` times the number of hypotheses of earlier groups that
    continue with the same token at this step. Scores [B G, K / G] are log-probabilities without the
    penalty; continuations beyond the K / G best that end, or do not end, have -inf.
    """
    width, size = scores.shape[1], log_probs.shape[-1]
    by_group = log_probs.view(-1, groups, width, size)
    own_scores = scores.view(-1, groups, width)
    counts = log_probs.new_zeros(len(by_group), size)
    found = []
    for group in range(groups):
        own, totals = by_group[:, group], own_scores[:, group].contiguous()  # [B, K / G (, V)]
        ranked = (own - diversity * counts[:, None]).reshape(-1, size).contiguous()
        best = topk_continuations(ranked, totals, 2 * width)
        totals = totals.gather(1, best.parents)
        totals = totals + own.flatten(1).gather(1, best.parents * size + best.tokens)
        ends = best.tokens == EOS_ID
        place = torch.arange(best.tokens.shape[1], device=scores.device)
        kept = torch.where(ends, place < width, (~ends).cumsum(dim=1) <= width)
        totals = totals.masked_fill(~kept | best.scores.isneginf(), -torch.inf)
        continuing = (kept & ~ends & ~totals.isneginf()).to(counts.dtype)
        counts.scatter_add_(1, best.tokens, continuing)
        found.append(Continuations(totals, best.parents, best.tokens))
    return Continuations(*(torch.stack(part, 1).flatten(0, 1) for part in zip(*found, strict=True)))


def argmax_token(values: Tensor) -> Tensor:
    """Return the first argmax of each row [N, V] -> [N], in a third of the time of `argmax`."""
    tokens = _tokens(_maxima(values).argmax(-1), values.shape[-1])
    places = values.gather(1, tokens).argmax(-1, keepdim=True)
    return tokens.gather(1, places).squeeze(1)


class ApproximateLogits(NamedTuple):
    """Approximate logits of N rows with an error bound, and exact ones on request."""

    logits: Tensor  # [N, V]
    error_bound: Tensor  # [N], on the distance of each logit of the row to the exact one
    outputs: Tensor  # [N, R]
    weight: Tensor  # [V, R]
    bias: Tensor  # [V]

    def exact(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Return the exact logits of rows [M] and tokens [M]: [M], batch-invariant."""
        products = self.outputs.index_select(0, rows) * self.weight.index_select(0, tokens)
        return products.sum(-1) + self.bias.index_select(0, tokens)


class ApproximateProjection:
    """Output projection [V, R] with inputs and weights quantized to int8.

    For quantized `x + d` and `w + e` the error `|(x + d)(w + e) - x w|` is at most
    `|d| |w + e| + |x| |e|` by Cauchy-Schwarz, where each of the R entries of d is at most half a
    quantization step.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight.detach(), bias.detach()
        integers, scale = quantize(self.weight)
        self.multiply = int8_multiplier(integers, scale.squeeze(1))
        values = integers * scale
        width, max_norm, max_error = weight.shape[1], _max_norm(values), _max_norm(weight - values)
        # rounding of float32 sums, both here and in the exact product
        rounding = (width + 8) * HALF_ULP * (max_norm + max_error)
        bias_error = 4 * HALF_ULP * float(self.bias.abs().max())
        factors = 0.5 * math.sqrt(width) * max_norm, max_error + rounding
        terms = self.weight.new_tensor([*factors, bias_error]) * MARGIN
        self.is_bounded = bool(terms.isfinite().all())
        self.per_step, self.per_norm, self.bias_error = terms  # terms of the error bound

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the exact weights: the kernel belongs to this process."""
        return ApproximateProjection, (self.weight, self.bias)

    def __call__(self, outputs: Tensor) -> ApproximateLogits:
        """Return approximate logits [N, V] of outputs [N, R]."""
        integers, step = quantize(outputs)
        sums = self.multiply(integers)
        logits = torch.addcmul(self.bias, sums, step, out=sums)
        bound = torch.addcmul(self.bias_error, step.squeeze(1), self.per_step)
        bound.addcmul_(torch.linalg.vector_norm(outputs, dim=1), self.per_norm)
        return ApproximateLogits(logits, bound, outputs, self.weight, self.bias)


def argmax_of_approximate(approximate: ApproximateLogits) -> tuple[Tensor, Tensor]:
    """Return the first argmax of each row's exact logits, and the maximum: [N], [N].

    The maximum is -inf for a row of nan.

    Exact logits are computed only for candidates within twice the error bound of the row maximum,
    usually one or two.
    """
    count, width = approximate.logits.shape
    rows, tokens = _candidates(approximate)
    exact = approximate.exact(rows, tokens)
    best = exact.new_full((count,), -torch.inf).scatter_reduce(0, rows, exact, "amax")
    tokens = tokens.masked_fill(exact < best[rows], width - 1)
    first: Tensor = tokens.new_full((count,), width - 1).scatter_reduce(0, rows, tokens, "amin")
    return first, best


def _candidates(approximate: ApproximateLogits) -> tuple[Tensor, Tensor]:
    """Return the rows [M] and tokens [M] of the logits that may be their row's maximum."""
    logits, margin = approximate.logits, approximate.error_bound[:, None]
    if logits.shape[0] <= FEW_ROWS:
        least = torch.sub(logits.amax(-1, keepdim=True), margin, alpha=2)  # [N, 1]
        rows, tokens = (logits >= least).nonzero().unbind(1)
        return rows, tokens
    maxima = _maxima(logits)
    least = torch.sub(maxima.amax(-1, keepdim=True), margin, alpha=2)
    rows, chunks = (maxima >= least).nonzero().unbind(1)
    tokens = _tokens(chunks, logits.shape[1])
    candidates = logits[rows[:, None], tokens] >= least[rows]
    return rows[:, None].expand_as(tokens)[candidates], tokens[candidates]


def _maxima(values: Tensor) -> Tensor:
    """Return the maximum of each chunk of a row: [N, V] -> [N, C]."""
    width = values.shape[-1]
    rest = width // CHUNK * CHUNK
    if rest == 0:
        return values.amax(-1, keepdim=True)
    maxima = [values[:, :rest].unflatten(1, (-1, CHUNK)).amax(-1)]
    if rest < width:
        maxima.append(values[:, -CHUNK:].amax(-1, keepdim=True))
    return torch.cat(maxima, dim=1)


def _tokens(chunks: Tensor, width: int) -> Tensor:
    """Return the tokens of chunks [M] of a vocabulary: [M, CHUNK]; the last chunk ends with it."""
    size = min(CHUNK, width)
    first = (chunks * CHUNK).clamp(max=width - size)
    return first[:, None] + torch.arange(size, device=chunks.device)


def _max_norm(rows: Tensor) -> float:
    return float(torch.linalg.vector_norm(rows, dim=1).max())
