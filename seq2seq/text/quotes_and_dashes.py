"""Quotation marks, apostrophes and dashes: keyboards, telephones and books write different ones.

One that a training text hardly has is read as the one that the text has most often for its kind, in
its place: opening before a word, inner within a word, or closing.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple, Self

from seq2seq.text.characters import (
    APOSTROPHES,
    CLOSING,
    DASHES,
    MARKS,
    OPENING,
    QUOTES,
    is_in_word,
    is_spaced,
)

Kind = Literal["single", "double", "hyphen", "dash"]
Place = Literal["opening", "inner", "closing"]
PAUSES = "\N{EM DASH}\N{HORIZONTAL BAR}"  # between two phrases, also without spaces
_OWN_SHARE = 0.05  # least share of the occurrences of a mark in a place in which it is usual
_STRAIGHT = "\"'"
_ENDS = frozenset((*MARKS, *CLOSING))


def _kind_of(mark: str) -> Kind:
    name = unicodedata.name(mark)
    if mark in DASHES:
        return "hyphen" if "HYPHEN" in name or "MINUS" in name else "dash"
    is_straight = name.removeprefix("FULLWIDTH ") == "QUOTATION MARK"
    has_double_form = is_straight or "DOUBLE" in name or "GERSHAYIM" in name
    is_double = has_double_form or "CORNER BRACKET" in name
    return "double" if is_double else "single"


_KINDS = {mark: _kind_of(mark) for mark in (*QUOTES, *APOSTROPHES, *DASHES)}
DOUBLE_MARKS = frozenset(mark for mark, kind in _KINDS.items() if kind == "double")


@cache
def _mark() -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(_KINDS))}]")


class QuotesAndDashes(NamedTuple):
    """Marks that a text has in each place, the most frequent one first."""

    opening: str = ""
    inner: str = ""
    closing: str = ""

    @classmethod
    def of(cls, lines: Iterable[str], least: float) -> Self:
        """Return those that occur more than `least` times in a text, where each is usual."""
        counts: dict[Place, Counter[str]] = {
            "opening": Counter(),
            "inner": Counter(),
            "closing": Counter(),
        }
        for line in lines:
            for match, place in _places(line):
                counts[place][match[0]] += 1
        total = counts["opening"] + counts["inner"] + counts["closing"]
        own_marks = {
            place: "".join(
                mark
                for mark, times in count.most_common()
                if total[mark] > least and times >= _OWN_SHARE * total[mark]
            )
            for place, count in counts.items()
        }
        return cls(**own_marks)

    def written(self, text: str) -> str:
        """Return a text with each mark that the training text hardly has as that text writes it."""
        if not any(self) or _KINDS.keys().isdisjoint(text):
            return text
        pieces = list[str]()
        end = 0
        for match, place in _places(text):
            pieces += text[end : match.start()], self._written(match, place)
            end = match.end()
        return "".join((*pieces, text[end:]))

    def _written(self, match: re.Match[str], place: Place) -> str:
        mark = match[0]
        in_place: str = getattr(self, place)
        if mark in in_place:
            return mark
        if mark in PAUSES and place == "inner":
            return f" {self._like(mark, 'dash', 'closing')} "
        kind = _KINDS[mark]
        if kind == "hyphen" and _stands_alone(match):
            kind = "dash"
        return self._like(mark, kind, place)

    def _like(self, mark: str, kind: Kind, place: Place) -> str:
        """Return what the text has for a mark, itself if there is nothing of its kind."""
        elsewhere = self.opening + self.closing + self.inner
        if kind == "single" and place == "inner":
            elsewhere = "".join(other for other in elsewhere if other in APOSTROPHES)
        candidates = _of_kind(kind, getattr(self, place))
        if not candidates:
            candidates = mark if mark in elsewhere else _of_kind(kind, elsewhere)
        if not candidates and kind in ("dash", "hyphen"):
            candidates = _of_kind("hyphen" if kind == "dash" else "dash", elsewhere)
        return candidates[:1] or mark


def _of_kind(kind: Kind, marks: str) -> str:
    return "".join(mark for mark in marks if _KINDS[mark] == kind)


def _places(text: str) -> Iterator[tuple[re.Match[str], Place]]:
    """Yield the marks of a text, each with its place, for which those before it are counted."""
    doubles = 0
    singles = 0  # but for those within words
    for match in _mark().finditer(text):
        kind = _KINDS[match[0]]
        is_begun = (doubles if kind == "double" else singles) % 2 == 1
        yield match, _place_of(match, is_begun)
        doubles += kind == "double"
        singles += kind == "single" and not all(map(is_in_word, _neighbours(match)))


def places_of_doubles(text: str) -> Iterator[tuple[re.Match[str], Place]]:
    """Yield the double quotation marks of a text, each with its place."""
    return ((match, place) for match, place in _places(text) if match[0] in DOUBLE_MARKS)


def _place_of(match: re.Match[str], is_begun: bool) -> Place:
    """Return where a mark is: brackets by their category, others by what is beside them.

    What stands between words, or between spaces, closes a quotation that `is_begun`. Quotation
    marks that open or close by their category do so in scripts without spaces, and where they have
    a space on both sides, as in French.
    """
    before, after = _neighbours(match)
    category = unicodedata.category(match[0])
    if category in ("Ps", "Pe"):
        return "opening" if category == "Ps" else "closing"
    is_inner = is_in_word(before) and is_in_word(after)
    is_alone = not before.strip() and not is_in_word(after)
    if is_inner or is_alone:
        return _place_between_likes(match, is_inner, is_begun)
    if not before.strip():
        return "opening"
    may_open = before in OPENING or before in DASHES or before in APOSTROPHES or before not in _ENDS
    begins = is_in_word(after) or (after in OPENING and after not in _STRAIGHT and after != "")
    if may_open and begins and not is_in_word(before):
        return "opening"
    is_apostrophe = match[0] in APOSTROPHES and is_in_word(before) and not is_begun
    return "inner" if is_apostrophe else "closing"


def _place_between_likes(match: re.Match[str], is_inner: bool, is_begun: bool) -> Place:
    """Return the place of a mark within a word, or apart from words on both sides."""
    before, after = _neighbours(match)
    category = unicodedata.category(match[0])
    is_in_unspaced_text = is_inner and not (is_spaced(before) and is_spaced(after))
    if category in ("Pi", "Pf") and (is_in_unspaced_text or not is_inner):
        return "opening" if category == "Pi" else "closing"
    if _KINDS[match[0]] == "double":
        return "closing" if is_begun else "opening"
    if is_inner:
        return "inner"
    return "closing" if not after.strip() else "opening"


def _stands_alone(match: re.Match[str]) -> bool:
    before, after = _neighbours(match)
    return not before.strip() and not after.strip()


def _neighbours(match: re.Match[str]) -> tuple[str, str]:
    """Return the characters beside a mark, "" at an end of the text."""
    start = max(0, match.start() - 1)
    return match.string[start : match.start()], match.string[match.end() : match.end() + 1]
