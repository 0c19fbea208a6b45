"""Targets of guided alignment: the source words that each target token is to attend to."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import Ids, Vocabularies, Vocabulary

Links = Sequence[int]  # source word, target word, source word, ...


def alignment_targets(
    src: Sequence[Ids], tgt: Sequence[Ids], links: Sequence[Links], vocabularies: Vocabularies
) -> tuple[Tensor, Tensor]:
    """Return the word of each source token [B, S] and the targets [B, T, W].

    S and T include EOS. Row t of a sentence is the distribution over the W source words which token
    t is to attend to: uniform over the words that its own word is linked with (Chen et al. 2016,
    where words are tokens), zero for a word without links and for EOS. EOS and padding of the
    source are in word W, to which no target refers.
    """
    words = [
        [word_numbers(ids, vocabulary) for ids in side]
        for side, vocabulary in zip((src, tgt), vocabularies[:2], strict=True)
    ]
    src_words, tgt_words = words
    width = max(1, *(int(each[-1]) + 1 if len(each) else 0 for each in src_words))
    sizes = [1 + max(map(len, side)) for side in words]
    numbers = np.full((len(src), sizes[0]), width, np.int64)
    targets = np.zeros((len(src), sizes[1], width), np.float32)
    for row, pairs in enumerate(links):
        numbers[row, : len(src_words[row])] = src_words[row]
        if len(pairs):
            linked = np.zeros((len(tgt_words[row]), width), np.float32)
            for source, target in np.reshape(pairs, (-1, 2)).tolist():
                linked[tgt_words[row] == target, source : source + 1] = 1
            totals = linked.sum(1, keepdims=True)
            targets[row, : len(linked)] = linked / np.maximum(totals, 1)
    return torch.from_numpy(numbers), torch.from_numpy(targets)


def word_numbers(ids: Ids, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return for each token of a text the number of its word, from 0."""
    starts = _starts(vocabulary)[np.array(ids, np.int64)]
    starts[:1] = True
    numbers: NDArray[np.int64] = np.cumsum(starts) - 1
    return numbers


@lru_cache(maxsize=4)
def _starts(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return whether each token starts a word; each does in a vocabulary of words."""
    tokens = vocabulary.tokens(range(len(vocabulary)))
    if not vocabulary.has_byte_fallback:
        return np.ones(len(tokens), bool)
    return np.array([token.startswith(SPACE) for token in tokens])
