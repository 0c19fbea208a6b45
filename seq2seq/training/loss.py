"""Label-smoothed cross-entropy over target tokens, the projection to the vocabulary fused in.

With a weight for consistency every pair passes twice, each time under dropout of its own, and the
distributions of the two passes are drawn together: R-Drop (Liang et al. 2021).
"""

from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.data.batching import Batch
from seq2seq.model.seq2seq import Seq2Seq

CHUNK = 512  # rows whose logits exist at one time, an even number
BLOCK = 4 * CHUNK  # rows whose gradients by the logits do
CUDA_CHUNK = 8192  # the most rows of both on CUDA, where a call costs as much as hundreds of them


def batch_loss(
    model: Seq2Seq, batch: Batch, label_smoothing: float, consistency: float = 0.0
) -> Tensor:
    """The summed loss of a batch's target tokens, nats; of two passes, their mean.

    Two passes are made where there is a weight for consistency: a token then costs, with p and q
    its distributions in the one and the other, what it costs on average under p and q, and
    `consistency / 4 * (KL(p, q) + KL(q, p))` (half of Liang et al. 2021, equation 4).
    """
    passes = 2 if consistency else 1
    src, src_lengths, tgt_in, tgt = (
        each.repeat_interleave(passes, dim=0)
        for each in (batch.src, batch.src_lengths, batch.tgt_in, batch.tgt_out)
    )
    outputs = model(src, src_lengths, tgt_in)  # [passes * B, T, R], those of a pair side by side
    rows, columns = batch.tgt_positions // outputs.shape[1], batch.tgt_positions % outputs.shape[1]
    firsts = columns * len(outputs) + rows * passes  # decoders fill memory with time first
    tokens = (firsts[:, None] + torch.arange(passes, device=firsts.device)).flatten()
    real = outputs.transpose(0, 1).flatten(0, 1).index_select(0, tokens)
    return token_loss(real, model.projection, tgt, label_smoothing, consistency) / passes


def token_loss(
    outputs: Tensor,
    projection: nn.Linear,
    tgt: Tensor,
    label_smoothing: float,
    consistency: float = 0.0,
) -> Tensor:
    """The summed loss, nats, of M target tokens: outputs [M, R], the ids to predict [M] -> scalar.

    A token costs `(1 - e) * -log p(y) + e * mean over v of -log p(v)` (Szegedy et al. 2016,
    section 7). Where consistency has a weight, rows come in twos, the passes of a token, and two
    cost `consistency / 2 * (KL(p, q) + KL(q, p))` more (Liang et al. 2021, equation 4).
    Logits [M, V] are never whole in memory: a chunk at a time, each leaves its gradients behind.
    """
    wanted = torch.is_grad_enabled()
    dtype = torch.get_autocast_dtype(outputs.device.type)
    if not torch.is_autocast_enabled(outputs.device.type):
        dtype = outputs.dtype
    with torch.autocast(outputs.device.type, enabled=False):
        loss: Tensor = _FusedLoss.apply(  # type: ignore[no-untyped-call]
            outputs.to(dtype),
            projection.weight,
            projection.bias,
            tgt,
            label_smoothing,
            consistency,
            wanted,
        )
    return loss


