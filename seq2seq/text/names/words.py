"""Words of source and target lines, symbols, and the placeholders that replace names.

Symbols are strings of the text, such as <2fr> or <num>, that are single tokens and never split.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from seq2seq.text.characters import are_capitals

# Noncharacters of Unicode, meant for internal use: no text contains them.
PLACEHOLDERS = tuple(map(chr, range(0xFDD0, 0xFDD8)))
_PLACEHOLDER = re.compile("[\ufdd0-\ufdd7]")
# But for Chinese and Korean letters, surrogates and private use; up to the end of the BMP.
_BLOCKS_WITH_MARKS = (range(0x300, 0x3100), range(0xA000, 0xAC00), range(0xFB00, 0x10000))
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_NO_VOWEL = re.compile("[A-Z]?[b-df-hj-np-tv-xz]{1,4}")  # `Dr`, `St`, `Ltd`, `bzw`
_POSSESSIVE = re.compile(r"[\u2019']s?$", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?:;>\u2026\"\u201c\u201d\u00ab\u00bb\u00a1\u00bf\u2014\u2013]|--")


class SourceWord(NamedTuple):
    """A word of a source line, without a possessive ending."""

    text: str
    start: int  # in the line
    end: int
    initial: bool  # it starts the line or a sentence

    @property
    def capitalised(self) -> bool:
        """Return whether the word starts with a capital letter."""
        return self.text[0].isupper() or self.text[0].istitle()


def source_words(line: str) -> list[SourceWord]:
    """Return the words of a source line."""
    words: list[SourceWord] = []
    last_end = 0
    for match in _source_word().finditer(line):
        start = match.start()
        text = _POSSESSIVE.sub("", match[0]) or match[0]
        between = line[last_end:start]
        initial = not words
        if words and _SENTENCE_END.search(between):
            last = words[-1].text
            is_abbreviation = last[0].isupper() and is_shortened(last)  # `Dr`, whose stop it is
            initial = not (between.strip() == "." and is_abbreviation)
        words.append(SourceWord(text, start, start + len(text), initial))
        last_end = match.end()
    return words


def is_shortened(word: str) -> bool:
    """Return whether a word before a full stop is initials or a Latin word without a vowel."""
    return bool(_INITIALS.fullmatch(word) or _NO_VOWEL.fullmatch(word))


def target_words(line: str) -> Iterator[re.Match[str]]:
    """Yield the words of a target line: letters with their marks."""
    yield from _target_word().finditer(line)


@cache
def script_of(letter: str) -> str:
    """Return the first word of a letter's Unicode name, its script, such as DEVANAGARI."""
    name = unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "UNKNOWN")
    return re.split("[ -]", name)[0]


def is_letter(character: str) -> bool:
    """Return whether a character belongs to words."""
    return _target_word().fullmatch(character) is not None


def is_placeholder(character: str) -> bool:
    """Return whether a character replaces a name; others that Unicode does not assign count, too.

    Only noncharacters and code points that no version has assigned yet are of category Cn.
    """
    return unicodedata.category(character) == "Cn"


def without_placeholders(text: str) -> str:
    """Replace noncharacters that serve as placeholders by U+FFFD."""
    return _PLACEHOLDER.sub("\N{REPLACEMENT CHARACTER}", text)


def placeholders_in(text: str) -> list[str]:
    """Return the placeholders of a text in order."""
    return _PLACEHOLDER.findall(text)


class CaseCounts(NamedTuple):
    """Frequencies of source words by case."""

    lower: Counter[str]  # uncapitalised, by word in lower case
    capitalised: Counter[str]


def count_cases(lines: Sequence[str]) -> CaseCounts:
    """Count the words of source lines by case; lines in capitals do not count."""
    lower = Counter[str]()
    capitalised = Counter[str]()
    for line in lines:
        for word in () if are_capitals(line) else source_words(line):
            if word.capitalised:
                capitalised[word.text] += 1
            else:
                lower[word.text.lower()] += 1
    return CaseCounts(lower, capitalised)


@cache
def _source_word() -> re.Pattern[str]:
    return re.compile(rf"{_letters()}(?:[\u2019'-]{_letters()})*")


@cache
def _target_word() -> re.Pattern[str]:
    return re.compile(_letters())


@cache
def _letters() -> str:
    """Return the pattern of letters with their marks; to find all marks takes a millisecond."""
    codes = map(chr, chain.from_iterable(_BLOCKS_WITH_MARKS))
    marks = "".join(code for code in codes if unicodedata.category(code)[0] == "M")
    return rf"(?:[^\W\d_]|[{marks}\u200c\u200d])+"


def any_of(strings: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of any of these strings, the longest that matches; of none, no match."""
    longest_first = sorted(strings, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def symbol_positions(symbol: re.Pattern[str], text: str) -> set[int]:
    """Return the positions of a text's characters that belong to symbols."""
    return {n for match in symbol.finditer(text) for n in range(*match.span())}
