"""Final punctuation marks of lines: what a training text's lines end with, and lines without."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

UNMARKED = 0.01  # share of source lines without a final mark below which a text hardly has them
COMMON = 0.25  # least share of their translations in which another mark replaces the usual one
_CLOSING = {"Pe", "Pf", "Pi", "Ps", "Zs", "Zl", "Zp", "Cc", "Cf"}
_QUOTES = "\"'`"
_SIGNS = "#%&*/@\\\u2030\u2032\u2033"  # punctuation to Unicode, but part of a text
_INITIALS = re.compile(r"(?<![^\W\d_])(?:[^\W\d_]\.)+[^\W\d_]")


class Ending(NamedTuple):
    """A text in three parts."""

    body: str
    mark: str  # a punctuation mark, with white space before it; "" if there is none
    closing: str  # quotation marks, brackets and white space after it


def split_ending(text: str) -> Ending:
    """Split a text at its final mark, if it has one."""
    end = len(text)
    while end and _closes(text[end - 1]):
        end -= 1
    start = len(text[: end - 1].rstrip()) if end and _is_mark(text[end - 1]) else end
    return Ending(text[:start], text[start:end], text[end:])


def usual_marks(src: Sequence[str], tgt: Sequence[str]) -> list[str]:
    """Return the final mark that most source lines have, then others that translate it.

    None are returned for a text that has lines without a final mark. White space before the first
    mark belongs to it, as in tokenized text.
    """
    endings = [split_ending(line).mark for line in src]
    counts = Counter(endings)
    if not endings or counts[""] > UNMARKED * len(endings):
        return []
    ((usual, _),) = counts.most_common(1)
    translated = Counter(
        split_ending(line).mark.strip()
        for mark, line in zip(endings, tgt, strict=True)
        if mark == usual
    )
    least = COMMON * translated.total()
    replacing = [mark for mark, count in translated.most_common() if mark and count > least]
    return [usual, *(mark for mark in replacing if mark != usual.strip())]


def lacks_mark(text: str) -> bool:
    """Return whether a text has words, and no punctuation mark at its end."""
    return any(map(_is_word, text)) and not split_ending(text).mark


def without_mark(text: str, marks: Iterable[str]) -> str:
    """Remove the final mark of a text if it is one of `marks`; initials and ellipses keep it."""
    body, mark, closing = split_ending(text)
    if mark.strip() not in {usual.strip() for usual in marks} or not mark:
        return text
    if body.endswith(mark) or (mark == "." and _INITIALS.search(body[-16:])):
        return text
    return body + closing


def _closes(character: str) -> bool:
    """Return whether a character may follow a final mark: a quotation mark, a bracket or space."""
    category = unicodedata.category(character)
    return category in _CLOSING or character in _QUOTES


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Po", "Pd") and character not in _SIGNS


def _is_word(character: str) -> bool:
    """Return whether a character is part of a word; a placeholder of a name is."""
    return character.isalnum() or unicodedata.category(character) == "Cn"
