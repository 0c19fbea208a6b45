"""Coverage: the additive score is told what a hypothesis has looked at already."""

import torch
from torch import Tensor, nn


class Coverage(nn.Module):
    """`v . tanh(W q + U h_s + w c_s)`, where `c_s` is the attention that s has got so far.

    See et al. (2017), eq. 10 and 11, after Tu et al. (2016): `c_s = sum of a_{t',s} over t' < t`.
    It stands in the keys, `U h_s + w c_s`, which the score adds to the query. w begins at zero, so
    that the score begins as the additive one.
    """

    def __init__(self, attention_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(attention_size))

    def forward(self, keys: Tensor, coverage: Tensor) -> Tensor:
        """Keys [B, S, A] and the coverage [B, K, S] of K hypotheses -> their keys [B, K, S, A]."""
        return keys[:, None] + coverage[..., None] * self.weight
