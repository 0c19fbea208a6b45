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

from seq2seq.model.fused.attention import ScoreWeights, attention_steps
from seq2seq.model.fused.lstm import (
    LayerInputs,
    LSTMStackGradients,
    LSTMStackSteps,
    LSTMSteps,
    without_autocast,
)
from seq2seq.model.layers import tanh_into


def unroll_bahdanau(
    gates: Tensor,
    context_weight: Tensor,
    hidden_weight: Tensor,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    hidden: Tensor,
    cell: Tensor,
    upper: Sequence[LayerInputs] = (),
) -> tuple[Tensor, Tensor]:
    """Unroll `c_t = attend(s_{t-1}); s_t = LSTM(gates_t + C c_t + U s_{t-1})`.

    Gates, hidden and cell belong to the lowest layer; the s that attends and is returned is the top
    layer's. Returns the hidden states s [T, B, H] and the contexts c [T, B, C] of all steps.
    """
    weight = torch.cat([context_weight, hidden_weight], dim=1)
    with torch.autocast(gates.device.type, enabled=False):
        hiddens, contexts = _BahdanauUnroll.apply(  # type: ignore[no-untyped-call]
            gates, weight, *memory, *score, hidden, cell, *chain.from_iterable(upper)
        )
    return hiddens, contexts


def unroll_luong(
    gates: Tensor,
    input_feed_weight: Tensor,
    hidden_weight: Tensor,
    attentional_weight: Tensor,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    hidden: Tensor,
    cell: Tensor,
    upper: Sequence[LayerInputs] = (),
) -> Tensor:
    """Unroll `h_t = LSTM(gates_t + F h~_{t-1} + U h_{t-1}); h~_t = tanh(W [attend(h_t); h_t])`.

    Gates, hidden and cell belong to the lowest layer; the top layer's h attends. Returns the
    attentional vectors h~ [T, B, R] of all steps.
    """
    weight = torch.cat([input_feed_weight, hidden_weight], dim=1)
    with torch.autocast(gates.device.type, enabled=False):
        vectors: Tensor = _LuongUnroll.apply(  # type: ignore[no-untyped-call]
            gates,
            weight,
            attentional_weight,
            *memory,
            *score,
            hidden,
            cell,
            *chain.from_iterable(upper),
        )
    return vectors


class _BahdanauUnroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        weight: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        query_weight: Tensor | None,
        query_bias: Tensor | None,
        energy: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        *upper: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        steps, context_size = len(gates), values.shape[-1]
        score = ScoreWeights(query_weight, query_bias, energy)
        attention = attention_steps(steps, (keys, values, mask), score, gates.dtype)
        lowest = LSTMSteps(steps, weight.to(gates.dtype), hidden, cell)  # reads [c_t; s_{t-1}]
        layers = LSTMStackSteps(lowest, upper)
        contexts = cell.new_empty(steps, len(cell), context_size)
        for t in range(steps):
            contexts[t] = attention.forward(t, layers.top.previous_hidden[t])
            lowest.inputs[t, :, :context_size] = contexts[t]
            layers.forward(t, gates[t])
        ctx.save_for_backward(*layers.saved())
        ctx.attention = attention
        return layers.top.hiddens, contexts

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hiddens, grad_contexts = grads
        layers = LSTMStackGradients(ctx.saved_tensors)
        attention = ctx.attention.gradients()
        for t in reversed(range(len(grad_contexts))):
            grad_context = grad_contexts[t] + layers.backward(t, grad_hiddens[t])
            layers.top.grad_hidden = layers.top.grad_hidden + attention.backward(t, grad_context)
        grad_keys, grad_values, grad_score = attention.finish(layers.top.previous_hidden)
        return (
            layers.lowest.grad_gates,
            layers.lowest.grad_weight(),
            grad_keys,
            grad_values,
            None,
            *grad_score,
            layers.lowest.grad_hidden,
            layers.lowest.grad_cell,
            *layers.upper_gradients(),
        )


class _LuongUnroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        weight: Tensor,
        attentional_weight: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        query_weight: Tensor | None,
        query_bias: Tensor | None,
        energy: Tensor | None,
        hidden: Tensor,
        cell: Tensor,
        *upper: Tensor | None,
    ) -> Tensor:
        steps, context_size = len(gates), values.shape[-1]
        attentional_weight = attentional_weight.to(gates.dtype)
        input_feed_size = len(attentional_weight)
        score = ScoreWeights(query_weight, query_bias, energy)
        attention = attention_steps(steps, (keys, values, mask), score, gates.dtype)
        lowest = LSTMSteps(steps, weight.to(gates.dtype), hidden, cell)  # reads [h~_{t-1}; h_{t-1}]
        layers = LSTMStackSteps(lowest, upper)
        input_feeds = lowest.inputs[:, :, :input_feed_size]
        input_feeds[0] = 0
        vectors = cell.new_empty(steps, len(cell), input_feed_size)
        joined = gates.new_empty(steps, len(cell), attentional_weight.shape[1])  # [c_t; h_t]
        for t in range(steps):
            joined[t, :, context_size:] = layers.forward(t, gates[t])
            joined[t, :, :context_size] = attention.forward(t, joined[t, :, context_size:])
            vectors[t] = joined[t] @ attentional_weight.t()
            input_feeds[t + 1 : t + 2] = tanh_into(vectors[t], vectors[t])  # empty at the end
        ctx.save_for_backward(joined, attentional_weight, vectors, *layers.saved())
        ctx.attention = attention
        return vectors

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad_vectors,) = grads
        joined, attentional_weight, vectors, *saved = ctx.saved_tensors
        dtype = vectors.dtype
        layers = LSTMStackGradients(saved)
        context_size = joined.shape[-1] - layers.top.grad_hidden.shape[-1]
        attention = ctx.attention.gradients()
        slopes = 1 - vectors * vectors  # tanh'
        grad_sums = torch.empty_like(vectors, dtype=joined.dtype)  # gradients of W [c_t; h_t]
        grad_input_feed = torch.zeros_like(vectors[0])
        for t in reversed(range(len(vectors))):
            torch.mul(grad_vectors[t] + grad_input_feed, slopes[t], out=grad_sums[t])
            grad_joined = grad_sums[t] @ attentional_weight
            grad_query = attention.backward(t, grad_joined[:, :context_size].to(dtype))
            grad_top = grad_joined[:, context_size:] + grad_query
            grad_input_feed = layers.backward(t, grad_top.to(dtype))
        grad_attentional = grad_sums.flatten(0, 1).t() @ joined.flatten(0, 1)
        grad_keys, grad_values, grad_score = attention.finish(joined[:, :, context_size:])
        return (
            layers.lowest.grad_gates,
            layers.lowest.grad_weight(),
            grad_attentional.to(dtype),
            grad_keys,
            grad_values,
            None,
            *grad_score,
            layers.lowest.grad_hidden,
            layers.lowest.grad_cell,
            *layers.upper_gradients(),
        )
