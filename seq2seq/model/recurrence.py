"""The teacher-forced unroll written for speed: whole loops with backward passes of their own.

A decoder that attends inside its time loop is unrolled here in one autograd node. Nothing constant
within a sentence is computed in the loop, the [B, S, A] inside a score are recomputed rather than
stored, and every weight's gradient is one product after the loop. Products run in the gates' dtype,
all else in that of the states. The decoders' `step` stays the definition: tests compare values and
gradients.

Time-major shapes: gates [T, B, 4H]; hidden, cell [B, H]; keys [B, S, A]; values [B, S, C]; mask
[B, S], 0 where real and -inf where padding, added to the scores.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from seq2seq.model.attention import ScoreWeights
from seq2seq.model.lstm import without_autocast
from seq2seq.model.lstm_steps import LSTMSteps
from seq2seq.model.nonlinear import tanh_into
from seq2seq.model.unrolled_layers import UnrolledGradients, UnrolledLayers, Upper


def unroll_bahdanau(
    gates: Tensor,
    context_weight: Tensor,
    hidden_weight: Tensor,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    hidden: Tensor,
    cell: Tensor,
    upper: Sequence[Upper] = (),
) -> tuple[Tensor, Tensor]:
    """`c_t = attend(s_{t-1}); s_t = LSTM(gates_t + C c_t + U s_{t-1})`.

    Of several layers gates, hidden and cell are the lowest one's; the s that attends and comes out
    is the top's. Returns every s [T, B, H] and every c [T, B, C].
    """
    weight = torch.cat([context_weight, hidden_weight], dim=1)
    with torch.autocast(gates.device.type, enabled=False):
        hiddens, contexts = _Bahdanau.apply(  # type: ignore[no-untyped-call]
            gates, weight, *memory, *score, hidden, cell, *chain.from_iterable(upper)
        )
    return hiddens, contexts


def unroll_luong(
    gates: Tensor,
    feed_weight: Tensor,
    hidden_weight: Tensor,
    attentional_weight: Tensor,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    hidden: Tensor,
    cell: Tensor,
    upper: Sequence[Upper] = (),
) -> Tensor:
    """`h_t = LSTM(gates_t + F h~_{t-1} + U h_{t-1}); h~_t = tanh(W [attend(h_t); h_t])`.

    Of several layers gates, hidden and cell are the lowest one's, and the top's h attends. Returns
    every h~ [T, B, R].
    """
    weight = torch.cat([feed_weight, hidden_weight], dim=1)
    with torch.autocast(gates.device.type, enabled=False):
        vectors: Tensor = _Luong.apply(  # type: ignore[no-untyped-call]
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


class _Attention:
    """Attention inside a loop: what it reads, and what it keeps of each step for the way back.

    Additive scores `v . tanh(x)` are taken as `2v . s(2x)`, s the logistic function, which torch
    computes far faster: they differ by a constant, `v . 1`, that a softmax does not see.
    """

    def __init__(
        self,
        steps: int,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        score: ScoreWeights,
        product_dtype: torch.dtype,
    ) -> None:
        self.keys = keys if score.energy is None else 2 * keys
        self.values, self.mask = values, mask
        self.energy, self.bias = score.energy, score.bias
        self.query_weight = None if score.query is None else score.query.to(product_dtype)
        batch, length, size = keys.shape
        self.queries = keys.new_empty(steps, batch, size)  # projected
        self.weights = keys.new_empty(steps, batch, length)

    def forward(self, t: int, query: Tensor) -> Tensor:
        """The context [B, C] that the query [B, Q], in the product's dtype, finds at step t."""
        projected = self.queries[t]
        projected.copy_(query if self.query_weight is None else query @ self.query_weight.t())
        if self.bias is not None:
            projected += self.bias
        if self.energy is None:
            scores = torch.bmm(self.keys, projected[:, :, None]).squeeze(2)
        else:
            scores = self.logistic(projected) @ (2 * self.energy)
        torch.softmax(scores.add_(self.mask), dim=-1, out=self.weights[t])
        return torch.bmm(self.weights[t][:, None], self.values).squeeze(1)

    def logistic(self, projected: Tensor) -> Tensor:
        """`s(2x)` of the additive score's x, the query [B, A] plus each key: [B, S, A]."""
        return torch.add(self.keys, projected[:, None], alpha=2).sigmoid_()


