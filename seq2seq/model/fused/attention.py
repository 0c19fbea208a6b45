"""Manual forward and backward passes of attention, one decoder step at a time.

Scores are dot products `q . k` or additive, `v . tanh(q + k)`, of projected queries q and keys k.
Activations are stored for the backward pass except the [B, S, A] hidden layer of additive scores,
which is recomputed. Products have the dtypes of keys and of values; weights, and sums over steps,
that of the mask. Time-major shapes as in decoders.py.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.model.layers import weight_gradient


class ScoreWeights(NamedTuple):
    """A score function as plain tensors: `v . tanh(p + key)`, or `p . key` without v.

    The projected query is `p = W q + b`, or q itself without W.
    """

    query: Tensor | None = None  # W [A, Q]
    bias: Tensor | None = None  # b [A]
    energy: Tensor | None = None  # v [A]


class AttentionSteps:
    """Forward pass, with the activations that the backward pass reads.

    Additive scores are computed as `2v . s(2x)`, s being the logistic function, which is faster.
    Since `tanh x = 2 s(2x) - 1`, they differ from `v . tanh(x)` by the constant `v . 1`, to which a
    softmax is invariant.
    """

    def __init__(
        self,
        steps: int,
        memory: tuple[Tensor, Tensor, Tensor],
        score: ScoreWeights,
        product_dtype: torch.dtype,
    ) -> None:
        """Take keys, values and additive mask as the memory."""
        self.keys, self.values, self.mask = memory
        self.query_weight = None if score.query is None else score.query.to(product_dtype)
        self.query_bias = score.bias
        self.energy = score.energy
        if self.energy is not None:
            self.keys = 2 * self.keys  # doubled once for `hidden`
            self.twice_energy = (2 * self.energy).to(self.keys)
        batch, length, size = self.keys.shape
        self.queries = self.keys.new_empty(steps, batch, size)  # projected
        self.attention_weights = self.mask.new_empty(steps, batch, length)

    def forward(self, t: int, query: Tensor) -> Tensor:
        """Attend at step t with a query [B, Q] in the product dtype; return the context [B, C]."""
        projected = self.queries[t]
        weights = self.attention_weights[t]
        projected.copy_(query if self.query_weight is None else query @ self.query_weight.t())
        if self.query_bias is not None:
            projected += self.query_bias
        if self.energy is None:
            scores = torch.bmm(self.keys, projected[:, :, None]).squeeze(2)  # [B, S]
        else:
            scores = self.hidden(projected) @ self.twice_energy
        torch.softmax(scores + self.mask, dim=-1, out=weights)
        return torch.bmm(weights[:, None].to(self.values.dtype), self.values).squeeze(1)

    def returned_weights(self) -> Tensor:
        """Return the attention weights [T, B, S] for autograd: a tensor of its own, the same data.

        A node that kept an output of its own would keep itself alive.
        """
        return self.attention_weights.detach()

    def hidden(self, query: Tensor) -> Tensor:
        """Return `s(2x)` [B, S, A], where x is a projected query [B, A] plus each key."""
        return torch.add(self.keys, query[:, None], alpha=2).sigmoid_()


class AttentionGradients:
    """Backward pass, from the last step to the first.

    Takes the gradient of the attention weights [T, B, S], if they entered the loss by themselves.
    """

    def __init__(self, attention: AttentionSteps, grad_weights: Tensor | None = None) -> None:
        self.saved = attention
        keys = attention.keys
        self.grad_weights = grad_weights
        steps, batch, _ = attention.attention_weights.shape
        self.grad_queries = torch.empty_like(attention.queries)  # projected
        self.grad_scores = torch.empty_like(attention.attention_weights, dtype=keys.dtype)
        self.grad_contexts = attention.values.new_empty(steps, batch, attention.values.shape[-1])
        if attention.energy is not None:
            wide = attention.mask.dtype
            self.grad_keys = torch.zeros_like(keys, dtype=wide)
            self.grad_energy = torch.zeros(batch, 1, keys.shape[2], dtype=wide, device=keys.device)
            self.slope_energy = 4 * attention.energy  # tanh'(x) = 4 s(2x) (1 - s(2x))

    def backward(self, t: int, grad_context: Tensor) -> Tensor:
        """Return the gradient of step t's query [B, Q], given that of its context [B, C]."""
        self.grad_contexts[t] = grad_context
        weights = self.saved.attention_weights[t]
        grad_scores = self.grad_scores[t]
        grad_weights = torch.bmm(self.saved.values, self.grad_contexts[t][:, :, None]).squeeze(2)
        if self.grad_weights is not None:
            grad_weights = grad_weights + self.grad_weights[t]
        grad_weights = grad_weights.to(weights.dtype)
        grad_scores.copy_(torch._softmax_backward_data(grad_weights, weights, 1, weights.dtype))
        grad_query = self.grad_queries[t]
        query_weight = self.saved.query_weight
        if self.saved.energy is None:
            torch.bmm(grad_scores[:, None], self.saved.keys, out=grad_query[:, None])
        else:
            self._backward_additive(t, grad_scores, grad_query)
        if query_weight is None:
            return grad_query
        return grad_query.to(query_weight.dtype) @ query_weight

    def _backward_additive(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:
        """Write the gradient [B, A] of step t's projected queries; add to those of keys and v."""
        hidden = self.saved.hidden(self.saved.queries[t])
        self.grad_energy += torch.bmm(grad_scores[:, None], hidden)
        slope = hidden.addcmul_(hidden, hidden, value=-1)
        self.grad_keys.addcmul_(grad_scores[:, :, None], slope)
        torch.bmm(grad_scores[:, None], slope, out=grad_query[:, None])
        grad_query.mul_(self.slope_energy)

    def finish(self, queries: Tensor) -> tuple[Tensor, Tensor, ScoreWeights]:
        """Return the gradients of keys, values and score, given the queries [T, B, Q]."""
        saved = self.saved
        grad_queries = self.grad_queries
        weights = saved.attention_weights.permute(1, 2, 0).to(saved.values.dtype)
        grad_values = torch.bmm(weights, self.grad_contexts.transpose(0, 1))
        grad_query_weight = grad_query_bias = grad_energy = None
        if saved.query_weight is not None:
            product = weight_gradient(grad_queries.to(saved.query_weight.dtype), queries)
            grad_query_weight = product.to(grad_queries.dtype)
        if saved.query_bias is not None:
            grad_query_bias = grad_queries.sum((0, 1))
        if saved.energy is None:
            grad_keys = torch.bmm(self.grad_scores.permute(1, 2, 0), saved.queries.transpose(0, 1))
        else:
            grad_keys = self.grad_keys.mul_(self.slope_energy)
            # tanh = 2 s - 1, and the gradients of a softmax's inputs sum to zero.
            grad_energy = 2 * self.grad_energy.sum((0, 1))
        return grad_keys, grad_values, ScoreWeights(grad_query_weight, grad_query_bias, grad_energy)
