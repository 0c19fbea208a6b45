"""Score functions, the masked softmax over their scores, and the context it averages."""

import math
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor, nn

from seq2seq.model.fused.attention import ScoreWeights
from seq2seq.model.layers import Linear, tanh


class ScoreFunction(Protocol):
    """Function that scores how well a query matches each source position."""

    context_size: int

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Project encoder outputs [B, S, H] to keys [B, S, *] and values [B, S, context_size]."""

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries [B, K, Q] against keys [B, S, *]: [B, K, S].

        Only `MultiHeadScore` returns [B, M, K, S]: a score from outside has one head.
        """

    def weights(self) -> ScoreWeights | None:
        """Return plain tensors for the fused unroll, or None if the function has no such form."""


class AdditiveScore(nn.Module):
    """`v . tanh(W q + U h)`: Bahdanau et al. (2015), section A.1.2.

    The "concat" score of Luong et al. (2015), 3.1, `v . tanh(W_a [q; h])`, is the same function
    with W_a split into its halves W and U.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int) -> None:
        super().__init__()
        self.context_size = output_size
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)
        self.key_projection = Linear(output_size, attention_size, bias=False)
        self.energy = nn.Linear(attention_size, 1, bias=False)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_projection(outputs), outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries against keys [B, S, A], or [B, K, S, A] of each hypothesis."""
        scores: Tensor = self.energy(self._hidden(query, keys))  # [B, K, S, 1]
        return scores[..., 0]

    def weights(self) -> ScoreWeights:
        return ScoreWeights(query=self.query_projection.weight, energy=self.energy.weight[0])

    def _hidden(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return `tanh(W q + U h)`: [B, K, S, A]."""
        hypothesis_keys = keys if keys.dim() == 4 else keys[:, None]  # [B, K or 1, S, A]
        return tanh(self.query_projection(query)[:, :, None] + hypothesis_keys)


class NormedAdditiveScore(AdditiveScore):
    """`g v / ||v|| . tanh(W q + U h + b)`: the additive score under weight normalisation.

    Salimans & Kingma (2016), eq. 2: the length g of the weight is learned separately from its
    direction. With the initial values g = `||v||` and b = 0, in place of the paper's, which depend
    on data, this is the additive score.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int) -> None:
        super().__init__(query_size, output_size, attention_size)
        self.query_projection = nn.Linear(query_size, attention_size)
        nn.init.zeros_(self.query_projection.bias)
        self.gain = nn.Parameter(self.energy.weight.detach().norm())

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores: Tensor = self._hidden(query, keys) @ self._normed_energy()
        return scores

    def weights(self) -> ScoreWeights:
        projection = self.query_projection
        return ScoreWeights(projection.weight, projection.bias, self._normed_energy())

    def _normed_energy(self) -> Tensor:
        """Return `g v / ||v||`: [A]."""
        energy: Tensor = self.gain * self.energy.weight[0] / self.energy.weight.norm()
        return energy


class DotScore(nn.Module):
    """`q . h`: Luong et al. (2015), 3.1, "dot". Queries and encoder outputs share one size."""

    def __init__(self, query_size: int, output_size: int) -> None:
        super().__init__()
        if query_size != output_size:
            raise ValueError(f"dot score needs equal sizes, got {query_size} and {output_size}")
        self.context_size = output_size

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)

    def weights(self) -> ScoreWeights:
        return ScoreWeights()


class GeneralScore(nn.Module):
    """`q . W_a h`: Luong et al. (2015), 3.1, "general", with `W_a h` as keys.

    The parameter is `W_a sqrt(Q)`, where the paper has W_a. The function is the same, but it is
    learned in smaller steps: Adam moves all entries of a matrix by about the same amount, so in a
    wide layer a single step could reorder the scores.
    """

    def __init__(self, query_size: int, output_size: int) -> None:
        super().__init__()
        self.context_size = output_size
        self.scale = query_size**-0.5
        self.key_projection = Linear(output_size, query_size, bias=False)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_projection(outputs) * self.scale, outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)

    def weights(self) -> ScoreWeights:
        return ScoreWeights()


