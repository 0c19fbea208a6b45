"""Affixes of sentences: labels and symbols before a sentence, symbols after its final mark."""

import re
import unicodedata
from typing import NamedTuple

from seq2seq.data.lines import is_blank

MARKS = (
    ".!?\u0964\u0965\u3002\uff01\uff1f\u061f\u06d4\u1362\u104b\u17d4\u2026"  # that end sentences
)
QUOTES = "\"'\u2019\u201d\u00bb\u203a\u300d\u300f"  # that close a quotation
CLOSING = QUOTES + r")\]\uff09"  # quotation marks and brackets, in a class of characters
OPENING = "\"'\u2018\u201c\u201e\u00ab\u2039([\u00bf\u00a1\u300c\u300e\uff08"
_LABEL = re.compile(
    r"\s*(?:[(\[]?\d{1,4}(?:\.\d{1,3})*[.)\]]|[(\[]?[^\W\d_][)\]]"
    r"|[(\[]?[ivxIVX]{2,5}[.)\]]|[a-z]\.|[A-Z]:|[#@]\w+)\s+"
)
RAISED = "\u00b9\u00b2\u00b3\u2070-\u2079"  # numbers of footnotes
_TAIL = re.compile(rf"(?:\.{{2,}}|[{MARKS}])[{CLOSING}]*(?:(?=[{RAISED}])|(?!\w))")
_SYMBOLS = {"So", "Sk", "Cs", "Co"}  # categories of symbols such as emoji
_JOINING = "\u200d\ufe0f\u20e3"  # within emoji


class Affixes(NamedTuple):
    """A sentence between what is before and after it, white space included."""

    head: str
    body: str
    tail: str


def split_affixes(text: str) -> Affixes:
    """Set aside a label (`1.`, `a)`, `Q:`, `#tag`) or symbols before a text, and its tail.

    A tail has no letters and follows the first end mark after them, with closing quotation marks:
    further end marks, numbers, symbols; or it consists of symbols such as emoji. A text without
    letters is all body.
    """
    if not has_letters(text):
        return Affixes("", text, "")
    start = _end_of_head(text)
    end = _start_of_tail(text, start)
    return Affixes(text[:start], text[start:end], text[end:])


def has_letters(text: str) -> bool:
    """Return whether a text has a letter, or a placeholder of a name."""
    return any(character.isalpha() or unicodedata.category(character) == "Cn" for character in text)


def _end_of_head(text: str) -> int:
    label = _LABEL.match(text)
    if label is not None and has_letters(text[label.end() :]):
        return label.end()
    for match in re.finditer(r"\S+", text):
        if any(c.isalnum() or c in OPENING or unicodedata.category(c) == "Cn" for c in match[0]):
            return 0 if is_blank(text[: match.start()]) else match.start()
    return 0


def _start_of_tail(text: str, start: int) -> int:
    """Return the place from which a text has no letters, after an end mark or before symbols."""
    last = max(n for n in range(start, len(text)) if has_letters(text[n])) + 1
    marks = list(_TAIL.finditer(text, last))
    if marks and text[marks[0].end() :].strip():
        between = text[last : marks[0].start()]
        if not any(character.isspace() for character in between.rstrip()):
            return marks[0].end()
    end = len(text)
    while end > last and (text[end - 1].isspace() or _is_symbol(text[end - 1])):
        end -= 1
    return end if text[end:].strip() else len(text)


def _is_symbol(character: str) -> bool:
    return character in _JOINING or unicodedata.category(character) in _SYMBOLS
