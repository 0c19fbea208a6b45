"""Attention map of one sentence, and the labels that every format prints beside it."""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from seq2seq.data.subword_sampling import SPACE

EOS = "</s>"


class AttentionMap(NamedTuple):
    """Attention weights of one sentence, with its text.

    `weights` has a row for each target token and a column for each source token, EOS included, and
    values in 0..1.
    """

    source: str
    translation: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: Sequence[Sequence[float]]

    def headings(self) -> tuple[str, str]:
        """Return the source and the translation, safe for XML and for one line."""
        return _printable(self.source), _printable(self.translation)


def by_words(attention: AttentionMap) -> AttentionMap:
    """Merge the tokens of each word.

    The weight of a source word is the sum over its tokens, that of a target word the mean.
    """
    columns, rows = (word_spans(tokens) for tokens in (attention.src_tokens, attention.tgt_tokens))
    weights = [
        [
            sum(sum(attention.weights[row][column] for column in span) for row in rows_of)
            / len(rows_of)
            for span in columns
        ]
        for rows_of in rows
    ]
    return attention._replace(
        src_tokens=_joined(attention.src_tokens, columns),
        tgt_tokens=_joined(attention.tgt_tokens, rows),
        weights=weights,
    )


def word_spans(tokens: Sequence[str]) -> list[range]:
    """Return the indices of each word's tokens; EOS is a word."""
    starts = [index for index in range(len(tokens)) if starts_word(tokens, index)]
    return [range(*span) for span in pairwise([*starts, len(tokens)])]


def _joined(tokens: Sequence[str], spans: Sequence[range]) -> list[str]:
    return ["".join(tokens[index] for index in span) for span in spans]


def starts_word(tokens: Sequence[str], index: int) -> bool:
    """Return whether a token starts a word or is EOS."""
    return index == 0 or tokens[index].startswith(SPACE) or EOS in tokens[index - 1 : index + 1]


def label_of(token: str) -> str:
    """Return a token without its word boundary; invisible or illegal characters as U+XXXX."""
    text = token.removeprefix(SPACE) or token
    categories = [unicodedata.category(character) for character in text]
    if all(category[0] in "CZ" for category in categories) or {"Cc", "Cs", "Cn"} & set(categories):
        return " ".join(f"U+{ord(character):04X}" for character in text)
    return text


def labels_of(tokens: Sequence[str]) -> list[str]:
    """Return the labels of several tokens."""
    return [label_of(token) for token in tokens]


def _printable(text: str) -> str:
    return "".join(c if unicodedata.category(c) not in {"Cc", "Cs", "Cn"} else " " for c in text)
