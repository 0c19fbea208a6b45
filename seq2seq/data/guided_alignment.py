"""Targets of guided alignment: the source words that each target token is to attend to."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import Ids, Vocabularies, Vocabulary, words_of
from seq2seq.text.characters import SPACE

Links = Sequence[int]  # source word, target word, source word, ...
Texts = tuple[Sequence[str], Sequence[str]]  # source and target


def alignment_targets(
    src: Sequence[Ids],
    tgt: Sequence[Ids],
    links: Sequence[Links],
    vocabularies: Vocabularies,
    texts: Texts,
) -> tuple[Tensor, Tensor]:
    """Return the word of each source token [B, S] and the targets [B, T, W].

    S and T include EOS. Row t of a sentence is the distribution over the W source words which token
    t is to attend to: uniform over the words that its own word is linked with (Chen et al. 2016,
    where words are tokens), zero for a word without links and for EOS. EOS and padding of the
    source are in word W, to which no target refers. A pair has no targets if the tokens of a side
    do not follow the words of its text.
    """
    src_words, tgt_words = (
        [text_words(ids, text, vocabulary) for ids, text in zip(side, lines, strict=True)]
        for side, lines, vocabulary in zip((src, tgt), texts, vocabularies[:2], strict=True)
    )
    width = max(
        [1, *(int(words[-1]) + 1 for words in src_words if words is not None and len(words))]
    )
    numbers = np.full((len(src), 1 + max(map(len, src))), width, np.int64)
    targets = np.zeros((len(tgt), 1 + max(map(len, tgt)), width), np.float32)
    for row, pairs in enumerate(links):
        of_src = src_words[row]
        of_tgt = tgt_words[row]
        if of_src is None or of_tgt is None:
            continue
        numbers[row, : len(of_src)] = of_src
        if len(pairs):
            linked = np.zeros((len(of_tgt), width), np.float32)
            for source, target in np.reshape(pairs, (-1, 2)).tolist():
                linked[of_tgt == target, source : source + 1] = 1
            totals = linked.sum(1, keepdims=True)
            targets[row, : len(linked)] = linked / np.maximum(totals, 1)
    return torch.from_numpy(numbers), torch.from_numpy(targets)


def text_words(ids: Ids, text: str, vocabulary: Vocabulary) -> NDArray[np.int64] | None:
    """Return the number of each token's word, from 0; None if the model's rules change words."""
    numbers = word_numbers(ids, vocabulary)
    count = int(numbers[-1]) + 1 if len(numbers) else 0
    return numbers if count == len(words_of(text)) else None


def word_numbers(ids: Ids, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return for each token of a text the number of its word of tokens, from 0.

    A token that is only a space is part of the next word, or of the last one.
    """
    starts, spaces = _boundaries(vocabulary)[:, np.array(ids, np.int64)]
    if spaces.any():
        starts[1:] &= ~spaces[:-1]
        starts[1 + np.flatnonzero(~spaces).max(initial=-1) :] = False
    starts[:1] = True
    numbers: NDArray[np.int64] = np.cumsum(starts) - 1
    return numbers


@lru_cache(maxsize=4)
def _boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return whether each token starts a word, and whether it is only a space [2, V]."""
    tokens = vocabulary.tokens(range(len(vocabulary)))
    starts = [not vocabulary.has_byte_fallback or token.startswith(SPACE) for token in tokens]
    return np.array([starts, [not token.strip(SPACE) for token in tokens]])
