"""Sampling: tokens drawn from the model's distribution, seeded by sentence."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seq2seq.inference.search.greedy import GreedySearch
from seq2seq.inference.search.interface import Sampling
from seq2seq.runtime.device import has_float64


class SampledSearch(GreedySearch):
    """Search that draws each token; a sentence is drawn alike in any batch.

    A token is drawn by inverting the distribution function at one uniform number per position,
    from a generator that the seed, the source and the number of the sample determine.
    """

    def allocate(self, slots: int) -> None:
        super().allocate(slots)
        self.generators = [random.Random() for _ in range(slots)]

    def keep(self, slots: Sequence[int]) -> None:
        super().keep(slots)
        self.generators = [self.generators[slot] for slot in slots]

    def begin(self, slots: Sequence[int]) -> None:
        super().begin(slots)
        for slot in slots:
            self.generators[slot] = random.Random(self.rows.seeds[slot])

    def _best_tokens(self, outputs: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return drawn tokens [N] and, twice, their log-probabilities before temperature."""
        sampling = self.options.sampling
        assert sampling is not None, "how to sample is an option of this search"
        log_probs = self.model.project(outputs).float().log_softmax(dim=-1)
        allowed = self.constrain(log_probs.clone())
        where = self.device if has_float64(self.device) else torch.device("cpu")
        numbers = torch.tensor(
            [generator.random() for generator in self.generators],
            dtype=torch.float64,
            device=where,
        )
        tokens = draw(truncated(allowed.to(where), sampling), numbers).to(self.device)
        best = log_probs.gather(1, tokens[:, None])[:, 0]
        return tokens, best, best if self.options.return_scores else None


def truncated(log_probs: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution [N, V] to draw from, in float64: temperature, top-k, then top-p.

    Top-p (Holtzman et al. 2020) keeps the smallest set of most probable tokens whose probability,
    after temperature and top-k, is at least p. Of equally probable tokens the first are kept.
    """
    values = log_probs.double()
    values = (values - values.amax(-1, keepdim=True)) / sampling.temperature
    best, order = values.sort(dim=-1, descending=True, stable=True)
    if sampling.top_k:
        best[:, sampling.top_k :] = -torch.inf
    probs = best.softmax(dim=-1)
    if sampling.top_p < 1:
        before = probs.cumsum(dim=-1) - probs  # probability of the more probable tokens
        probs = probs.masked_fill(before >= sampling.top_p, 0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probs).scatter_(1, order, probs)


def draw(probs: Tensor, numbers: Tensor) -> Tensor:
    """Invert the distribution function of each row [N, V] at a number in [0, 1) [N]: tokens [N]."""
    sums = probs.cumsum(dim=-1)
    places = torch.searchsorted(sums, numbers[:, None] * sums[:, -1:], right=True)
    last = (
        probs.shape[-1] - 1 - (probs.flip(-1) > 0).int().argmax(dim=-1)
    )  # the last possible token
    return torch.minimum(places[:, 0], last)
