"""Attention map of one sentence, of its tokens or of its words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.token_labels import legible, word_spans
from seq2seq.inference.translation import Translation


class AttentionMap(NamedTuple):
    """Attention weights of one sentence, with its text.

    `weights` [T, S] has a row for each target token and a column for each source token, EOS
    included, and values in 0..1.
    """

    source: str
    translation: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: NDArray[np.floating]

    def headings(self) -> tuple[str, str]:
        """Return the source and the translation, safe for XML and for one line."""
        return legible(self.source), legible(self.translation)


def map_of(translation: Translation, source: str) -> AttentionMap:
    """Return one map of a translation; it is empty if the translation has no weights."""
    weights = translation.attention
    if weights is None:
        return AttentionMap(source, translation.text, [], [], np.zeros((0, 0)))
    return AttentionMap(
        source, translation.text, translation.src_tokens, translation.tokens, weights
    )


def by_words(attention: AttentionMap) -> AttentionMap:
    """Merge the tokens of each word.

    The weight of a source word is the sum over its tokens, that of a target word the mean.
    """
    columns, rows = (word_spans(tokens) for tokens in (attention.src_tokens, attention.tgt_tokens))
    sums = np.add.reduceat(attention.weights.astype(np.float64), _starts(columns), axis=1)
    sums = np.add.reduceat(sums, _starts(rows), axis=0)
    sizes = np.array([len(row) for row in rows]).reshape(-1, 1)
    return attention._replace(
        src_tokens=_joined(attention.src_tokens, columns),
        tgt_tokens=_joined(attention.tgt_tokens, rows),
        weights=sums / sizes,
    )


def _starts(spans: Sequence[range]) -> NDArray[np.intp]:
    return np.array([span.start for span in spans], np.intp)


def _joined(tokens: Sequence[str], spans: Sequence[range]) -> list[str]:
    return ["".join(tokens[index] for index in span) for span in spans]
