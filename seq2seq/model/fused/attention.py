"""Attention inside an unrolled loop: a look at each step, and the way back.

Scores are products, `q . k`, or additive, `v . tanh(q + k)`, of projected queries q and keys k.
What a look needs is stored for the way back, but for the [B, S, A] inside additive scores, which
are computed again. Time-major shapes, as in decoders.py.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from seq2seq.model.attention import ScoreWeights


def unrolled_attention(
    steps: int,
    memory: tuple[Tensor, Tensor, Tensor],
    score: ScoreWeights,
    product_dtype: torch.dtype,
) -> "UnrolledAttention":
    """Attention for so many steps; memory is keys, values and additive mask."""
    kind = _Products if score.energy is None else _Additive
    return kind(steps, memory, score, product_dtype)


class UnrolledAttention(ABC):
    """What attention reads, and what it keeps of each step for the way back."""

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
        self.weights = self.keys.new_empty(steps, batch, length)

    def forward(self, t: int, query: Tensor) -> Tensor:
        """The context [B, C] that the query [B, Q], in the product's dtype, finds at step t."""
        projected = self.queries[t]
        projected.copy_(query if self.query_weight is None else query @ self.query_weight.t())
        if self.query_bias is not None:
            projected += self.query_bias
        scores = self.scores(projected).add_(self.mask)
        torch.softmax(scores, dim=-1, out=self.weights[t])
        return torch.bmm(self.weights[t][:, None], self.values).squeeze(1)

    @abstractmethod
    def scores(self, query: Tensor) -> Tensor:
        """The scores [B, S] of projected queries [B, A]."""

    @abstractmethod
    def gradient(self) -> "AttentionGradient":
        """The way back, once every step was taken."""


class AttentionGradient(ABC):
    """The way back through `UnrolledAttention`, from the last step to the first."""

    def __init__(self, attention: UnrolledAttention) -> None:
        self.looked = attention
        steps, batch, _ = attention.weights.shape
        context_size = attention.values.shape[-1]
        self.grad_queries = torch.empty_like(attention.queries)  # projected
        self.grad_scores = torch.empty_like(attention.weights)
        self.grad_contexts = attention.keys.new_empty(steps, batch, context_size)

    def backward(self, t: int, grad_context: Tensor) -> Tensor:
        """From the gradient of step t's context [B, C] to its query's [B, Q]."""
        self.grad_contexts[t] = grad_context
        weights, grad_scores = self.looked.weights[t], self.grad_scores[t]
        torch.bmm(self.looked.values, grad_context[:, :, None], out=grad_scores[:, :, None])
        grad_scores -= (grad_scores * weights).sum(1, keepdim=True)
        grad_scores *= weights
        self.through_scores(t, grad_scores, self.grad_queries[t])
        query_weight = self.looked.query_weight
        if query_weight is None:
            return self.grad_queries[t]
        return self.grad_queries[t].to(query_weight.dtype) @ query_weight

    def finish(self, query_inputs: Tensor) -> tuple[Tensor, Tensor, ScoreWeights]:
        """Gradients of keys, values and the score's weights, given every step's query [T, B, Q]."""
        weights, query_weight = self.looked.weights, self.looked.query_weight
        grad_values = torch.bmm(weights.permute(1, 2, 0), self.grad_contexts.transpose(0, 1))
        grad_queries = self.grad_queries.flatten(0, 1)
        grad_query_weight = grad_query_bias = None
        if query_weight is not None:
            product = grad_queries.to(query_weight.dtype).t() @ query_inputs.flatten(0, 1)
            grad_query_weight = product.to(grad_queries.dtype)
        if self.looked.query_bias is not None:
            grad_query_bias = grad_queries.sum(0)
        grad_keys, grad_energy = self.of_keys()
        return grad_keys, grad_values, ScoreWeights(grad_query_weight, grad_query_bias, grad_energy)

    @abstractmethod
    def through_scores(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:
        """Write the gradient [B, A] of step t's projected queries, given that of its scores."""

    @abstractmethod
    def of_keys(self) -> tuple[Tensor, Tensor | None]:
        """The gradients of the keys and, where there is one, of v, once all steps are done."""


class _Products(UnrolledAttention):
    def scores(self, query: Tensor) -> Tensor:
        return torch.bmm(self.keys, query[:, :, None]).squeeze(2)

    def gradient(self) -> "_ProductsGradient":
        return _ProductsGradient(self)


class _ProductsGradient(AttentionGradient):
    def through_scores(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:  # noqa: ARG002
        torch.bmm(grad_scores[:, None], self.looked.keys, out=grad_query[:, None])

    def of_keys(self) -> tuple[Tensor, None]:
        queries = self.looked.queries.transpose(0, 1)
        return torch.bmm(self.grad_scores.permute(1, 2, 0), queries), None


class _Additive(UnrolledAttention):
    """`v . tanh(x)` is taken as `2v . s(2x)`, s the logistic function, which torch computes faster.

    They differ by a constant, `v . 1`, that a softmax does not see.
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
        self.keys = 2 * self.keys  # as `logistic` needs them

    def scores(self, query: Tensor) -> Tensor:
        return self.logistic(query) @ self.twice_energy

    def logistic(self, query: Tensor) -> Tensor:
        """`s(2x)` of the score's x, the projected query [B, A] plus each key: [B, S, A]."""
        return torch.add(self.keys, query[:, None], alpha=2).sigmoid_()

    def gradient(self) -> "_AdditiveGradient":
        return _AdditiveGradient(self)


class _AdditiveGradient(AttentionGradient):
    def __init__(self, attention: _Additive) -> None:
        super().__init__(attention)
        self.logistic = attention.logistic
        self.grad_keys = torch.zeros_like(attention.keys)
        self.grad_energy = attention.keys.new_zeros(len(attention.mask), 1, len(attention.energy))
        self.slope_energy = 4 * attention.energy  # tanh' is 4 s (1 - s)

    def through_scores(self, t: int, grad_scores: Tensor, grad_query: Tensor) -> None:
        logistic = self.logistic(self.looked.queries[t])
        self.grad_energy.baddbmm_(grad_scores[:, None], logistic)
        slope = logistic.addcmul_(logistic, logistic, value=-1)
        self.grad_keys.addcmul_(grad_scores[:, :, None], slope)
        torch.bmm(grad_scores[:, None], slope, out=grad_query[:, None])
        grad_query.mul_(self.slope_energy)

    def of_keys(self) -> tuple[Tensor, Tensor]:
        # tanh = 2 s - 1, and the gradients of a softmax's inputs sum to zero
        return self.grad_keys.mul_(self.slope_energy), 2 * self.grad_energy.sum((0, 1))
