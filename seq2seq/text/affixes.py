"""Affixes: labels and symbols before a sentence, symbols and numbers after its final mark."""

import re
import unicodedata
from collections.abc import Collection, Container
from functools import cache
from typing import NamedTuple

from seq2seq.text.boundaries import FRENCH_CLOSING, RAISED
from seq2seq.text.characters import (
    AFTER_MARKS,
    LABEL_MARKS,
    MARKS,
    OPENING,
    PARTNERS,
    QUOTES,
    is_blank,
    is_lower,
    is_spaced,
    is_symbol,
)
from seq2seq.text.final_marks import USUAL_ENDINGS, marks_as_typed
from seq2seq.text.line_properties import has_letters
from seq2seq.text.names.words import is_placeholder
from seq2seq.text.sentences import (
    LIST_NUMBER,
    MAX_NUMBER_LABEL,
    ends_in_abbreviation,
    is_number_label,
    next_visible,
)

_HEAD = re.compile(
    rf"""\s*
    (?: [(\[]?{LIST_NUMBER}[.)\]]         # 1.  1.2)  [3]
    |   [(\[]?[^\W\d_][)\]]                # a)
    |   [(\[]?[ivxIVX]{{2,5}}[.)\]]        # iv.
    |   (?P<letter>[^\W\d_])\.             # a.
    |   [^\W\d_]:                          # Q:
    |   [\#@]\w+                           # #tag
    |   </?[a-zA-Z][^<>]*>                 # <br>
    )\s+""",
    re.VERBOSE,
)
_UNSPACED = re.compile(r"\S+")
_MARKS = frozenset(MARKS)
_AFTER_MARKS = re.escape(AFTER_MARKS)


class Affixes(NamedTuple):
    """A sentence between what is before and after it, white space included."""

    head: str
    body: str
    tail: str


def split_affixes(
    text: str, abbreviations: Collection[str] = (), further_marks: str = ""
) -> Affixes:
    """Set aside a label (`1.`, `a)`, `Q:`, `#tag`) or symbols before a text, and its tail.

    A tail has no letters and follows the first end mark after them, with closing quotation marks:
    further end marks, numbers, symbols; or it consists of symbols such as emoji. With NUMBER among
    the abbreviations, a full stop between two numbers is that of an ordinal and no end mark. A text
    without letters is all body.
    """
    if not has_letters(text):
        return Affixes("", text, "")
    start = _end_of_head(text)
    end = _start_of_tail(text, start, further_marks, abbreviations)
    return Affixes(text[:start], text[start:end], text[end:])


def split_brackets(text: str) -> Affixes:
    """Set aside brackets around a text with letters, and a final mark after them.

    A text that is not all in brackets is all body.
    """
    stripped = text.strip()
    closing = PARTNERS.get(stripped[:1], "") if stripped[:1] not in QUOTES else ""
    end = stripped.find(closing) if closing else -1
    inner = stripped[1:end]
    is_final = len(stripped) - end <= 2 and stripped[end + 1 :] in ("", *MARKS)
    if end < 0 or not is_final or stripped[0] in inner or not has_letters(inner):
        return Affixes("", text, "")
    return Affixes(stripped[0], inner.strip(), stripped[end:])


def begins_with_ordinal(text: str, words: Container[str]) -> bool:
    """Return whether a text begins with a number and a full stop before one of the words."""
    ordinal = _first_ordinal().match(text)
    return ordinal is not None and ordinal[1] in words


def is_quotation(tail: str) -> bool:
    """Return whether a tail is a quotation mark apart, as in a text of tokens."""
    return tail.strip() in QUOTES


def _end_of_head(text: str) -> int:
    if text.partition(" ")[0].isalpha():  # as in most texts: a label has a mark
        return 0
    label = _HEAD.match(text)
    if label is not None and has_letters(text[label.end() :]) and not _is_initial(label):
        return label.end()
    end = _end_of_number(text)
    if end:
        return end
    for match in _UNSPACED.finditer(text):
        if not _is_keycap(match[0]) and any(map(_is_of_text, match[0])):
            start = match.start() + _end_of_bullet(match[0])
            return 0 if is_blank(text[:start]) else start
    return 0