class _AttentionGradient:
    """The way back through `_Attention`."""

    def __init__(self, attention: _Attention, context_size: int) -> None:
        self.attention = attention
        self.queries = torch.empty_like(attention.queries)
        self.scores = torch.empty_like(attention.weights)
        steps, batch, _ = attention.weights.shape
        self.contexts = attention.keys.new_empty(steps, batch, context_size)
        energy = attention.energy
        if energy is None:
            self.keys = self.energy = None
        else:
            self.keys = torch.zeros_like(attention.keys)
            self.energy = attention.keys.new_zeros(batch, 1, len(energy))
            self.slope_energy = 4 * energy  # with s the logistic function tanh' is 4 s (1 - s)

    def backward(self, t: int, grad_context: Tensor) -> Tensor:
        """From the gradient of step t's context [B, C] to its query's [B, Q]."""
        attention = self.attention
        self.contexts[t] = grad_context
        weights = attention.weights[t]
        grad_scores = self.scores[t]
        torch.bmm(attention.values, grad_context[:, :, None], out=grad_scores[:, :, None])
        grad_scores -= (grad_scores * weights).sum(1, keepdim=True)
        grad_scores *= weights
        projected = attention.queries[t]
        if self.energy is None or self.keys is None:
            torch.bmm(grad_scores[:, None], attention.keys, out=self.queries[t][:, None])
        else:
            logistic = attention.logistic(projected)
            self.energy.baddbmm_(grad_scores[:, None], logistic)
            slope = logistic.addcmul_(logistic, logistic, value=-1)
            self.keys.addcmul_(grad_scores[:, :, None], slope)
            query = self.queries[t]
            torch.bmm(grad_scores[:, None], slope, out=query[:, None])
            query.mul_(self.slope_energy)
        if attention.query_weight is None:
            return self.queries[t]
        return self.queries[t].to(attention.query_weight.dtype) @ attention.query_weight

    def finish(self, query_inputs: Tensor) -> tuple[Tensor, Tensor, ScoreWeights]:
        """Gradients of keys, values and the score's weights, given every step's query [T, B, Q]."""
        attention = self.attention
        grad_values = torch.bmm(attention.weights.permute(1, 2, 0), self.contexts.transpose(0, 1))
        queries = self.queries.flatten(0, 1)
        grad_query = grad_bias = grad_energy = None
        if attention.query_weight is not None:
            product = queries.to(attention.query_weight.dtype).t() @ query_inputs.flatten(0, 1)
            grad_query = product.to(queries.dtype)
        if attention.bias is not None:
            grad_bias = queries.sum(0)
        if attention.energy is None or self.energy is None or self.keys is None:
            grad_keys = torch.bmm(self.scores.permute(1, 2, 0), attention.queries.transpose(0, 1))
        else:
            grad_keys = self.keys.mul_(self.slope_energy)
            # tanh = 2 s - 1, and the gradients of a softmax's inputs sum to zero
            grad_energy = 2 * self.energy.sum((0, 1))
        return grad_keys, grad_values, ScoreWeights(grad_query, grad_bias, grad_energy)


class _Bahdanau(torch.autograd.Function):
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
        attention = _Attention(steps, keys, values, mask, score, gates.dtype)
        lowest = LSTMSteps(steps, weight.to(gates.dtype), hidden, cell)  # reads [c_t; s_{t-1}]
        layers = UnrolledLayers(lowest, upper)
        contexts = cell.new_empty(steps, len(cell), context_size)
        for t in range(steps):
            contexts[t] = attention.forward(t, layers.top.befores[t])
            lowest.inputs[t, :, :context_size] = contexts[t]
            layers.forward(t, gates[t])
        ctx.save_for_backward(*layers.taken())
        ctx.attention = attention
        return layers.top.hiddens, contexts

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hiddens, grad_contexts = grads
        layers = UnrolledGradients(ctx.saved_tensors)
        attention = _AttentionGradient(ctx.attention, grad_contexts.shape[-1])
        for t in reversed(range(len(grad_contexts))):
            grad_context = grad_contexts[t] + layers.backward(t, grad_hiddens[t])
            layers.top.hidden = layers.top.hidden + attention.backward(t, grad_context)
        grad_keys, grad_values, grad_score = attention.finish(layers.top.befores)
        return (
            layers.lowest.gates,
            layers.lowest.weight(),
            grad_keys,
            grad_values,
            None,
            *grad_score,
            layers.lowest.hidden,
            layers.lowest.cell,
            *layers.of_uppers(),
        )


class _Luong(torch.autograd.Function):
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
        feed_size = len(attentional_weight)
        score = ScoreWeights(query_weight, query_bias, energy)
        attention = _Attention(steps, keys, values, mask, score, gates.dtype)
        lowest = LSTMSteps(steps, weight.to(gates.dtype), hidden, cell)  # reads [h~_{t-1}; h_{t-1}]
        layers = UnrolledLayers(lowest, upper)
        feeds = lowest.inputs[:, :, :feed_size]
        feeds[0] = 0
        vectors = cell.new_empty(steps, len(cell), feed_size)
        joined = gates.new_empty(steps, len(cell), attentional_weight.shape[1])  # [c_t; h_t]
        for t in range(steps):
            joined[t, :, context_size:] = layers.forward(t, gates[t])
            joined[t, :, :context_size] = attention.forward(t, joined[t, :, context_size:])
            vectors[t] = joined[t] @ attentional_weight.t()
            feeds[t + 1 : t + 2] = tanh_into(vectors[t], vectors[t])  # nothing after the last
        ctx.save_for_backward(joined, attentional_weight, vectors, *layers.taken())
        ctx.attention = attention
        return vectors

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad_vectors,) = grads
        joined, attentional_weight, vectors, *taken = ctx.saved_tensors
        dtype = vectors.dtype
        layers = UnrolledGradients(taken)
        context_size = joined.shape[-1] - layers.top.hidden.shape[-1]
        attention = _AttentionGradient(ctx.attention, context_size)
        vector_slopes = 1 - vectors * vectors
        grad_before = torch.empty_like(vectors, dtype=joined.dtype)  # of h~ before its tanh
        grad_feed = torch.zeros_like(vectors[0])
        for t in reversed(range(len(vectors))):
            torch.mul(grad_vectors[t] + grad_feed, vector_slopes[t], out=grad_before[t])
            grad_joined = grad_before[t] @ attentional_weight
            grad_query = attention.backward(t, grad_joined[:, :context_size].to(dtype))
            grad_top = grad_joined[:, context_size:] + grad_query
            grad_feed = layers.backward(t, grad_top.to(dtype))
        grad_attentional = grad_before.flatten(0, 1).t() @ joined.flatten(0, 1)
        grad_keys, grad_values, grad_score = attention.finish(joined[:, :, context_size:])
        return (
            layers.lowest.gates,
            layers.lowest.weight(),
            grad_attentional.to(dtype),
            grad_keys,
            grad_values,
            None,
            *grad_score,
            layers.lowest.hidden,
            layers.lowest.cell,
            *layers.of_uppers(),
        )
