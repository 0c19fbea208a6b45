"""Final mark of a text: split off, found missing, or removed."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from seq2seq.text.characters import APOSTROPHES, COMMAS, MARKS, QUOTES, SIGNS
from seq2seq.text.names.words import is_placeholder

_NEVER_FINAL = frozenset((*APOSTROPHES, *COMMAS, *MARKS, *QUOTES, *SIGNS))  # or of another kind
USUAL_ENDINGS = frozenset(("", ".", "?", "!"))
_CLOSING_CATEGORIES = {"Pe", "Pf", "Pi", "Ps", "Zs", "Zl", "Zp", "Cc", "Cf"}
_QUOTATION = "\"'`"
_ABBREVIATED = re.compile(r"(?<![^\W\d_])(?:[^\W\d_]\.)+[^\W\d_]")


class Ending(NamedTuple):
    """A text in three parts."""

    body: str
    mark: str  # a punctuation mark, with white space before it; "" if there is none
    closing: str  # quotation marks, brackets and white space after it


def split_ending(text: str, own_marks: str = "") -> Ending:
    """Split a text at its final mark, if it has one.

    One of `own_marks`, those of a training text alone, may be a symbol or be typed several times.
    """
    end = len(text)
    while end and (
        text[end - 1] in _QUOTATION or unicodedata.category(text[end - 1]) in _CLOSING_CATEGORIES
    ):
        end -= 1
    last = text[end - 1 : end]
    is_own = last != "" and last in own_marks
    is_mark = last and unicodedata.category(last) in ("Po", "Pd") and last not in SIGNS
    text_before = text[:end].rstrip(last) if is_own else text[: end - 1]
    start = len(text_before.rstrip()) if is_own or is_mark else end
    return Ending(text[:start], text[start:end], text[end:])


def marks_as_typed(marks: str) -> list[str]:
    """Return the marks of a record as the text types them: `||` for one that it has twice."""
    return [mark * count for mark, count in Counter(marks).items()]


def may_be_final(mark: str) -> bool:
    """Return whether a mark or a symbol that ends no sentences elsewhere may end one."""
    is_mark = mark != "" and unicodedata.category(mark) in ("Po", "Sm")
    return is_mark and mark not in _NEVER_FINAL and not unicodedata.mirrored(mark)


def lacks_mark(text: str, own_marks: str = "") -> bool:
    """Return whether a text has words, and neither punctuation nor one of the marks at its end."""
    has_words = any(c.isalnum() or is_placeholder(c) for c in text)
    return has_words and not split_ending(text, own_marks).mark


def without_mark(text: str, marks: Iterable[str]) -> str:
    """Remove the final mark of a text if it is one of `marks`; initials and ellipses keep it."""
    usual_marks = {usual.strip() for usual in marks}
    body, mark, closing = split_ending(text, "".join(usual_marks - USUAL_ENDINGS))
    if mark.strip() not in usual_marks or not mark:
        return text
    if body.endswith(mark) or (mark == "." and _ABBREVIATED.search(body[-16:])):
        return text
    return body + closing
