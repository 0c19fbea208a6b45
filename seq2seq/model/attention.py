"""Attention: what is scored, the masked softmax over it, and the context it yields."""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seq2seq.model.nonlinear import tanh


class Score(Protocol):
    """How well a query matches each source position."""

    context_size: int

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, S, H] -> keys [B, S, *] and values [B, S, context_size], once a sentence."""
        ...

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """Query [B, K, Q] and keys [B, S, *] -> scores [B, K, S]."""
        ...

    def weights(self) -> "ScoreWeights":
        """The same function of the query as plain tensors."""
        ...


class ScoreWeights(NamedTuple):
    """A score as tensors: `v . tanh(p + key)`, or `p . key` without v.

    Here `p = W q + b`, or p = q without W.
    """

    query: Tensor | None = None  # W [A, Q]
    bias: Tensor | None = None  # b [A]
    energy: Tensor | None = None  # v [A]


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
        hidden = self.query_projection(query)[:, :, None] + keys[:, None]  # [B, K, S, A]
        scores: Tensor = self.energy(tanh(hidden))  # [B, K, S, 1]
        return scores.squeeze(-1)

    def weights(self) -> ScoreWeights:
        return ScoreWeights(query=self.query_projection.weight, energy=self.energy.weight[0])


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


def attend(scores: Tensor, values: Tensor, pad_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [B, K, S], values [B, S, C], pad_mask [B, S] -> context and attention_weights.

    The context is [B, K, C], the attention_weights are [B, K, S]. Every source ends in END, so no
    row is all padding. The softmax runs in float32 at least.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.masked_fill(pad_mask[:, None], -torch.inf).softmax(dim=-1, dtype=dtype)
    return weights.to(values.dtype) @ values, weights
