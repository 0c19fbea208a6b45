"""Label-smoothed cross-entropy, fused with the output projection, and R-Drop.

R-Drop (Liang et al. 2021) passes every pair twice, with different dropout, and adds the divergence
of the two output distributions to the loss.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seq2seq.data.padding import Batch
from seq2seq.model.copying import Copying, CopyOutputs
from seq2seq.model.layers import pad_rows
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import SourcePositions, Unrolled
from seq2seq.training.mixture_loss import CopyTerms, LossWeights, TokenChunk, mixture_loss

CHUNK = 512  # rows whose logits are in memory at a time; even
BLOCK = 4 * CHUNK  # rows whose logit gradients are in memory at a time
GPU_CHUNK = 8192  # maximum rows of both on a GPU, where a call costs as much as hundreds of rows


class Losses(NamedTuple):
    """Sums over target tokens, in nats."""

    objective: Tensor  # [], minimised by training: with smoothing and the terms of further losses
    nll: Tensor  # [], negative log-likelihood, without these terms; it has no gradient


def batch_loss(
    model: Seq2Seq,
    batch: Batch,
    weights: LossWeights = LossWeights(),  # noqa: B008 -- a tuple
) -> Losses:
    """Return the summed loss of a batch's target tokens, in nats.

    With a weight `consistency`, each token costs the mean of its losses under the distributions p
    and q of two passes, and `consistency / 4 * (KL(p, q) + KL(q, p))` (half of Liang et al. 2021,
    equation 4); its negative log-likelihood is the mean over both passes. `coverage` and `guided`
    are weights of its coverage loss and, if the batch has an alignment, its alignment loss (means
    over the passes), which are added.
    """
    passes = 2 if weights.consistency else 1
    src, src_lengths, tgt_in, tgt = (
        ids.repeat_interleave(passes, dim=0)
        for ids in (batch.src, batch.src_lengths, batch.tgt_in, batch.tgt_out)
    )
    unrolled = model.unroll(src, src_lengths, tgt_in)  # [passes * B, T, *], passes adjacent
    tokens = _time_first(batch, unrolled.outputs.shape[1], passes)
    selected = _select(unrolled.outputs, tokens)
    outputs: Tensor | CopyOutputs = selected
    if model.copying is not None:
        outputs = _copy_outputs(model.copying, selected, unrolled, tokens)
    real = None if batch.real is None else batch.real.repeat_interleave(passes)
    objective, nll = token_loss(outputs, model.projection, tgt, weights, real)
    if weights.coverage:
        assert unrolled.attention_weights is not None, "no coverage without attention"
        losses = _select(coverage_losses(unrolled.attention_weights)[:, :, None], tokens)
        losses = losses if real is None else losses * real[:, None]
        objective = objective + weights.coverage * losses.sum()
    if weights.guided and batch.alignment is not None and batch.src_words is not None:
        assert unrolled.attention_weights is not None, "no guided alignment without attention"
        targets = [batch.alignment, batch.src_words]
        costs = alignment_losses(
            unrolled.attention_weights, *(target.repeat_interleave(passes, 0) for target in targets)
        )
        objective = objective + weights.guided * costs.sum()
    return Losses(objective / passes, nll / passes)


def _time_first(batch: Batch, width: int, passes: int) -> Tensor | None:
    """Return positions [passes * M] of target tokens, time first; None: all of a rounded batch."""
    if batch.real is not None:
        return None
    rows = batch.tgt_positions // width
    columns = batch.tgt_positions % width
    first = (columns * len(batch.src) + rows) * passes  # decoders lay out memory with time first
    return (first[:, None] + torch.arange(passes, device=first.device)).flatten()


def _copy_outputs(
    copying: Copying, outputs: Tensor, unrolled: Unrolled, tokens: Tensor | None
) -> CopyOutputs:
    """Return the outputs [M, R] of target tokens with what their mixtures read."""
    weights, continued, positions = unrolled[1:]
    assert weights is not None, "no copying without attention"
    assert continued is not None, "set with copying"
    assert positions is not None, "set with copying"
    if tokens is None:
        tokens = torch.arange(len(outputs), device=outputs.device)
    sentences = tokens % len(weights)
    of_tokens = SourcePositions(*(part.index_select(0, sentences) for part in positions))
    copy_outputs: CopyOutputs
    copy_outputs, _ = copying(
        outputs, _select(weights, tokens), _select(continued, tokens), of_tokens
    )
    return copy_outputs


def _select(sequences: Tensor, tokens: Tensor | None) -> Tensor:
    """Return the rows [M, *] of sequences [B, T, *] at positions [M], counted time first."""
    rows = sequences.transpose(0, 1).flatten(0, 1)
    return rows if tokens is None else rows.index_select(0, tokens)


def coverage_losses(attention_weights: Tensor) -> Tensor:
    """Return the coverage loss of each step: attention weights [B, T, S] -> [B, T].

    `sum over s of min(a_ts, c_ts)` with the coverage `c_ts = sum of a_{t',s} over t' < t` (See et
    al. 2017, eq. 12): it is large if a step attends again to what was attended before.
    """
    if attention_weights.is_cuda and torch.are_deterministic_algorithms_enabled():
        coverage = sums_by_product(attention_weights)
    else:
        sums = attention_weights.cumsum(dim=1)
        coverage = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], dim=1)
    return torch.minimum(attention_weights, coverage).sum(dim=2)


def sums_by_product(values: Tensor) -> Tensor:
    """Return the sum of all earlier steps for each step of [B, T, S], as a matrix product.

    On CUDA a cumulative sum is not deterministic, and refused where it has to be.
    """
    lower_triangle = values.new_ones(values.shape[1], values.shape[1]).tril(-1)
    with torch.autocast(values.device.type, enabled=False):
        return lower_triangle @ values


def alignment_losses(attention_weights: Tensor, alignment: Tensor, src_words: Tensor) -> Tensor:
    """Return the alignment loss of each step, in nats: attention weights [B, T, S] -> [B, T].

    The cross-entropy `- sum over w of A_tw log a_tw` of attention with an alignment A [B, T, W]
    over source words (Chen et al. 2016). The attention a_tw on a word is the sum of that on
    its tokens, by their words [B, S]. A word without attention, as outside of a window, costs
    nothing, since no gradient could reach it.
    """
    weights = attention_weights.to(alignment.dtype)
    batch, steps, words = alignment.shape
    columns = src_words[:, None].expand(-1, steps, -1)  # [B, T, S]
    on_words = weights.new_zeros(batch, steps, words + 1).scatter_add(2, columns, weights)
    on_words = on_words[..., :words]
    surprisal = -on_words.clamp(min=torch.finfo(on_words.dtype).tiny).log()
    return (alignment * surprisal * (on_words > 0)).sum(2)


def token_loss(
    outputs: Tensor | CopyOutputs,
    projection: nn.Linear,
    tgt: Tensor,
    weights: LossWeights = LossWeights(),  # noqa: B008 -- a tuple
    real: Tensor | None = None,
) -> Losses:
    """Return the summed loss, in nats, of M target tokens: outputs [M, R], target ids [M].

    A token costs `(1 - e) * -log p(y) + e * mean over v of -log p(v)` (Szegedy et al. 2016,
    section 7). With a weight `consistency`, rows are pairs of passes of a token, and a pair costs
    `consistency / 2 * (KL(p, q) + KL(q, p))` more (Liang et al. 2021, equation 4).
    Logits [M, V] are computed in chunks, whose gradients are accumulated in the forward pass. With
    `CopyOutputs` p is the mixture with copied tokens; see `mixture_loss`. Rows where `real` [M] is
    0, not 1, are padding: they cost nothing and have no gradient.
    """
    gate = mass = src = None
    if isinstance(outputs, CopyOutputs):
        outputs, gate, mass, src = outputs
        gate = gate.to(projection.weight.dtype)
        mass = mass.to(projection.weight.dtype)
    if real is not None:  # gradients of what is multiplied by zero are zero
        outputs = outputs * real[:, None].to(outputs.dtype)
        if gate is not None and mass is not None:
            gate = gate * real
            mass = mass * real[:, None]
    needs_grad = torch.is_grad_enabled()
    dtype = torch.get_autocast_dtype(outputs.device.type)
    if not torch.is_autocast_enabled(outputs.device.type):
        dtype = outputs.dtype
    with torch.autocast(outputs.device.type, enabled=False):
        objective, nll = _FusedLoss.apply(  # type: ignore[no-untyped-call]
            outputs.to(dtype),
            projection.weight,
            projection.bias,
            gate,
            mass,
            src,
            tgt,
            real,
            weights,
            needs_grad,
        )
    return Losses(objective, nll)


class _FusedLoss(torch.autograd.Function):
    """Cross-entropy of `outputs @ weight.T + bias`, which computes gradients in the forward pass.

    Logits, probabilities and products have the outputs' dtype, sums and logarithms the weight's.
    Smoothing subtracts `e / V` from the gradient of every logit: its contribution to the gradients
    of outputs, weight and bias needs no pass over the logits.
    """

    @staticmethod
    def forward(  # noqa: PLR0913
        ctx: Any,
        outputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        gate: Tensor | None,
        mass: Tensor | None,
        src: Tensor | None,
        tgt: Tensor,
        real: Tensor | None,
        weights: LossWeights,
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        product_weight = weight.to(outputs.dtype)
        product_bias = bias.to(outputs.dtype)
        mean_weight = weight.mean(0)
        means = outputs.to(weight.dtype) @ mean_weight + bias.mean()
        chunk, at_once = _chunk_and_block(len(outputs), outputs.device, needs_grad)
        padded = pad_rows(outputs, chunk)
        vocabulary = len(weight)
        total = weight.new_zeros(2)
        logits, probabilities = (outputs.new_empty(rows, vocabulary) for rows in (chunk, at_once))
        share = weights.smoothing / vocabulary
        if needs_grad:
            grad_outputs = (-weights.smoothing * mean_weight).repeat(len(tgt), 1)
            grad_weight = (-share * outputs.sum(0, dtype=weight.dtype)).repeat(vocabulary, 1)
            predicted = len(tgt) if real is None else real.sum()
            grad_bias = weight.new_zeros(vocabulary) - share * predicted
        terms = None if src is None else CopyTerms(gate, mass, src)  # type: ignore[arg-type]
        grad_terms = [] if terms is None else [torch.zeros_like(term) for term in terms[:2]]
        for start in range(0, len(padded), chunk):
            rows = slice(start, start + chunk)
            end = start + chunk
            place = start % at_once
            filled_rows = slice(min(chunk, len(tgt) - start))
            of_rows = None if real is None else real[rows]
            grad_logits = probabilities[place : place + chunk]
            torch.addmm(product_bias, padded[rows], product_weight.t(), out=logits)
            torch.softmax(logits, dim=-1, out=grad_logits)
            part = TokenChunk(
                logits[filled_rows], grad_logits[filled_rows], means[rows], tgt[rows], of_rows
            )
            losses, *by_terms = _chunk_loss(
                part, None if terms is None else terms.rows(rows), weights
            )
            total += losses
            for grad_term, grad in zip(grad_terms, by_terms, strict=True):
                grad_term[rows] = grad
            if needs_grad:
                grad_outputs[rows] += (grad_logits @ product_weight)[filled_rows]
                grad_bias += _sum_of_rows(grad_logits[filled_rows], of_rows)
            if needs_grad and (place + chunk == at_once or end == len(padded)):
                grad_weight += probabilities[: place + chunk].t() @ padded[start - place : end]
        if needs_grad:
            grads = grad_outputs.to(outputs.dtype), grad_weight, grad_bias, *grad_terms
            ctx.save_for_backward(*grads)
        objective = total[0].clone()
        nll = total[1].clone()
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scale, _ = grads
        gradients = [gradient * scale for gradient in ctx.saved_tensors]
        return (*gradients, *[None] * (10 - len(gradients)))


def _sum_of_rows(rows: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sum [V] of rows [M, V], weighted by [M]: a product, faster than a reduction."""
    if weights is None:
        return rows.sum(0)
    return (weights.to(rows.dtype)[None] @ rows)[0]


