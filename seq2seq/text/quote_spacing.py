"""Spaces within quotation marks: `"so"` in most texts, `" so "` in one of tokens, or in French.

Where quotations of a line open and close in turn, they are read as the training text nearly always
writes them. Single marks are left as they are, as they may be apostrophes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from seq2seq.text.characters import COMMAS, MARKS
from seq2seq.text.mark_spacing import MarkSpacing, usual_spaces
from seq2seq.text.quotes_and_dashes import DOUBLE_MARKS, places_of_doubles

_FOLLOWING = re.compile(rf"(\s?)([{MARKS}{re.escape(COMMAS)}])(?=\s|$)")


class QuoteSpacing(NamedTuple):
    """Quotation marks that a text writes in one way."""

    apart: Sequence[str] = ()  # each with the space before it
    joined: str = ""

    @classmethod
    def of(cls, lines: Iterable[str], least: float) -> Self:
        """Return the spacing of marks that occur more than `least` times in a text."""
        spaces = defaultdict[str, Counter[str]](Counter)
        for line in lines:
            for match, is_opening in _quotations(line):
                place = match.end() if is_opening else match.start() - 1
                spaces[match[0]][_space_at(line, place)] += 1
        return cls(*usual_spaces(spaces, least))

    def written(self, text: str, marks: MarkSpacing) -> str:
        """Return a text with its quotations as the training text writes them.

        So is the space before a mark that follows one, which `marks` says.
        """
        known = {*self.joined, *(mark[-1] for mark in self.apart)}
        if known.isdisjoint(text):  # as most lines are
            return text
        own_marks = MarkSpacing(self.apart, self.joined)
        pieces = list[str]()
        end = 0
        for match, is_opening in _quotations(text):
            if match[0] not in known:
                continue
            text_before = text[end : match.start()]
            end = match.end()
            if is_opening:
                inner = _space_at(text, end)
                pieces += text_before, match[0], own_marks.space_before(match[0], inner)
                end = _end_of_spaces(text, end)
            else:
                inner = _space_at(text_before, -1)
                pieces += text_before.rstrip(), own_marks.space_before(match[0], inner), match[0]
                if following := _FOLLOWING.match(text, end):
                    pieces += marks.space_before(following[2], following[1]), following[2]
                    end = following.end()
        return "".join((*pieces, text[end:]))


def _space_at(text: str, place: int) -> str:
    """Return the character at a place if it is a space, "" otherwise or if there is none."""
    character = text[place:][:1]
    return character if character.isspace() else ""


def _end_of_spaces(text: str, place: int) -> int:
    while text[place : place + 1].isspace():
        place += 1
    return place


def _quotations(line: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield the double marks of a line, and whether each opens; none if they do not take turns."""
    if DOUBLE_MARKS.isdisjoint(line):  # as most lines are
        return iter(())
    places = [(match, place == "opening") for match, place in places_of_doubles(line)]
    turns = [place % 2 == 0 for place in range(len(places))]
    takes_turns = len(places) % 2 == 0 and turns == [is_opening for _, is_opening in places]
    return iter(places if takes_turns else ())


def has_open_quotation(text: str) -> bool:
    """Return whether a text has a quotation that it does not close."""
    return sum(map(text.count, DOUBLE_MARKS)) % 2 == 1
