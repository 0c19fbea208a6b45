"""Lexical translation probabilities of tokens, by IBM model 1 (Brown et al. 1993)."""

from collections.abc import Iterator, Sequence
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
        own = slice(int(self.ends[token - 1]) if token else 0, int(self.ends[token]))
        return self.tokens[own], self.probs[own]


class _Links(NamedTuple):
    """Source and target tokens that occur in one pair: the parameters of the model."""

    sources: NDArray[np.int64]  # [E], ascending
    targets: NDArray[np.int64]  # [E], ascending for each source
    entries: NDArray[np.int32]  # [M], the parameter of each link
    words: NDArray[
        np.int32
    ]  # [M], the target word of each link, numbered over all pairs, ascending


def train_lexical_table(
    src: Sequence[Ids], tgt: Sequence[Ids], src_size: int, tgt_size: int, most: int = MAX_TARGETS
) -> LexicalTable:
    """Train IBM model 1 on pairs of ids; keep the `most` probable target tokens of each token.

    Of a corpus with more than MAX_LINKS links, a part is counted, spread over all pairs. A source
    token that occurs several times in a sentence counts once.
    """
    links = _links(src, tgt, tgt_size)
    probs = np.ones(len(links.sources))
    for _ in range(ITERATIONS):
        counts = _expected_counts(links, probs)
        totals = np.bincount(links.sources, counts, src_size)
        probs = counts / totals[links.sources]
    order = np.lexsort((links.targets, -probs, links.sources))
    sizes = np.bincount(links.sources, minlength=src_size)
    ranks = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = order[ranks < most]
    ends = np.cumsum(np.minimum(sizes, most))
    return LexicalTable(ends, links.targets[kept].astype(np.int32), probs[kept].astype(np.float32))


def _expected_counts(links: _Links, probs: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _links(src: Sequence[Ids], tgt: Sequence[Ids], tgt_size: int) -> _Links:
    total = sum((1 + len(src[i])) * len(tgt[i]) for i in range(len(src)))
    most = max(1, len(src) * MAX_LINKS // max(1, total))
    keys, words, count = [], [], 0
    for i in spread_rows(len(src), most):
        sources = np.unique(np.array([*src[i], EOS_ID], np.int64))
        targets = np.array(tgt[i], np.int64)
        keys.append((targets[:, None] + sources * tgt_size).ravel())
        own = np.arange(count, count + len(targets), dtype=np.int32)
        words.append(own.repeat(len(sources)))
        count += len(targets)
    unique, entries = np.unique(np.concatenate(keys), return_inverse=True)
    return _Links(
        unique // tgt_size, unique % tgt_size, entries.astype(np.int32), np.concatenate(words)
    )
