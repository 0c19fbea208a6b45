"""Teacher-forced unrolls of the attentional decoders, each one autograd node.

Everything that does not depend on the previous step is computed before the loop over time, and the
gradient of a matrix is one product after it. Products run in the dtype of the gates, all else in
that of the states. The definition remains the decoders' `step`: tests compare values and gradients.

Time-major shapes: gates [T, B, 4H]; hidden, cell [B, H]; keys [B, S, A]; values [B, S, C]; mask
[B, S], added to the scores: 0 at words, -inf at padding.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from seq2seq.model.fused import lstm
from seq2seq.model.fused.attention import AttentionGradients, AttentionSteps, ScoreWeights
from seq2seq.model.fused.lstm import LayerInputs
from seq2seq.model.layers import tanh_into, weight_gradient


def unroll_bahdanau(
    gates: Tensor,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    layers: Sequence[LayerInputs],
    residual: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Unroll `c_t = attend(s_{t-1}); s_t = LSTM(gates_t + W [c_t; s_{t-1}])`.

    The gates are those of the lowest layer, whose weight is W; the s that attends is the top
    layer's. Returns the outputs of the layers [T, B, H] (s, or with `residual` the sum over
    layers), the contexts c [T, B, C] and the attention weights [T, B, S] of all steps.
    """
    with torch.autocast(gates.device.type, enabled=False):
        hiddens, contexts, weights = _BahdanauUnroll.apply(  # type: ignore[no-untyped-call]
            gates, residual, *memory, *score, *chain.from_iterable(layers)
        )
    return hiddens, contexts, weights


def unroll_luong(  # noqa: PLR0913
    gates: Tensor,
    input_feed: Tensor,
    attentional_weight: Tensor,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    layers: Sequence[LayerInputs],
    residual: bool = False,
) -> tuple[Tensor, Tensor]:
    """Unroll `h_t = LSTM(gates_t + W [h~_{t-1}; h_{t-1}]); h~_t = tanh(W_c [attend(h_t); h_t])`.

    `input_feed` [B, R] is the h~ before the first step. The gates are those of the lowest layer,
    whose weight is W; the output of the layers attends: the top layer's h, or with `residual` the
    sum over layers. Returns the attentional vectors h~ [T, B, R] and the attention weights
    [T, B, S] of all steps.
    """
    with torch.autocast(gates.device.type, enabled=False):
        vectors, weights = _LuongUnroll.apply(  # type: ignore[no-untyped-call]
            gates,
            residual,
            input_feed,
            attentional_weight,
            *memory,
            *score,
            *chain.from_iterable(layers),
        )
    return vectors, weights


def _forward_passes(
    gates: Tensor, residual: bool, keys: Tensor, values: Tensor, mask: Tensor, *flat: Any
) -> tuple[AttentionSteps, lstm.LSTMStackSteps]:
    """Return the forward passes, given the memory, the score and the layers as flat tensors."""
    width = len(ScoreWeights._fields)
    memory = (keys, values, mask)
    score = ScoreWeights(*flat[:width])
    layers = flat[width:]
    attention = AttentionSteps(len(gates), memory, score, gates.dtype)
    return attention, lstm.LSTMStackSteps(len(gates), layers, gates.dtype, residual)


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


class _BahdanauUnroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, residual: bool, *flat: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        attention, stack = _forward_passes(gates, residual, *flat)
        batch, _, context_size = attention.values.shape
        contexts = attention.values.new_empty(len(gates), batch, context_size)
        for t in range(len(gates)):
            contexts[t] = attention.forward(t, stack.top.previous_hidden[t])
            stack.lowest.inputs[t, :, :context_size] = contexts[t]
            stack.forward(t, gates[t])
        ctx.save_for_backward(*stack.saved())
        ctx.attention = attention
        ctx.residual = residual
        ctx.set_materialize_grads(False)
        return stack.outputs, contexts, attention.returned_weights()

    @staticmethod
    @lstm.without_autocast
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        stack = lstm.LSTMStackGradients(ctx.saved_tensors, ctx.residual)
        attention = AttentionGradients(ctx.attention, grads[2])
        grad_hiddens = _or_zeros(grads[0], stack.top.saved.cells)
        grad_contexts = _or_zeros(grads[1], attention.grad_contexts)
        top = stack.top
        for t in reversed(range(len(grad_contexts))):
            grad_context = grad_contexts[t] + stack.backward(t, grad_hiddens[t])
            top.grad_hidden = top.grad_hidden + attention.backward(t, grad_context)
        grad_keys, grad_values, grad_score = attention.finish(top.previous_hidden)
        grad_memory = grad_keys, grad_values, None
        return stack.lowest.grad_gates, None, *grad_memory, *grad_score, *stack.finish()


class _LuongUnroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        residual: bool,
        input_feed: Tensor,
        attentional_weight: Tensor,
        *flat: Any,
    ) -> tuple[Tensor, Tensor]:
        attention, stack = _forward_passes(gates, residual, *flat)
        steps = len(gates)
        batch, _, context_size = attention.values.shape
        attentional_weight = attentional_weight.to(gates.dtype)
        output_size, joined_size = attentional_weight.shape
        input_feeds = stack.lowest.inputs[:, :, :output_size]
        input_feeds[0] = input_feed
        vectors = attention.mask.new_empty(steps, batch, output_size)
        joined = gates.new_empty(steps, batch, joined_size)  # [c_t; h_t]
        for t in range(steps):
            joined[t, :, context_size:] = stack.forward(t, gates[t])
            joined[t, :, :context_size] = attention.forward(t, joined[t, :, context_size:])
            vectors[t] = joined[t] @ attentional_weight.t()
            input_feeds[t + 1 : t + 2] = tanh_into(vectors[t], vectors[t])  # empty slice at the end
        ctx.save_for_backward(joined, attentional_weight, vectors, *stack.saved())
        ctx.attention = attention
        ctx.residual = residual
        ctx.set_materialize_grads(False)
        return vectors, attention.returned_weights()

    @staticmethod
    @lstm.without_autocast
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        joined, attentional_weight, vectors, *saved = ctx.saved_tensors
        dtype = vectors.dtype
        grad_vectors = _or_zeros(grads[0], vectors)
        stack = lstm.LSTMStackGradients(saved, ctx.residual)
        attention = AttentionGradients(ctx.attention, grads[1])
        context_size = joined.shape[-1] - stack.top.grad_hidden.shape[-1]
        slopes = 1 - vectors * vectors  # tanh'
        grad_sums = torch.empty_like(vectors, dtype=joined.dtype)  # gradients of W_c [c_t; h_t]
        grad_input_feed = torch.zeros_like(vectors[0])
        for t in reversed(range(len(vectors))):
            torch.mul(grad_vectors[t] + grad_input_feed, slopes[t], out=grad_sums[t])
            grad_joined = grad_sums[t] @ attentional_weight
            grad_query = attention.backward(t, grad_joined[:, :context_size])
            grad_top = grad_joined[:, context_size:] + grad_query
            grad_input_feed = stack.backward(t, grad_top.to(dtype))
        grad_attentional = weight_gradient(grad_sums, joined).to(dtype)
        grad_keys, grad_values, grad_score = attention.finish(joined[:, :, context_size:])
        grad_memory = grad_keys, grad_values, None
        return (
            stack.lowest.grad_gates,
            None,
            grad_input_feed,
            grad_attentional,
            *grad_memory,
            *grad_score,
            *stack.finish(),
        )
