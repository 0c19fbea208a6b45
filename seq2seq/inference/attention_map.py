"""Attention maps: the weights of a line, of its parts or of its heads, by tokens or by words."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.nbest import NBestEntry
from seq2seq.inference.token_labels import joined, legible, text_of, word_spans


class AttentionMap(NamedTuple):
    """Attention weights of one sentence, or of one head, with its text.

    `weights` [T, S] has a row for each target token and a column for each source token, EOS
    included, and values in 0..1.
    """

    source: str
    translation: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: NDArray[np.floating]
    head: str = ""  # such as "head 1 of 4"; empty for the mean of the heads

    def headings(self) -> tuple[str, ...]:
        """Return source, translation and head, if any, safe for XML and for one line."""
        return legible(self.source), legible(self.translation), *([self.head] if self.head else [])


class TokenPart(NamedTuple):
    """Tokens and attention weights of a part of a line."""

    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: NDArray[np.float32]  # [T, S]
    head_weights: NDArray[np.float32] | None  # [M, T, S]


def token_parts(entry: NBestEntry, src_tokens: Sequence[str]) -> Iterator[TokenPart]:
    """Yield the parts of a translation, none if it has no attention weights."""
    weights, of_heads = entry.attention_blocks, entry.head_blocks
    blocks = weights.blocks if weights else ()
    row = column = 0
    head_blocks = of_heads.blocks if of_heads else [None] * len(blocks)
    for block, heads in zip(blocks, head_blocks, strict=True):
        below, right = row + block.shape[0], column + block.shape[1]
        src, tgt = list(src_tokens[column:right]), entry.tokens[row:below]
        yield TokenPart(src, tgt, block, heads)
        row, column = below, right


def entry_maps(
    entry: NBestEntry, src_tokens: Sequence[str], source: str | None = None
) -> Iterator[AttentionMap]:
    """Yield the maps of a translation: one for each part, or for each head of each part.

    A source of None is spelled by its tokens, as are both texts of a line in several parts.
    """
    parts = list(token_parts(entry, src_tokens))
    for part in parts:
        texts = text_of(part.src_tokens) if source is None else source, entry.text
        if len(parts) > 1:
            texts = text_of(part.src_tokens), text_of(part.tgt_tokens)
        attention = AttentionMap(*texts, part.src_tokens, part.tgt_tokens, part.weights)
        if part.head_weights is None:
            yield attention
            continue
        for number, weights in enumerate(part.head_weights, start=1):
            head = f"head {number} of {len(part.head_weights)}"
            yield attention._replace(weights=weights, head=head)


def by_words(attention: AttentionMap) -> AttentionMap:
    """Merge the tokens of each word.

    The weight of a source word is the sum over its tokens, that of a target word the mean.
    """
    return attention._replace(
        src_tokens=join_spans(attention.src_tokens, word_spans(attention.src_tokens)),
        tgt_tokens=join_spans(attention.tgt_tokens, word_spans(attention.tgt_tokens)),
        weights=word_weights(attention.weights, attention),
    )


def word_weights(weights: NDArray[Any], part: TokenPart | AttentionMap) -> NDArray[np.float64]:
    """Sum weights [..., T, S] over the tokens of source words; take the mean over target words."""
    columns, rows = word_spans(part.src_tokens), word_spans(part.tgt_tokens)
    sums = np.add.reduceat(weights.astype(np.float64), _starts(columns), axis=-1)
    sums = np.add.reduceat(sums, _starts(rows), axis=-2)
    sizes = np.array([len(row) for row in rows])[:, None]
    merged: NDArray[np.float64] = sums / sizes
    return merged


def join_spans(tokens: Sequence[str], spans: Sequence[range]) -> list[str]:
    """Return the text of each span of tokens."""
    return [joined([tokens[index] for index in span]) for span in spans]


def _starts(spans: Sequence[range]) -> NDArray[np.intp]:
    return np.array([span.start for span in spans], np.intp)