class _FusedLoss(torch.autograd.Function):
    """Logits, probabilities and products have the outputs' dtype; sums and logarithms the weight's.

    Smoothing takes `e / V` from the gradient by every logit alike: what comes of that is put into
    the gradients of outputs, weight and bias, without a pass over the logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        outputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        tgt: Tensor,
        label_smoothing: float,
        consistency: float,
        wanted: bool,
    ) -> Tensor:
        product_weight, product_bias = weight.to(outputs.dtype), bias.to(outputs.dtype)
        mean_weight = weight.mean(0)
        means = outputs.to(weight.dtype) @ mean_weight + bias.mean()
        chunk, at_once = _chunk_and_block(len(outputs), outputs.is_cuda, wanted)
        filled, pieces, total = _filled(outputs, chunk), len(weight), weight.new_zeros(())
        logits, probabilities = (outputs.new_empty(rows, pieces) for rows in (chunk, at_once))
        share = label_smoothing / pieces
        grad_outputs = (-label_smoothing * mean_weight).repeat(len(tgt), 1)
        grad_weight = (-share * outputs.sum(0, dtype=weight.dtype)).repeat(pieces, 1)
        grad_bias = weight.new_full((pieces,), -share * len(tgt))
        for start in range(0, len(filled), chunk):
            rows, end, place = slice(start, start + chunk), start + chunk, start % at_once
            real = slice(min(chunk, len(tgt) - start))
            grad_logits = probabilities[place : place + chunk]
            torch.addmm(product_bias, filled[rows], product_weight.t(), out=logits)
            torch.softmax(logits, dim=-1, out=grad_logits)
            total += _smoothed(
                logits[real],
                grad_logits[real],
                means[rows],
                tgt[rows],
                label_smoothing,
                consistency,
            )
            if wanted:
                grad_outputs[rows] += (grad_logits @ product_weight)[real]
                grad_bias += grad_logits[real].sum(0)
            if wanted and (place + chunk == at_once or end == len(filled)):
                grad_weight += probabilities[: place + chunk].t() @ filled[start - place : end]
        ctx.save_for_backward(grad_outputs.to(outputs.dtype), grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grads
        grad_outputs, grad_weight, grad_bias = ctx.saved_tensors
        return grad_outputs * scale, grad_weight * scale, grad_bias * scale, None, None, None, None


def _chunk_and_block(tokens: int, on_cuda: bool, wanted: bool) -> tuple[int, int]:
    """Rows whose logits exist at one time, and rows whose gradients do where they are wanted."""
    if not on_cuda:
        return CHUNK, BLOCK if wanted else CHUNK
    chunks = -(-tokens // CUDA_CHUNK)  # all of one size
    rows = -(-tokens // chunks)
    return rows + rows % 2, rows + rows % 2


def _filled(rows: Tensor, chunk: int) -> Tensor:
    """With zero rows to a whole chunk: matrix kernels are made anew for each new size."""
    missing = -len(rows) % chunk
    return rows if missing == 0 else torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


def _smoothed(
    logits: Tensor,
    probabilities: Tensor,
    means: Tensor,
    tgt: Tensor,
    smoothing: float,
    consistency: float,
) -> Tensor:
    """The summed loss of a chunk, of whose logits [M, V] `means` [M] are the means.

    Its probabilities [M, V] become the gradient by the logits, in place, but for smoothing's
    `- e / V`. With p the softmax, `logsumexp - z_y` is `-log p_y`: one pass yields both.
    """
    rows = torch.arange(len(tgt), device=tgt.device)
    aimed, likelihood = (each[rows, tgt].to(means.dtype) for each in (logits, probabilities))
    least = torch.finfo(means.dtype).tiny
    loss = (smoothing * (aimed - means) - likelihood.clamp(min=least).log()).sum()
    apart = None
    if consistency:
        apart = _apart(logits.to(means.dtype), probabilities.to(means.dtype))
    probabilities[rows, tgt] = (likelihood - (1 - smoothing)).to(probabilities.dtype)
    if apart is not None:
        divergence, by_logits = apart
        loss = loss + consistency / 2 * divergence
        probabilities.add_(by_logits, alpha=consistency / 2)
    return loss


def _apart(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """The summed `KL(p, q) + KL(q, p)` of rows in twos [2N, V], and its gradient by the logits.

    It is `sum over v of (p - q) (z_p - z_q)`, for the normalizers cancel out.
    """
    (z_p, z_q), (p, q) = _passes(logits), _passes(probabilities)
    by_logits = torch.empty_like(logits)
    by_z_p, by_z_q = _passes(by_logits)
    differences, unlike = z_p - z_q, p - q
    for each, out in ((p, by_z_p), (q, by_z_q)):
        mean = torch.linalg.vecdot(each, differences)[:, None]
        torch.addcmul(unlike, each, differences - mean, out=out)
    by_z_q.neg_()
    return torch.linalg.vecdot(unlike, differences).sum(), by_logits


def _passes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second of rows in twos."""
    first, second = rows.unflatten(0, (-1, 2)).unbind(1)
    return first, second
