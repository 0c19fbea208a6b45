"""Words of a line of text in which the words of its tokens are.

Most often both are the same. They differ where the tokens are those of a line in several parts
(each has an end-of-sentence, and the tag of the line), where a word was cut between two parts, and
where the boundaries of a vocabulary's tokens are not the spaces of the text.
"""

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import words_of
from seq2seq.inference.token_labels import EOS

_FINAL_MARKS = ".!?\u0964\u3002"  # may be added to a part that has none


def in_text_words(tokens: Sequence[str], text: str) -> NDArray[np.float64]:
    """Return a matrix [N, W]: 1 if words of tokens (N, in order) are in words of the text (W).

    EOS, and what the text does not contain, such as the tag of a later part, is in no word.
    """
    words = words_of(text)
    rows = [row for row, token in enumerate(tokens) if token != EOS]
    found = np.zeros((len(tokens), len(words)))
    if len(rows) == len(words):
        found[rows, range(len(words))] = 1
        return found
    keys = [_key(tokens[row]) for row in rows], [_key(word) for word in words]
    for kind, first, last, start, end in SequenceMatcher(None, *keys, False).get_opcodes():
        block = np.ix_(rows[first:last], range(start, end))
        if kind == "equal":
            found[block] = np.eye(end - start)
        elif kind == "replace":
            found[block] = _overlap(keys[0][first:last], keys[1][start:end])
    return found


def _key(word: str) -> str:
    """Return a word as both sides of a comparison have it, whatever a model normalizes."""
    text = "".join(unicodedata.normalize("NFKC", word).casefold().replace(SPACE, " ").split())
    return text.rstrip(_FINAL_MARKS) or text


def _overlap(left: Sequence[str], right: Sequence[str]) -> NDArray[np.bool_]:
    """Return a matrix [L, R]: whether one of two words contains the middle of the other.

    Both sequences of words spell one text, so that a word is in the same share of each.
    """
    (starts, ends), (others, other_ends) = _shares(left), _shares(right)
    starts, ends = starts[:, None], ends[:, None]
    middle, other_middle = (starts + ends) / 2, (others + other_ends) / 2
    inside = (others <= middle) & (middle < other_ends)
    either: NDArray[np.bool_] = inside | ((starts <= other_middle) & (other_middle < ends))
    return either


def _shares(words: Sequence[str]) -> NDArray[np.float64]:
    """Return where each word starts and ends [2, N], in 0..1."""
    ends = list(accumulate((max(1, len(word)) for word in words), initial=0))
    shares: NDArray[np.float64] = np.array(list(pairwise(ends))).T / ends[-1]
    return shares