class ScaledDotScore(nn.Module):
    """`(W_q q + b_q) . (W_k h + b_k) / sqrt(A)`: Vaswani et al. (2017), eq. 1.

    The values are `W_v h + b_v`; the paper's projections have no bias.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int) -> None:
        super().__init__()
        self.context_size = attention_size
        self.query_projection = nn.Linear(query_size, attention_size)
        self.key_projection = Linear(output_size, attention_size)
        self.value_projection = Linear(output_size, attention_size)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_projection(outputs), self.value_projection(outputs)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        projected: Tensor = self.query_projection(query)  # [B, K, A]
        return projected @ keys.transpose(1, 2) / math.sqrt(keys.shape[-1])

    def weights(self) -> ScoreWeights | None:
        projection, scale = self.query_projection, math.sqrt(self.context_size)
        return ScoreWeights(projection.weight / scale, projection.bias / scale)


class MultiHeadScore(ScaledDotScore):
    """`(W_q q + b_q)_m . (W_k h + b_k)_m / sqrt(A / M)`: heads of Vaswani et al. (2017), 3.2.2.

    Head m scores and averages the m-th of M equal slices of queries, keys and values. The paper's
    output projection W_O is left out: in every decoder the context enters a linear layer.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int, heads: int) -> None:
        super().__init__(query_size, output_size, attention_size)
        if attention_size % heads:
            raise ValueError(f"attention_size {attention_size} is not a multiple of {heads} heads")
        self.heads = heads

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        queries = self.query_projection(query).unflatten(-1, (self.heads, -1))  # [B, K, M, A / M]
        head_keys = keys.unflatten(-1, (self.heads, -1)).permute(0, 2, 3, 1)  # [B, M, A / M, S]
        scores: Tensor = queries.transpose(1, 2) @ head_keys / math.sqrt(head_keys.shape[2])
        return scores  # [B, M, K, S]

    def weights(self) -> None:
        return None


class LocationScore(nn.Module):
    """`(W_a q)_s`: Luong et al. (2015), section 3.1, "location": depends on s, not on its word.

    W_a has one row for each of a fixed number of positions. As in the paper, a shorter source uses
    the first of them, and the words of a longer one beyond the last row are ignored.
    """

    def __init__(self, query_size: int, output_size: int, positions: int) -> None:
        super().__init__()
        self.context_size = output_size
        self.positions = nn.Linear(query_size, positions, bias=False)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs[..., :0], outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores: Tensor = self.positions(query)  # [B, K, P]
        positions = torch.arange(keys.shape[1], device=keys.device)  # [S]
        last = self.positions.out_features - 1
        scores = scores.index_select(-1, positions.clamp(max=last))  # [B, K, S]
        # Finite: of a window that contains only such positions the softmax would be NaN.
        return scores.masked_fill(positions > last, torch.finfo(scores.dtype).min)

    def weights(self) -> None:
        return None


def masked_attention(
    scores: Tensor, values: Tensor, pad_mask: Tensor, window_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the context [B, K, C] and the attention weights [B, K, S], the mean over heads.

    Takes the arguments of `masked_weights`, and values [B, S, C].
    """
    weights = masked_weights(scores, pad_mask, window_weights)
    return context_of(weights, values), mean_over_heads(weights)


def masked_weights(scores: Tensor, pad_mask: Tensor, window_weights: Tensor | None) -> Tensor:
    """Return the attention weights of scores: [B, K, S], or [B, M, K, S] of M heads.

    Takes scores of that shape and pad_mask [B, S]; the softmax runs in float32 or wider. Every
    source ends in end-of-sentence, so no row is all padding. Positions with a window weight
    [B, K, S] of 0 are masked like padding; the others have their weights multiplied by it.
    """
    mask = pad_mask[:, None]  # [B, 1 or K, S]
    if window_weights is not None:
        mask = mask | (window_weights == 0)
    if scores.dim() == 4:
        mask = mask[:, None]
        window_weights = None if window_weights is None else window_weights[:, None]
    dtype = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1, dtype=dtype)
    return weights if window_weights is None else weights * window_weights


def context_of(weights: Tensor, values: Tensor) -> Tensor:
    """Average values [B, S, C] by weights [B, K, S]: [B, K, C].

    With weights [B, M, K, S] each of M heads averages its own C / M columns of the values.
    """
    weights = weights.to(values.dtype)
    if weights.dim() == 3:
        return weights @ values
    columns: Tensor = values.unflatten(-1, (weights.shape[1], -1))  # [B, S, M, C / M]
    context = weights @ columns.transpose(1, 2)  # [B, M, K, C / M]
    return context.transpose(1, 2).flatten(2)


def mean_over_heads(weights: Tensor) -> Tensor:
    """Return weights [B, K, S] as they are, and the mean of weights [B, M, K, S] of M heads."""
    if weights.dim() == 3:
        return weights
    heads = weights.unbind(1)
    return reduce(torch.add, heads) / len(heads)  # `mean` is not batch-invariant in ONNX Runtime
