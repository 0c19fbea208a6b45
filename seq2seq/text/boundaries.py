"""Places of a line where a sentence may end, by the marks there and what is beside them."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from seq2seq.text.characters import (
    AFTER_MARKS,
    CLOSING,
    COMMAS,
    DASHES,
    FINAL_QUOTES,
    INITIAL_QUOTES,
    MARKS,
    OPENING,
    PUNCTUATION,
    QUOTES,
)

# For classes of characters: any quotation mark opens after a space, and closes after a mark.
_OPENING = re.escape(OPENING)
_BRACKETS = re.escape("".join(c for c in OPENING if unicodedata.category(c) == "Ps"))
_CLOSING = re.escape(CLOSING)
_DASHES = re.escape(DASHES)
BEFORE_WORDS = re.escape(OPENING + FINAL_QUOTES)
_AFTER_MARKS = re.escape(AFTER_MARKS)
_QUOTES = re.escape("".join(QUOTES))
RAISED = "\u00b9\u00b2\u00b3\u2070-\u2079"  # numbers of footnotes
# A symbol such as an emoji, or what is invisible: neither a word nor a mark of punctuation.
_SYMBOL = rf"[^\w\s\x00-\x7f{re.escape(PUNCTUATION)}]"
_JOINED_TO_MARK = (
    rf"{_SYMBOL} | [{_DASHES}] | [(\[]\d{{1,3}}[)\]]"  # at once after it, before a space
)
FRENCH_CLOSING = rf"\s[{FINAL_QUOTES}](?!\w)"  # a closing quotation mark after a space
# Ends that no space has to follow: of scripts without spaces, and others that no word contains.
_FULL = "".join(mark for mark in MARKS if not mark.isascii() and mark not in "\u2024\u2026")
_NOTES = RAISED + "*\u2020\u2021\u2122\u00ae\u00a9"


@cache
def marks_with(further_marks: str) -> frozenset[str]:
    """Return MARKS and further ones."""
    return frozenset(MARKS + further_marks)


def boundaries(line: str, further_marks: str) -> Iterator[re.Match[str]]:
    """Yield the places where a sentence may end, from left to right; each begins with a mark.

    One has one of three groups: `end`, marks before white space; `unspaced`, marks that no word
    contains, with any character after them; `joined`, a mark between two words. With `end` come
    `closing`, what closes the sentence; `apart`, a straight quotation mark between spaces; `dash`
    and `opening`, what the next sentence begins with; and `next`, the first character of its words.
    """
    marks = marks_with(further_marks)
    pattern = _boundary(further_marks)
    end = 0
    for place, character in enumerate(line):
        if character not in marks or place < end:
            continue
        boundary = pattern.match(line, place)
        if boundary is not None:
            end = boundary.end()
            yield boundary


@cache
def _boundary(further_marks: str) -> re.Pattern[str]:
    """Return the pattern of a place where a sentence may end: at MARKS, or further ones."""
    marks = MARKS + re.escape(further_marks)
    begins_none = rf"{_CLOSING}{marks}{COMMAS}"  # characters with which no sentence begins
    return re.compile(
        "|".join(
            (
                _before_space(marks, begins_none),
                _of_any_place(_FULL + _beyond_ascii(further_marks), begins_none),
                _between_words(begins_none),
            )
        ),
        re.VERBOSE,
    )


def _before_space(marks: str, begins_none: str) -> str:
    """Return the pattern of marks before white space, and of what is around both.

    What closes a sentence are quotation marks, brackets, the signs of notes, and symbols or dashes
    that are joined to it.
    """
    closing = rf"[{_AFTER_MARKS}{_NOTES}] | {_JOINED_TO_MARK} | {FRENCH_CLOSING}"
    opening = rf"""[{BEFORE_WORDS}] | (?<=[{INITIAL_QUOTES}])\s | (?<=\s["'])\s"""
    return rf"""
        (?<![{_BRACKETS}{marks}])
        (?P<end> [{marks}]++ )
        (?P<closing> (?:{closing})*+ )
        (?: \s++ (?P<apart> ["'] ) (?=\s) )?+  # opens or closes, in a text of tokens
        \s++
        (?=
            (?P<dash> (?: [{_DASHES}]++ \s )?+ )
            (?! [{_QUOTES}] \s? [{COMMAS}] )  # which closes a quotation, in a text of tokens
            (?P<opening> (?:{opening})* )
            (?P<next> [^\s{begins_none}] )
        )
    """


@cache
def _joined_to_mark() -> re.Pattern[str]:
    return re.compile(rf"(?: {_JOINED_TO_MARK} )*+", re.VERBOSE)


def end_of_symbols(line: str, start: int) -> int:
    """Return the end of the symbols, dashes and numbers in brackets from a place on to a word."""
    symbols = _joined_to_mark().match(line, start)
    end = start if symbols is None else symbols.end()
    return start if line[end : end + 1] in marks_with("") else end


def _beyond_ascii(marks: str) -> str:
    return re.escape("".join(mark for mark in marks if not mark.isascii()))


def _of_any_place(full: str, begins_none: str) -> str:
    """Return the pattern of marks that no word contains, with brackets before other brackets."""
    return rf"""
        (?<![{full}])
        (?P<unspaced> [{full}]++ )
        (?:
            (?= [{_OPENING}]* [^\s{begins_none}] )
        |
            [{_CLOSING}]+ (?=[{_OPENING}])
        )
    """


def _between_words(begins_none: str) -> str:
    """Return the pattern of a mark between two words, without white space after it."""
    return rf"(?: (?<=\S) | (?<=\S\s) ) (?P<joined> [.!?\u2026] ) (?= [^\s\d{begins_none}] )"


@cache
def footnotes() -> re.Pattern[str]:
    """Return the pattern of numbers of footnotes, after marks."""
    return re.compile(rf"((?<=[{MARKS}{_AFTER_MARKS}])[{RAISED}]+)")
