"""Space before punctuation marks: English has none, French one before ?, a text in tokens many.

A mark after a word is read as the training text nearly always writes it: joined to the word, or
apart, with the space that is most frequent there.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, Self

from seq2seq.text.characters import APOSTROPHES, CLOSING, MARKS, OPENING, OTHER_PUNCTUATION, QUOTES
from seq2seq.text.sentences import ends_in_abbreviation, next_visible

NEARLY_ALWAYS = 0.95  # share of the occurrences of a mark
_BRACKETS = frozenset(CLOSING) - frozenset(QUOTES)
_MARKS = re.escape("".join(c for c in OTHER_PUNCTUATION if c not in (*QUOTES, *APOSTROPHES)))
_OPENING = re.escape(OPENING)
_ENTITY = re.compile(r"&#?\w{1,10}\Z")
_AFTER_WORD = re.compile(  # of marks in a row the first one decides
    rf"""(?<=[^\s{_MARKS}{_OPENING}])  # a word, or a bracket or quotation mark that ends it
    (?P<space>\s?)
    (?P<marks>[{_MARKS}]+)
    (?=$|[\s{re.escape(CLOSING)}])""",
    re.VERBOSE,
)


class MarkSpacing(NamedTuple):
    """Marks that a text writes in one way."""

    apart: Sequence[str] = ()  # each with the space before it
    joined: str = ""

    @classmethod
    def of(cls, lines: Iterable[str], least: float, abbreviations: Collection[str]) -> Self:
        """Return the spacing of marks that follow a word more than `least` times in a text."""
        spaces = defaultdict[str, Counter[str]](Counter)
        for line in lines:
            for match in _marks_after_words(line, abbreviations):
                spaces[match["marks"][0]][match["space"]] += 1
        apart = list[str]()
        joined = ""
        for mark, counts in sorted(spaces.items()):
            enough = max(least, NEARLY_ALWAYS * counts.total())
            joined_count = counts.pop("", 0)
            if joined_count > enough:
                joined += mark
            elif counts.total() > enough:
                apart.append(max(counts, key=lambda space: (counts[space], space)) + mark)
        return cls(apart, joined)

    def written(self, text: str, abbreviations: Collection[str]) -> str:
        """Return a text with the marks after its words as the training text writes them."""
        if not _unusual("".join(mark[-1] for mark in self.apart), self.joined).search(text):
            return text  # as most lines are
        pieces = list[str]()
        end = 0
        for match in _marks_after_words(text, abbreviations):
            pieces += text[end : match.start()], self._space(match), match["marks"]
            end = match.end()
        return "".join((*pieces, text[end:]))

    def _space(self, match: re.Match[str]) -> str:
        """Return the space before marks: none, the one of the text, or the usual one for none."""
        mark = match["marks"][0]
        if mark in self.joined:
            return ""
        usual = next((marked[:-1] for marked in self.apart if marked[-1] == mark), "")
        return match["space"] or usual


@cache
def _unusual(apart: str, joined: str) -> re.Pattern[str]:
    """Return a pattern that matches wherever a mark may be written otherwise."""
    patterns = list[str]()
    if joined:
        patterns.append(rf"\s[{re.escape(joined)}]")
    if apart:
        patterns.append(rf"[^\s{re.escape(apart)}][{re.escape(apart)}]")
    return re.compile("|".join(patterns) or "(?!)")


def _marks_after_words(text: str, abbreviations: Collection[str]) -> Iterator[re.Match[str]]:
    """Yield matches of marks after words, but for dots in a row and those of abbreviations.

    Nor do the end of an entity such as `&amp;`, a mark between numbers or a mark before a bracket,
    such as `:)`, follow a word.
    """
    for match in _AFTER_WORD.finditer(text):
        if _is_apart_from_words(text, match) or _ENTITY.search(
            text[max(0, match.start() - 12) : match.start()]
        ):
            continue
        is_ellipsis = match["marks"].startswith("..")
        is_joined_dot = match["space"] == "" and match["marks"] == "."
        is_shortened = is_joined_dot and ends_in_abbreviation(text, match.start(), abbreviations)
        if not is_ellipsis and not is_shortened:
            yield match


def _is_apart_from_words(text: str, match: re.Match[str]) -> bool:
    """Return whether marks with a space before them are an emoticon, or between numbers."""
    if not match["space"]:
        return False
    following = next_visible(text, match.end())
    is_between_numbers = text[match.start() - 1].isdigit() and following.isdigit()
    is_sentence_end = match["marks"][-1] in MARKS
    begins_emoticon = following in _BRACKETS or (following in CLOSING and not is_sentence_end)
    is_emoticon = len(match["marks"]) > 1 and not is_sentence_end
    return is_between_numbers or is_emoticon or (following != "" and begins_emoticon)
