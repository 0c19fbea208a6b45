"""Attention map of a line in several parts, and a translation by its words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.attention_map import (
    AttentionMap,
    join_spans,
    token_parts,
    word_spans,
    word_weights,
)
from seq2seq.inference.nbest import AttentionBlocks
from seq2seq.inference.translation import Translation


def map_of(translation: Translation, source: str) -> AttentionMap:
    """Return one map of a translation; it is empty if the translation has no weights."""
    weights = translation.attention
    if weights is None:
        return AttentionMap(source, translation.text, [], [], np.zeros((0, 0)))
    return AttentionMap(
        source, translation.text, translation.src_tokens, translation.tokens, weights
    )


def translation_by_words(translation: Translation) -> Translation:
    """Return the best entry of a translation with the tokens of each word merged, as `by_words`.

    The log-probability of a word is the sum over its tokens.
    """
    best = translation.n_best[0]
    parts = list(token_parts(best, translation.src_tokens))
    if not parts:
        return translation
    rows, columns = word_spans(best.tokens), word_spans(translation.src_tokens)
    means = [word_weights(part.weights, part) for part in parts]
    heads = [
        word_weights(part.head_weights, part) for part in parts if part.head_weights is not None
    ]
    merged = replace(
        best,
        tokens=join_spans(best.tokens, rows),
        log_probs=[sum(best.log_probs[index] for index in row) for row in rows],
        attention_blocks=_blocks(means),
        head_blocks=_blocks(heads) if heads else None,
    )
    return replace(
        translation, n_best=[merged], src_tokens=join_spans(translation.src_tokens, columns)
    )


def _blocks(weights: Sequence[NDArray[np.float64]]) -> AttentionBlocks:
    return AttentionBlocks([block.astype(np.float32) for block in weights])
