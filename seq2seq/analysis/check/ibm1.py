"""Lexical translation probabilities of tokens, by IBM model 1 (Brown et al. 1993)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ITERATIONS = 4
BLOCK_LINKS = 1 << 20  # links of which expected counts are computed together


class Links(NamedTuple):
    """Source and target tokens that occur in one pair: the parameters of the model."""

    sources: NDArray[np.int64]  # [E], ascending
    targets: NDArray[np.int64]  # [E], ascending for each source
    entries: NDArray[np.int32]  # [M], the parameter of each link
    words: NDArray[np.int32]  # [M], the target word of each link, numbered over pairs, ascending


def links_of(pairs: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], tgt_size: int) -> Links:
    """Link the distinct source tokens of each pair, the empty word included, to its targets."""
    keys, words, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], 0
    for sources, targets in pairs:
        keys.append((targets[:, None] + sources * tgt_size).ravel())
        numbers = np.arange(count, count + len(targets), dtype=np.int32)
        words.append(numbers.repeat(len(sources)))
        count += len(targets)
    unique, entries = np.unique(np.concatenate(keys), return_inverse=True)
    sources, targets = np.divmod(unique, tgt_size)
    return Links(sources, targets, entries.astype(np.int32), np.concatenate(words))


def train_ibm1(
    links: Links, src_size: int, prior: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Train IBM model 1; return p(target | source) [E] and the count of each source [S].

    With a prior [T], each source has one more count, spread over the targets as the prior.
    """
    probs = np.ones(len(links.sources))
    totals = np.zeros(src_size, np.float64)
    for _ in range(ITERATIONS):
        counts = _expected_counts(links, probs)
        totals = np.bincount(links.sources, counts, src_size).astype(np.float64)
        if prior is None:
            probs = counts / totals[links.sources]
        else:
            probs = (counts + prior[links.targets]) / (totals[links.sources] + 1)
    return probs, totals


def _expected_counts(links: Links, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected count of each parameter: every word is divided among its links."""
    counts = np.zeros(len(probs))
    for start, end in _blocks(links.words):
        of_links = probs[links.entries[start:end]]
        words = links.words[start:end] - links.words[start]
        of_links /= np.bincount(words, of_links)[words]
        counts += np.bincount(links.entries[start:end], of_links, len(probs))
    return counts


def _blocks(words: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """Yield bounds of blocks of links that divide no word."""
    start = 0
    while start < len(words):
        end = len(words)
        if start + BLOCK_LINKS < end:
            end = int(np.searchsorted(words, words[start + BLOCK_LINKS], "right"))
        yield start, end
        start = end
