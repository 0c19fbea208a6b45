"""Lexical translation probabilities of tokens, by IBM model 1 (Brown et al. 1993)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.spread import spread_rows
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids

MAX_LINKS = 1 << 24  # pairs of a source and a target token that are counted; 50 bytes each
MAX_TARGETS = 128  # kept per source token
ITERATIONS = 4
BLOCK_LINKS = 1 << 20  # links of which expected counts are computed together


class LexicalTable(NamedTuple):
    """The most probable target tokens of each source token, in rows one after another.

    Row EOS_ID belongs to the empty word, with the tokens that no source token explains.
    """

    ends: NDArray[np.int64]  # [S], of the row of each source token
    tokens: NDArray[np.int32]  # [E], target tokens, the most probable of a row first
    probs: NDArray[np.float32]  # [E]

    def row(self, token: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the target tokens of a source token, and their probabilities."""
        row = slice(int(self.ends[token - 1]) if token else 0, int(self.ends[token]))
        return self.tokens[row], self.probs[row]


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


def train_lexical_table(
    src: Sequence[Ids], tgt: Sequence[Ids], src_size: int, tgt_size: int, most: int = MAX_TARGETS
) -> LexicalTable:
    """Train IBM model 1 on pairs of ids; keep the `most` probable target tokens of each token.

    Of a corpus with more than MAX_LINKS links, a part is counted, spread over all pairs. A source
    token that occurs several times in a sentence counts once.
    """
    total = sum((1 + len(src[i])) * len(tgt[i]) for i in range(len(src)))
    rows = spread_rows(len(src), max(1, len(src) * MAX_LINKS // max(1, total)))
    pairs = ((np.unique([*src[i], EOS_ID]), np.array(tgt[i], np.int64)) for i in rows)
    links = links_of(pairs, tgt_size)
    probs, _ = train_ibm1(links, src_size)
    order = np.lexsort((links.targets, -probs, links.sources))
    sizes = np.bincount(links.sources, minlength=src_size)
    ranks = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    best = order[ranks < most]
    ends = np.cumsum(np.minimum(sizes, most))
    return LexicalTable(ends, links.targets[best].astype(np.int32), probs[best].astype(np.float32))


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
