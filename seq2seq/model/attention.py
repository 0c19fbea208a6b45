"""Attention: what is scored, the masked softmax over it, and the context it yields."""

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq.model.fused.attention import ScoreWeights
from seq2seq.model.layers import tanh


class Score(Protocol):
    """How well a query matches each source position."""

    context_size: int

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, S, H] -> keys [B, S, *] and values [B, S, context_size], once a sentence."""
        ...

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """Query [B, K, Q] and keys [B, S, *] -> scores [B, K, S], or [B, M, K, S] of M heads."""
        ...

    def weights(self) -> "ScoreWeights | None":
        """The same function of the query as plain tensors; None where it is no such function."""
        ...


class AdditiveScore(nn.Module):
    """`v . tanh(W q + U h)`: Bahdanau et al. (2015), section A.1.2.

    Luong et al. (2015), eq. 8, "concat": `v . tanh(W_a [q; h])` is the same function, W and U being
    the two halves of W_a.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int) -> None:
        super().__init__()
        self.context_size = output_size
        self.query_projection = nn.Linear(query_size, attention_size, bias=False)
        self.key_projection = nn.Linear(output_size, attention_size, bias=False)
        self.energy = nn.Linear(attention_size, 1, bias=False)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_projection(outputs), outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """As `Score`; hypotheses may have keys of their own: [B, K, S, A]."""
        scores: Tensor = self.energy(self._hidden(query, keys))  # [B, K, S, 1]
        return scores.squeeze(-1)

    def weights(self) -> ScoreWeights:
        return ScoreWeights(query=self.query_projection.weight, energy=self.energy.weight[0])

    def _hidden(self, query: Tensor, keys: Tensor) -> Tensor:
        """`tanh(W q + U h)`: [B, K, S, A]."""
        own = keys if keys.dim() == 4 else keys[:, None]
        return tanh(self.query_projection(query)[:, :, None] + own)


class NormedAdditiveScore(AdditiveScore):
    """`g v / ||v|| . tanh(W q + U h + b)`: Bahdanau's score under weight normalisation.

    Salimans & Kingma (2016), eq. 2: the length g of the weight is learnt apart from its direction.
    It begins as `||v||`, b at zero: the additive score.
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
        own = self.query_projection
        return ScoreWeights(own.weight, own.bias, self._normed_energy())

    def _normed_energy(self) -> Tensor:
        """`g v / ||v||`: [A]."""
        energy: Tensor = self.gain * self.energy.weight[0] / self.energy.weight.norm()
        return energy


class DotScore(nn.Module):
    """`q . h`: Luong et al. (2015), eq. 8, "dot". Decoder and encoder outputs have one size."""

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
    """`q . W_a h`: Luong et al. (2015), eq. 8, "general"; `W_a h` are keys, made once a sentence.

    What is learnt is `W_a sqrt(Q)`: the same score, in smaller steps. Adam moves all entries of a
    matrix alike, so that one step could turn the scores of a wide layer about.
    """

    def __init__(self, query_size: int, output_size: int) -> None:
        super().__init__()
        self.context_size = output_size
        self.scale = query_size**-0.5
        self.key_projection = nn.Linear(output_size, query_size, bias=False)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_projection(outputs) * self.scale, outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)

    def weights(self) -> ScoreWeights:
        return ScoreWeights()


class ScaledDotScore(nn.Module):
    """`(W_q q + b_q) . (W_k h + b_k) / sqrt(A)`: Vaswani et al. (2017), eq. 1.

    The values are `W_v h + b_v`.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int) -> None:
        super().__init__()
        self.context_size = attention_size
        self.query_projection = nn.Linear(query_size, attention_size)
        self.key_projection = nn.Linear(output_size, attention_size)
        self.value_projection = nn.Linear(output_size, attention_size)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_projection(outputs), self.value_projection(outputs)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        projected: Tensor = self.query_projection(query)  # [B, K, A]
        return projected @ keys.transpose(1, 2) / math.sqrt(keys.shape[-1])

    def weights(self) -> ScoreWeights:
        scale = math.sqrt(self.context_size)
        return ScoreWeights(
            self.query_projection.weight / scale, self.query_projection.bias / scale
        )


class MultiHeadScore(ScaledDotScore):
    """`(W_q q + b_q)_m . (W_k h + b_k)_m / sqrt(A / M)`: the heads of Vaswani et al. (2017), 3.2.2.

    Head m scores and averages the m-th of M equal parts of queries, keys and values. What is joined
    goes into a linear layer in either decoder, which stands for the paper's W_O.
    """

    def __init__(self, query_size: int, output_size: int, attention_size: int, heads: int) -> None:
        super().__init__(query_size, output_size, attention_size)
        if attention_size % heads:
            raise ValueError(f"attention_size {attention_size} is no multiple of {heads} heads")
        self.heads = heads

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        queries = self.query_projection(query).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        parts = keys.unflatten(-1, (self.heads, -1)).permute(0, 2, 3, 1)  # [B, M, A / M, S]
        scores: Tensor = queries @ parts / math.sqrt(parts.shape[2])  # [B, M, K, S]
        return scores

    def weights(self) -> None:  # type: ignore[override]
        return None


class LocationScore(nn.Module):
    """`(W_a q)_s`: Luong et al. (2015), section 3.1, "location": only s matters, not its word.

    W_a has a row for each of a fixed number of positions. As in the paper a source shorter than
    that uses the first of them, and in a longer one the words near the end are not looked at.
    """

    def __init__(self, query_size: int, output_size: int, positions: int) -> None:
        super().__init__()
        self.context_size = output_size
        self.positions = nn.Linear(query_size, positions, bias=False)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs[..., :0], outputs

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = self.positions(query)[..., : keys.shape[1]]  # [B, K, at most S]
        beyond = keys.shape[1] - scores.shape[-1]
        # Finite, since a window may hold nothing else.
        return functional.pad(scores, (0, beyond), value=torch.finfo(scores.dtype).min)

    def weights(self) -> None:
        return None


def attend(
    scores: Tensor, values: Tensor, pad_mask: Tensor, window_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scores [B, K, S], values [B, S, C], pad_mask [B, S] -> context and attention_weights.

    The context is [B, K, C], the attention_weights are [B, K, S]. Every source ends in END, so no
    row is all padding. The softmax runs in float32 at least. Of M heads' scores [B, M, K, S] each
    averages its own C / M values, and the attention_weights are the mean over heads. Positions of
    no reach [B, K, S] are masked as padding is, the others' weights are multiplied by it.
    """
    masked = (
        pad_mask[:, None] if window_weights is None else pad_mask[:, None] | (window_weights == 0)
    )
    if scores.dim() == 4:
        masked, window_weights = (
            masked[:, None],
            None if window_weights is None else window_weights[:, None],
        )
    dtype = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.masked_fill(masked, -torch.inf).softmax(dim=-1, dtype=dtype)
    if window_weights is not None:
        weights = weights * window_weights
    if scores.dim() == 3:
        return weights.to(values.dtype) @ values, weights
    parts = values.unflatten(-1, (scores.shape[1], -1)).transpose(1, 2)  # [B, M, S, C / M]
    context = weights.to(values.dtype) @ parts  # [B, M, K, C / M]
    return context.transpose(1, 2).flatten(2), weights.mean(dim=1)
