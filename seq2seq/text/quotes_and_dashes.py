"""Quotation marks, apostrophes and dashes: keyboards, telephones and books write different ones.

One that a training text hardly has is read as the one that the text has most often for its kind, in
its place: opening before a word, inner within a word, or closing.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple, Self

from seq2seq.text.characters import APOSTROPHES, CLOSING, DASHES, MARKS, OPENING, QUOTES, is_spaced

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
_MARK = re.compile(f"[{re.escape(''.join(_KINDS))}]")


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
            for match in _MARK.finditer(line):
                counts[_place_of(match)][match[0]] += 1
        total = counts["opening"] + counts["inner"] + counts["closing"]
        usual = {
            place: "".join(
                mark
                for mark, times in count.most_common()
                if total[mark] > least and times >= _OWN_SHARE * total[mark]
            )
            for place, count in counts.items()
        }
        return cls(**usual)

    def written(self, text: str) -> str:
        """Return a text with each mark that the training text hardly has as that text writes it."""
        if not any(self) or not _MARK.search(text):
            return text
        return _MARK.sub(self._written, text)

    def _written(self, match: re.Match[str]) -> str:
        mark = match[0]
        place = _place_of(match)
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


def _place_of(match: re.Match[str]) -> Place:
    """Return where a mark is: brackets by their category, others by what is beside them.

    Of two marks `"` that are both alone, or both within words, the first opens and the second
    closes. Quotation marks that open or close by their category do so in scripts without spaces,
    and where they have a space on both sides, as in French.
    """
    before, after = _neighbours(match)
    category = unicodedata.category(match[0])
    if category in ("Ps", "Pe"):
        return "opening" if category == "Ps" else "closing"
    is_inner = _is_in_word(before) and _is_in_word(after)
    is_alone = not before.strip() and not _is_in_word(after)
    if is_inner or is_alone:
        return _place_between_likes(match, is_inner)
    if not before.strip():
        return "opening"
    is_begun = before in OPENING or before in DASHES or before in APOSTROPHES
    may_open = (is_begun or before not in _ENDS) and not _is_in_word(before)
    begins = _is_in_word(after) or (after in OPENING and after not in _STRAIGHT and after != "")
    if may_open and begins:
        return "opening"
    is_apostrophe = match[0] in APOSTROPHES and _is_in_word(before) and not _is_quoted(match)
    return "inner" if is_apostrophe else "closing"


def _is_quoted(match: re.Match[str]) -> bool:
    """Return whether a single quotation mark before has not been closed, so that this one does."""
    earlier = _MARK.finditer(match.string[: match.start()])
    singles = (mark for mark in earlier if _KINDS[mark[0]] == "single")
    return sum(not all(map(_is_in_word, _neighbours(mark))) for mark in singles) % 2 == 1


def _place_between_likes(match: re.Match[str], is_inner: bool) -> Place:
    """Return the place of a mark within a word, or apart from words on both sides."""
    before, after = _neighbours(match)
    category = unicodedata.category(match[0])
    is_in_unspaced_text = is_inner and not (is_spaced(before) and is_spaced(after))
    if category in ("Pi", "Pf") and (is_in_unspaced_text or not is_inner):
        return "opening" if category == "Pi" else "closing"
    if _KINDS[match[0]] == "double":
        earlier = _MARK.findall(match.string[: match.start()])
        count = sum(_KINDS[mark] == "double" for mark in earlier)
        return "closing" if count % 2 else "opening"
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


def _is_in_word(character: str) -> bool:
    return character != "" and unicodedata.category(character)[0] in "LMN"
