"""Spaces within quotation marks: `"so"` in most texts, `" so "` in one of tokens, or in French.

Where quotations of a line open and close in turn, they are read as the training text nearly always
writes them. Single marks are left as they are, as they may be apostrophes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from seq2seq.text.characters import COMMAS, MARKS
from seq2seq.text.mark_spacing import NEARLY_ALWAYS, MarkSpacing
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
                inner = line[match.end() : match.end() + 1] if is_opening else _before(match)
                spaces[match[0]][inner if inner.isspace() else ""] += 1
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

    def written(self, text: str, marks: MarkSpacing) -> str:
        """Return a text with its quotations as the training text writes them.

        So is the space before a mark that follows one, which `marks` says.
        """
        known = {*self.joined, *(mark[-1] for mark in self.apart)}
        if known.isdisjoint(text):  # as most lines are
            return text
        pieces = list[str]()
        end = 0
        for match, is_opening in _quotations(text):
            if match[0] not in known:
                continue
            space = self._space(match[0])
            before = text[end : match.start()]
            if is_opening:
                pieces += before, match[0]
                end = match.end()
                inner = text[end : end + 1]
                pieces.append(space and (inner if inner.isspace() else space))
                end += inner.isspace()
            else:
                inner = before[-1:] if before[-1:].isspace() else ""
                pieces += before.rstrip() if inner else before, space and (inner or space), match[0]
                following = _FOLLOWING.match(text, match.end())
                end = match.end()
                if following is not None:
                    pieces += marks.space_before(following[2], following[1]), following[2]
                    end = following.end()
        return "".join((*pieces, text[end:]))

    def _space(self, mark: str) -> str:
        """Return the space within a mark, "" for none."""
        return next((apart[:-1] for apart in self.apart if apart[-1] == mark), "")


def _before(match: re.Match[str]) -> str:
    return match.string[max(0, match.start() - 1) : match.start()]


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
