"""Space before punctuation marks: English has none, French one before ?, a text in tokens many.

A mark after a word is read as the training text nearly always writes it: joined to the word, or
apart, with the space that is most frequent there.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, Self

from seq2seq.text.characters import (
    APOSTROPHES,
    CLOSING,
    COMMAS,
    MARKS,
    OPENING,
    OTHER_PUNCTUATION,
    QUOTES,
    is_spaced,
    is_wide,
)
from seq2seq.text.sentences import (
    MAX_ADDRESS,
    Words,
    begins_sentence,
    ends_in_abbreviation,
    ends_in_letter_with_stop,
    next_visible,
)

NEARLY_ALWAYS = 0.95  # share of the occurrences of a mark
_CLOSING = frozenset(CLOSING)
_BRACKETS = _CLOSING - frozenset(QUOTES)
_MARKS = re.escape("".join(c for c in OTHER_PUNCTUATION if c not in (*QUOTES, *APOSTROPHES)))
_OPENING = re.escape(OPENING)
_ENTITY = re.compile(r"&#?\w{1,10}\Z")
_ADDRESS_SIGNS = frozenset("/@_=\\")
_LETTER = r"[^\W\d_]"


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
        return cls(*usual_spaces(spaces, least))

    def written(self, text: str, abbreviations: Collection[str], words: Words | None = None) -> str:
        """Return a text with the marks after its words as the training text writes them.

        A space on the wrong side of a mark is moved: of `.` and `!` before one of the `words` of
        the text, as others may begin in them: `.net`.
        """
        if not _unusual("".join(mark[-1] for mark in self.apart), self.joined).search(text):
            return text  # as most lines are
        text = _on_wrong_side().sub(lambda match: self._with_space_after(match, words), text)
        pieces = list[str]()
        end = 0
        for match in _marks_after_words(text, abbreviations):
            pieces += text[end : match.start()], self._space(match), match["marks"]
            end = match.end()
        return "".join((*pieces, text[end:]))

    def _with_space_after(self, match: re.Match[str], words: Words | None) -> str:
        """Return a mark with the space after it, if it belongs to the word before it."""
        mark = match["mark"]
        is_known = mark in self.joined or any(mark == apart[-1] for apart in self.apart)
        if not is_known or is_wide(mark) or not _belongs_before(match, words):
            return match[0]
        return f"{match['space']}{mark} "

    def _space(self, match: re.Match[str]) -> str:
        """Return the space before marks: none, the one of the text, or the usual one for none."""
        return self.space_before(match["marks"][0], match["space"])

    def space_before(self, mark: str, space: str) -> str:
        """Return the space before a mark as the text has it, for the one that is written there."""
        if mark in self.joined:
            return ""
        usual_space = next((marked[:-1] for marked in self.apart if marked[-1] == mark), "")
        return space or usual_space


def usual_spaces(spaces: Mapping[str, Counter[str]], least: float) -> tuple[Sequence[str], str]:
    """Return the marks that a text nearly always writes apart, each with its space, and joined.

    `spaces` has for each mark how often the text has which space beside it, "" for none: more than
    `least` times in one way, or the mark is left out.
    """
    apart = list[str]()
    joined = ""
    for mark, counts in sorted(spaces.items()):
        enough = max(least, NEARLY_ALWAYS * counts.total())
        joined_count = counts[""]
        if joined_count > enough:
            joined += mark
        elif counts.total() - joined_count > enough:
            usual_space = max(filter(None, counts), key=lambda space: (counts[space], space))
            apart.append(usual_space + mark)
    return apart, joined


@cache
def _after_word() -> re.Pattern[str]:
    """Return the pattern of marks after a word, or after a bracket or quotation mark that ends it.

    Of marks in a row the first one decides.
    """
    return re.compile(
        rf"""(?<=[^\s{_MARKS}{_OPENING}])
        (?P<space>\s?)
        (?P<marks>[{_MARKS}]+)
        (?=$|[\s{re.escape(CLOSING)}])""",
        re.VERBOSE,
    )


@cache
def _on_wrong_side() -> re.Pattern[str]:
    """Return the pattern of a mark with the space that belongs after it before it, or missing."""
    return re.compile(
        rf"""
        (?<=[^\s{_MARKS}{_OPENING}])
        (?P<space>\s?)
        (?P<mark>[{_MARKS}])
        (?=(?P<word>{_LETTER}[^\s{_MARKS}]*+)(?:[\s{_MARKS}]|$))
        """,
        re.VERBOSE,
    )


@cache
def _unusual(apart: str, joined: str) -> re.Pattern[str]:
    """Return a pattern that matches wherever a mark may be written otherwise."""
    patterns = list[str]()
    if joined:
        patterns.append(rf"\s[{re.escape(joined)}]|[{re.escape(joined)}]{_LETTER}")
    if apart:
        patterns.append(
            rf"[^\s{re.escape(apart)}][{re.escape(apart)}]|[{re.escape(apart)}]{_LETTER}"
        )
    return re.compile("|".join(patterns) or "(?!)")


def _marks_after_words(text: str, abbreviations: Collection[str]) -> Iterator[re.Match[str]]:
    """Yield matches of marks after words, but for dots in a row and those of abbreviations.

    Nor do the end of an entity such as `&amp;`, a mark between numbers or a mark before a bracket,
    such as `:)`, follow a word.
    """
    for match in _after_word().finditer(text):
        if _is_apart_from_words(text, match) or _follows_entity(text, match.start()):
            continue
        is_ellipsis = match["marks"].startswith("..")
        is_joined_dot = match["space"] == "" and match["marks"] == "."
        is_shortened = is_joined_dot and (
            ends_in_abbreviation(text, match.start(), abbreviations)
            or (ends_in_letter_with_stop(text, match.start()) and match.end() < len(text))
        )
        if not is_ellipsis and not is_shortened:
            yield match


def _follows_entity(text: str, place: int) -> bool:
    text_before = text[max(0, place - 12) : place]
    return "&" in text_before and _ENTITY.search(text_before) is not None


def _belongs_before(match: re.Match[str], words: Words | None) -> bool:
    """Return whether a mark before a word belongs to the word before it.

    A comma does, also without any space, but after a digit or in an address, and in scripts without
    spaces.
    """
    mark = match["mark"]
    word = match["word"]
    text_before = match.string[max(0, match.start() - MAX_ADDRESS) : match.start()]
    if not is_spaced(word[0]) or not is_spaced(text_before[-1]):
        return False
    if match["space"]:
        return mark in COMMAS or begins_sentence(mark, word, words)
    is_in_address = not _ADDRESS_SIGNS.isdisjoint(text_before.rpartition(" ")[2] + word)
    return mark in COMMAS and not text_before[-1].isdigit() and not is_in_address


def _is_apart_from_words(text: str, match: re.Match[str]) -> bool:
    """Return whether marks with a space before them are an emoticon, or between numbers."""
    if not match["space"]:
        return False
    following = next_visible(text, match.end())
    is_between_numbers = text[match.start() - 1].isdigit() and following.isdigit()
    is_sentence_end = match["marks"][-1] in MARKS
    is_before_quote = text[match.end() : match.end() + 1] in _CLOSING
    begins_emoticon = following in _BRACKETS or (is_before_quote and not is_sentence_end)
    is_emoticon = len(match["marks"]) > 1 and not is_sentence_end
    return is_between_numbers or is_emoticon or (following != "" and begins_emoticon)