def _chunk_and_block(tokens: int, device: torch.device, needs_grad: bool) -> tuple[int, int]:
    """Return the rows whose logits, and whose gradients, are in memory at a time."""
    if device.type == "cpu":
        return CHUNK, BLOCK if needs_grad else CHUNK
    chunks = -(-tokens // GPU_CHUNK)  # equal sizes
    rows = -(-tokens // chunks)
    return rows + rows % 2, rows + rows % 2


def _chunk_loss(chunk: TokenChunk, terms: CopyTerms | None, weights: LossWeights) -> list[Tensor]:
    """Return summed objective and negative log-likelihood [2], and by copying two gradients.

    Turns the probabilities, in place, into the gradient of logits, without smoothing's `- e / V`.
    """
    logits, probabilities, means, tgt, real = chunk
    smoothing = weights.smoothing
    consistency = weights.consistency
    rows = torch.arange(len(tgt), device=tgt.device)
    logit, likelihood = (values[rows, tgt].to(means.dtype) for values in (logits, probabilities))
    surprisal = _surprisal(logits, probabilities, logit, likelihood)
    if terms is not None:
        return mixture_loss(chunk, surprisal, terms, smoothing)
    costs = smoothing * (logit - means) + surprisal
    if real is not None:
        costs = costs * real
        surprisal = surprisal * real
    objective = costs.sum()
    if consistency:
        divergences, by_logits = _divergence(logits.to(means.dtype), probabilities.to(means.dtype))
        divergences = divergences if real is None else divergences * real[::2]
        objective = objective + consistency / 2 * divergences.sum()
    probabilities[rows, tgt] = (likelihood - (1 - smoothing)).to(probabilities.dtype)
    if consistency:
        probabilities.add_(by_logits, alpha=consistency / 2)
    return [torch.stack([objective, surprisal.sum()])]


def _surprisal(logits: Tensor, probabilities: Tensor, logit: Tensor, likelihood: Tensor) -> Tensor:
    """Return `-log p_y` [M]; if p_y underflows, `z_m - z_y - log p_m` of the largest logit z_m."""
    normal = likelihood >= torch.finfo(likelihood.dtype).tiny
    largest, most_probable = (values.amax(-1).to(logit.dtype) for values in (logits, probabilities))
    far = largest - logit - most_probable.log()
    return torch.where(normal, -likelihood.log(), far)


def _divergence(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Return `KL(p, q) + KL(q, p)` [N] of adjacent rows [2N, V], and its gradient.

    It is `sum over v of (p - q) (z_p - z_q)`, as the normalizers cancel out.
    """
    z_p, z_q = _passes(logits)
    p, q = _passes(probabilities)
    by_logits = torch.empty_like(logits)
    by_z_p, by_z_q = _passes(by_logits)
    differences = z_p - z_q
    unlike = p - q
    for distribution, out in ((p, by_z_p), (q, by_z_q)):
        mean = torch.linalg.vecdot(distribution, differences)[:, None]
        torch.addcmul(unlike, distribution, differences - mean, out=out)
    by_z_q.neg_()
    return torch.linalg.vecdot(unlike, differences), by_logits


def _passes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return every first and every second row of a pair."""
    first, second = rows.unflatten(0, (-1, 2)).unbind(1)
    return first, second
