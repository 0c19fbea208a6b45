"""Attention map of one sentence or of one head, of its tokens or of its words."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import SPACE
from seq2seq.inference.nbest import AttentionBlocks
from seq2seq.inference.token_labels import EOS, joined, legible, word_spans
from seq2seq.inference.translation import Translation


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


class _TokenPart(NamedTuple):
    """Tokens and attention weights of a part of a line."""

    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: NDArray[np.float32]  # [T, S]
    head_weights: NDArray[np.float32] | None  # [M, T, S]


def maps_of(translation: Translation, source: str) -> Iterator[AttentionMap]:
    """Yield the maps of a translation: one for each part, or for each head of each part."""
    parts = list(_parts(translation))
    for part in parts:
        texts = source, translation.text
        if len(parts) > 1:
            texts = _text_of(part.src_tokens), _text_of(part.tgt_tokens)
        attention = AttentionMap(*texts, part.src_tokens, part.tgt_tokens, part.weights)
        if part.head_weights is None:
            yield attention
            continue
        for number, weights in enumerate(part.head_weights, start=1):
            head = f"head {number} of {len(part.head_weights)}"
            yield attention._replace(weights=weights, head=head)


def translation_by_words(translation: Translation) -> Translation:
    """Return the best entry of a translation with the tokens of each word merged, as `by_words`.

    The log-probability of a word is the sum over its tokens.
    """
    parts = list(_parts(translation))
    if not parts:
        return translation
    best, rows = translation.n_best[0], word_spans(translation.tokens)
    means = [_merged(part.weights, part) for part in parts]
    heads = [_merged(part.head_weights, part) for part in parts if part.head_weights is not None]
    merged = replace(
        best,
        tokens=_joined(best.tokens, rows),
        log_probs=[sum(best.log_probs[index] for index in row) for row in rows],
        attention_blocks=_blocks(means),
        head_blocks=_blocks(heads) if heads else None,
    )
    columns = word_spans(translation.src_tokens)
    return replace(
        translation, n_best=[merged], src_tokens=_joined(translation.src_tokens, columns)
    )


def _blocks(weights: Sequence[NDArray[np.float64]]) -> AttentionBlocks:
    return AttentionBlocks([block.astype(np.float32) for block in weights])


def _merged(weights: NDArray[Any], part: "_TokenPart | AttentionMap") -> NDArray[np.float64]:
    """Sum weights [..., T, S] over the tokens of source words; take the mean over target words."""
    columns, rows = word_spans(part.src_tokens), word_spans(part.tgt_tokens)
    sums = np.add.reduceat(weights.astype(np.float64), _starts(columns), axis=-1)
    sums = np.add.reduceat(sums, _starts(rows), axis=-2)
    sizes = np.array([len(row) for row in rows])[:, None]
    merged: NDArray[np.float64] = sums / sizes
    return merged


def _parts(translation: Translation) -> Iterator[_TokenPart]:
    """Yield the parts of a translation, none if it has no attention weights."""
    weights, of_heads = translation.attention_blocks, translation.head_blocks
    blocks = weights.blocks if weights else ()
    row = column = 0
    head_blocks = of_heads.blocks if of_heads else [None] * len(blocks)
    for block, heads in zip(blocks, head_blocks, strict=True):
        below, right = row + block.shape[0], column + block.shape[1]
        src, tgt = translation.src_tokens[column:right], translation.tokens[row:below]
        yield _TokenPart(src, tgt, block, heads)
        row, column = below, right


def _text_of(tokens: Sequence[str]) -> str:
    """Return the text that tokens of a part spell, for its heading."""
    return joined([token for token in tokens if token != EOS]).replace(SPACE, " ").strip()


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
    return attention._replace(
        src_tokens=_joined(attention.src_tokens, word_spans(attention.src_tokens)),
        tgt_tokens=_joined(attention.tgt_tokens, word_spans(attention.tgt_tokens)),
        weights=_merged(attention.weights, attention),
    )


def _starts(spans: Sequence[range]) -> NDArray[np.intp]:
    return np.array([span.start for span in spans], np.intp)


def _joined(tokens: Sequence[str], spans: Sequence[range]) -> list[str]:
    return [joined([tokens[index] for index in span]) for span in spans]
