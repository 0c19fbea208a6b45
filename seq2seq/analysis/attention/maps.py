"""The attention of one sentence, and what is printed beside it, however it is drawn."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

END = "</s>"
WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes the space before a word


class AttentionMap(NamedTuple):
    """One translated sentence.

    `weights` has a row for each of `tgt_tokens` and a column for each of `src_tokens`, both with
    END, and values in 0..1. `text` is the translation.
    """

    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: list[list[float]]
    text: str


class Panel(NamedTuple):
    """A sentence to draw: its source text and its attention."""

    source: str
    attention: AttentionMap


def starts_word(pieces: Sequence[str], index: int) -> bool:
    """Whether a word, or END, begins with this piece."""
    return (
        index == 0 or pieces[index].startswith(WORD_START) or END in pieces[index - 1 : index + 1]
    )


def label_of(piece: str) -> str:
    """Drop the mark of a word's start, and spell what would not show (or break XML) as U+XXXX."""
    text = piece.removeprefix(WORD_START) or piece
    categories = [unicodedata.category(character) for character in text]
    if all(category[0] in "CZ" for category in categories) or {"Cc", "Cs", "Cn"} & set(categories):
        return " ".join(f"U+{ord(character):04X}" for character in text)
    return text


def labels_of(pieces: Sequence[str]) -> list[str]:
    """What to print for each piece."""
    return [label_of(piece) for piece in pieces]


def headings_of(panel: Panel) -> tuple[str, str]:
    """The source and the translation, as printed above the cells."""
    return _printable(panel.source), _printable(panel.attention.text)


def _printable(text: str) -> str:
    """Make a line of text safe for XML and for one line."""
    return "".join(c if unicodedata.category(c) not in {"Cc", "Cs", "Cn"} else " " for c in text)
