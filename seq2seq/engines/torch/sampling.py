"""Sampling on a device: truncated distributions, inverted at one number per row."""

import torch
from torch import Tensor

from seq2seq.engines.engine import Array, Sampling
from seq2seq.runtime.device import has_float64


def drawn(log_probs: Tensor, sampling: Sampling, numbers: Array) -> Tensor:
    """Return a token for each row of log-probabilities [N, V], drawn at numbers [N] in [0, 1)."""
    device = log_probs.device
    where = device if has_float64(device) else torch.device("cpu")
    probs = truncated(log_probs.to(where), sampling)
    return draw(probs, torch.from_numpy(numbers).to(where)).to(device)


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
