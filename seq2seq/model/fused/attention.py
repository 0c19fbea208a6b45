"""Manual forward and backward passes of attention, one decoder step at a time.

Scores are dot products `q . k` or additive, `v . tanh(q + k)`, of projected queries q and keys k.
Activations are stored for the backward pass except the [B, S, A] hidden layer of additive scores,
which is recomputed. Time-major shapes as in decoders.py.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor


class ScoreWeights(NamedTuple):
    """A score function as plain tensors: `v . tanh(p + key)`, or `p . key` without v.

    The projected query is `p = W q + b`, or q itself without W.
    """

    query: Tensor | None = None  # W [A, Q]
    bias: Tensor | None = None  # b [A]
    energy: Tensor | None = None  # v [A]


def attention_steps(
    steps: int,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    product_dtype: torch.dtype,
) -> "AttentionSteps":
    """Return the forward pass for this number of steps; memory is keys, values, additive mask."""
    kind = _DotProductSteps if score.energy is None else _AdditiveSteps
    return kind(steps, memory, score, product_dtype)


class AttentionSteps(ABC):
    """Forward pass, with the activations that the backward pass reads."""

    def __init__(
        self,
        steps: int,
        memory: tuple[Tensor, Tensor, Tensor],
        score: ScoreWeights,
        product_dtype: torch.dtype,
    ) -> None:
        self.keys, self.values, self.mask = memory
        self.query_weight = None if score.query is None else score.query.to(product_dtype)
        self.query_bias = score.bias
        batch, length, size = self.keys.shape
        self.queries = self.keys.new_empty(steps, batch, size)  # projected
        self.attention_weights = self.keys.new_empty(steps, batch, length)

    def forward(self, t: int, query: Tensor) -> Tensor:
        """Attend at step t with a query [B, Q] in the product dtype; return the context [B, C]."""
        projected, weights = self.queries[t], self.attention_weights[t]
        projected.copy_(query if self.query_weight is None else query @ self.query_weight.t())
        if self.query_bias is not None:
            projected += self.query_bias
        scores = self.scores(projected).add_(self.mask)
        torch.softmax(scores, dim=-1, out=weights)
        return torch.bmm(weights[:, None], self.values).squeeze(1)

    @abstractmethod
    def scores(self, query: Tensor) -> Tensor:
        """Return the scores [B, S] of projected queries [B, A]."""

    @abstractmethod
    def gradients(self) -> "AttentionGradients":
        """Return the backward pass, after the last forward step."""


class AttentionGradients(ABC):
    """Backward pass, from the last step to the first."""

    def __init__(self, attention: AttentionSteps) -> None:
        self.saved = attention
        steps, batch, _ = attention.attention_weights.shape
        context_size = attention.values.shape[-1]
        self.grad_queries = torch.empty_like(attention.queries)  # projected
        self.grad_scores = torch.empty_like(attention.attention_weights)
        self.grad_contexts = attention.keys.new_empty(steps, batch, context_size)

    def backward(self, t: int, grad_context: Tensor) -> Tensor:
        """Return the gradient of step t's query [B, Q], given that of its context [B, C]."""
        self.grad_contexts[t] = grad_context
        weights, grad_scores = self.saved.attention_weights[t], self.grad_scores[t]
        torch.bmm(self.saved.values, grad_context[:, :, None], out=grad_scores[:, :, None])
        grad_scores -= (grad_scores * weights).sum(1, keepdim=True)
        grad_scores *= weights
        self.backward_scores(t, grad_scores, self.grad_queries[t])
        query_weight = self.saved.query_weight
        if query_weight is None:
            return self.grad_queries[t]
        return self.grad_queries[t].to(query_weight.dtype) @ query_weight

    def finish(self, queries: Tensor) -> tuple[Tensor, Tensor, ScoreWeights]:
        """Return the gradients of keys, values and score, given the queries [T, B, Q]."""
        weights, query_weight = self.saved.attention_weights, self.saved.query_weight
        grad_values = torch.bmm(weights.permute(1, 2, 0), self.grad_contexts.transpose(0, 1))
        grad_queries = self.grad_queries.flatten(0, 1)
        grad_query_weight = grad_query_bias = None
        if query_weight is not None:
            product = grad_queries.to(query_weight.dtype).t() @ queries.flatten(0, 1)
            grad_query_weight = product.to(grad_queries.dtype)
        if self.saved.query_bias is not None:
            grad_query_bias = grad_queries.sum(0)
        grad_keys, grad_energy = self.key_gradients()
        return grad_keys, grad_values, ScoreWeights(grad_query_weight, grad_query_bias, grad_energy)

    @abstractmethod
    def backward_scores(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:
        """Write the gradient [B, A] of step t's projected queries, given that of its scores."""

    @abstractmethod
    def key_gradients(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the keys and of v (None without v), after the first step."""


class _DotProductSteps(AttentionSteps):
    def scores(self, query: Tensor) -> Tensor:
        return torch.bmm(self.keys, query[:, :, None]).squeeze(2)

    def gradients(self) -> "_DotProductGradients":
        return _DotProductGradients(self)


class _DotProductGradients(AttentionGradients):
    def backward_scores(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:  # noqa: ARG002
        torch.bmm(grad_scores[:, None], self.saved.keys, out=grad_query[:, None])

    def key_gradients(self) -> tuple[Tensor, None]:
        queries = self.saved.queries.transpose(0, 1)
        return torch.bmm(self.grad_scores.permute(1, 2, 0), queries), None


class _AdditiveSteps(AttentionSteps):
    """Additive scores, computed as `2v . s(2x)` with s the logistic function, which is faster.

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
        super().__init__(steps, memory, score, product_dtype)
        assert score.energy is not None
        self.energy, self.twice_energy = score.energy, 2 * score.energy
        self.keys = 2 * self.keys  # doubled once for `hidden`

    def scores(self, query: Tensor) -> Tensor:
        return self.hidden(query) @ self.twice_energy

    def hidden(self, query: Tensor) -> Tensor:
        """Return `s(2x)` [B, S, A], where x is a projected query [B, A] plus each key."""
        return torch.add(self.keys, query[:, None], alpha=2).sigmoid_()

    def gradients(self) -> "_AdditiveGradients":
        return _AdditiveGradients(self)


class _AdditiveGradients(AttentionGradients):
    def __init__(self, attention: _AdditiveSteps) -> None:
        super().__init__(attention)
        self.hidden = attention.hidden
        self.grad_keys = torch.zeros_like(attention.keys)
        self.grad_energy = attention.keys.new_zeros(len(attention.mask), 1, len(attention.energy))
        self.slope_energy = 4 * attention.energy  # tanh'(x) = 4 s(2x) (1 - s(2x))

    def backward_scores(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:
        hidden = self.hidden(self.saved.queries[t])
        self.grad_energy.baddbmm_(grad_scores[:, None], hidden)
        slope = hidden.addcmul_(hidden, hidden, value=-1)
        self.grad_keys.addcmul_(grad_scores[:, :, None], slope)
        torch.bmm(grad_scores[:, None], slope, out=grad_query[:, None])
        grad_query.mul_(self.slope_energy)

    def key_gradients(self) -> tuple[Tensor, Tensor]:
        # tanh = 2 s - 1, and the gradients of a softmax's inputs sum to zero.
        return self.grad_keys.mul_(self.slope_energy), 2 * self.grad_energy.sum((0, 1))