def _is_keycap(word: str) -> bool:
    """Return whether a word is an emoji of a digit on a key."""
    return word.endswith("\N{COMBINING ENCLOSING KEYCAP}")


def _is_of_text(character: str) -> bool:
    """Return whether a character is no symbol: a letter, a digit, a bracket or a name."""
    return character.isalnum() or character in OPENING or is_placeholder(character)


def _is_initial(label: re.Match[str]) -> bool:
    """Return whether a letter with a full stop may be the initial of a name."""
    letter = label["letter"] or ""
    return letter.isalpha() and not is_lower(letter)  # and no digit, such as Ethiopic ones


def _end_of_number(text: str) -> int:
    """Return the end of a label that no space has to follow, such as \u2460 or `\uff11\uff0e`.

    Nor has one to follow a usual label, such as `1.`, before letters of scripts without spaces.
    """
    if text[: MAX_NUMBER_LABEL + 1].isascii():  # usual labels have a space after them
        return 0
    for end in range(min(MAX_NUMBER_LABEL, len(text) - 1), 0, -1):
        number = text[:end].lstrip()
        is_single = len(number) == 1 and unicodedata.category(number) == "No"
        if not (is_single or is_number_label(number)):
            continue
        following = text[end:].lstrip()
        is_symbol = is_single and unicodedata.bidirectional(number) == "ON"  # and no Ethiopic digit
        is_own = number[-1] in LABEL_MARKS
        is_usual = unicodedata.normalize("NFKC", number) == number and not (is_symbol or is_own)
        if following[:1].isalpha() and not (is_usual and is_spaced(following[0])):
            return len(text) - len(following)
    return 0


def _end_of_bullet(word: str) -> int:
    """Return the end of a bullet at the start of a word of a script without spaces."""
    bullet = word[:1]
    letter = word[1:2]
    is_bullet = unicodedata.category(bullet) in ("Pd", "Po", "So") and bullet not in OPENING
    return 1 if is_bullet and letter.isalpha() and not is_spaced(letter) else 0


def _start_of_tail(
    text: str, start: int, further_marks: str, abbreviations: Collection[str]
) -> int:
    """Return the place from which a text has no letters, after an end mark or before symbols."""
    last = next(n for n in range(len(text), start, -1) if has_letters(text[n - 1]))
    if text[last:].strip() in USUAL_ENDINGS:
        return len(text)
    marks = _tail(further_marks).finditer(text, last)
    final = next((m for m in marks if not _is_of_abbreviation(text, m, abbreviations)), None)
    if final is not None and text[final.end() :].strip():
        return final.end()
    end = len(text)
    while end > last and (text[end - 1].isspace() or is_symbol(text[end - 1])):
        end -= 1
    return end if text[end:].strip() else len(text)


def _is_of_abbreviation(text: str, mark: re.Match[str], abbreviations: Collection[str]) -> bool:
    """Return whether a mark is a full stop as in `No. 5.`, `am 3. 10.` or `etc.?`."""
    if mark[0] != ".":
        return False
    following = next_visible(text, mark.end())
    is_inner = following.isdigit() or text[mark.end() : mark.end() + 1] in _MARKS
    return is_inner and ends_in_abbreviation(text, mark.start(), abbreviations)


@cache
def _tail(further_marks: str) -> re.Pattern[str]:
    """Return the pattern of a final mark and what closes its sentence, where no word follows.

    The number of a footnote is no word. Of a mark that is typed twice, such as `||`, both are one.
    """
    typed_twice = sorted(mark for mark in marks_as_typed(further_marks) if len(mark) > 1)
    twice = "".join(rf" {re.escape(mark)} |" for mark in typed_twice)
    return re.compile(
        rf"""
        (?: \.{{2,}} |{twice} [{MARKS}{re.escape(further_marks)}] )
        (?: [{_AFTER_MARKS}] | {FRENCH_CLOSING} )*
        (?: (?=[{RAISED}]) | (?!\w) )
        """,
        re.VERBOSE,
    )


@cache
def _first_ordinal() -> re.Pattern[str]:
    return re.compile(r"\s*\d{1,3}\.\s+([^\W\d_]+)")
