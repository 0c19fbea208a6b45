"""Quotation marks, apostrophes and dashes: keyboards, telephones and books write different ones.

One that a training text hardly has is read as the one that the text has most often for its kind, in
its place: opening before a word, inner within a word, or closing.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple, Self

from seq2seq.text.characters import APOSTROPHES, DASHES, OPENING, QUOTES, is_spaced

Kind = Literal["single", "double", "dash"]
Place = Literal["opening", "inner", "closing"]
PAUSES = "\N{EM DASH}\N{HORIZONTAL BAR}"  # between two phrases, also without spaces


def _kind_of(mark: str) -> Kind:
    if mark in DASHES:
        return "dash"
    name = unicodedata.name(mark)
    is_straight = name.removeprefix("FULLWIDTH ") == "QUOTATION MARK"
    return "double" if is_straight or "DOUBLE" in name else "single"


_KINDS = {mark: _kind_of(mark) for mark in (*QUOTES, *APOSTROPHES, *DASHES)}
_MARK = re.compile(f"[{re.escape(''.join(_KINDS))}]")


class QuotesAndDashes(NamedTuple):
    """Marks that a text has in each place, the most frequent one first."""

    opening: str = ""
    inner: str = ""
    closing: str = ""

    @classmethod
    def of(cls, lines: Iterable[str], least: float) -> Self:
        """Return those that occur more than `least` times in a text."""
        counts: dict[Place, Counter[str]] = {
            "opening": Counter(),
            "inner": Counter(),
            "closing": Counter(),
        }
        for line in lines:
            for match in _MARK.finditer(line):
                counts[_place_of(match)][match[0]] += 1
        total = counts["opening"] + counts["inner"] + counts["closing"]
        frequent = {
            place: "".join(mark for mark, _ in count.most_common() if total[mark] > least)
            for place, count in counts.items()
        }
        return cls(**frequent)

    def written(self, text: str) -> str:
        """Return a text with each mark that the training text hardly has as that text writes it."""
        if not any(self) or not _MARK.search(text):
            return text
        return _MARK.sub(self._written, text)

    def _written(self, match: re.Match[str]) -> str:
        place = _place_of(match)
        kind = _KINDS[match[0]]
        if match[0] in getattr(self, place):
            return match[0]
        if match[0] in PAUSES and place == "inner":
            return f" {self._like(match[0], kind, 'closing')} "
        return self._like(match[0], kind, place)

    def _like(self, mark: str, kind: Kind, place: Place) -> str:
        """Return what the text has for a mark, itself if there is nothing of its kind."""
        in_place: str = getattr(self, place)
        elsewhere = "".join(marks for marks in self if marks != in_place)
        is_quote = kind != "dash"
        if is_quote and place == "inner":
            elsewhere = "".join(mark for mark in elsewhere if mark in APOSTROPHES)
        candidates = _of_kind(kind, in_place)
        if not candidates:
            candidates = mark if mark in elsewhere else _of_kind(kind, elsewhere)
        if not candidates and is_quote and place != "inner":
            candidates = _of_kind("double", in_place) + _of_kind("single", in_place)
        return candidates[:1] or mark


def _of_kind(kind: Kind, marks: str) -> str:
    return "".join(mark for mark in marks if _KINDS[mark] == kind)


def _place_of(match: re.Match[str]) -> Place:
    """Return where a mark is: brackets by their category, others by what is beside them.

    Quotation marks that open or close by their category do so in scripts without spaces, and where
    they have a space on both sides, as in French.
    """
    before = match.string[match.start() - 1 : match.start()]
    after = match.string[match.end() : match.end() + 1]
    category = unicodedata.category(match[0])
    if category == "Ps":
        return "opening"
    if category == "Pe":
        return "closing"
    is_inner = _is_in_word(before) and _is_in_word(after)
    is_in_unspaced_text = is_inner and not (is_spaced(before) and is_spaced(after))
    stands_alone = not before.strip() and not _is_in_word(after)
    if category in ("Pi", "Pf") and (is_in_unspaced_text or stands_alone):
        return "opening" if category == "Pi" else "closing"
    if is_inner:
        return "inner"
    follows_word = before.strip() and before not in OPENING and before not in DASHES
    return "closing" if follows_word or not after.strip() else "opening"


def _is_in_word(character: str) -> bool:
    return character != "" and unicodedata.category(character)[0] in "LMN"
