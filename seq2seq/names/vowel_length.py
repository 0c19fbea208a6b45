"""Length of the vowels i and u in names, which spelling in Latin letters hardly shows.

The words of an Indic language follow rules of their own for the length of a vowel; names do not.
Given the vowel letters of the source, and whether the vowel ends the word, the length is that of
most names of the training text.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

from seq2seq.names.sounds import Link, Unit

_VOWELS = frozenset("aeiouy")
_LONG = {"I": "II", "U": "UU"}  # ends of the Unicode names of vowels and vowel signs
_DOUBLED = ("ee", "oo")  # long in English


class VowelLengths:
    """Counts of long and short vowels by their letters and place in the name."""

    def __init__(self, names: Iterable[Sequence[Link]]) -> None:
        self._balance: dict[tuple[str, bool], int] = defaultdict(int)  # long ones minus short ones
        for letters in _DOUBLED:
            for final in (False, True):
                self._balance[letters, final] = 1
        for links in names:
            for n, link in enumerate(links):
                if (length := _length(link.unit)) is not None:
                    self._balance[_context(links, n)] += 1 if length else -1

    def apply(self, links: Sequence[Link]) -> str:
        """Return the spelling of a name with the usual length of each vowel."""
        return "".join(self._unit(links, n) for n in range(len(links)))

    def _unit(self, links: Sequence[Link], n: int) -> Unit:
        unit = links[n].unit
        balance = self._balance.get(_context(links, n), 0)
        if _length(unit) is None or balance == 0:
            return unit
        return _other(unit) if (balance > 0) != _length(unit) else unit


def _context(links: Sequence[Link], n: int) -> tuple[str, bool]:
    """Return the vowel letters that a link belongs to, and whether it is the last."""
    name = "".join(link.chunk for link in links)
    start = sum(len(link.chunk) for link in links[:n])
    while start < len(name) and name[start] not in _VOWELS:
        start += 1
    end = start
    while end < len(name) and name[end] in _VOWELS:
        end += 1
    while start and name[start - 1] in _VOWELS:
        start -= 1
    return name[start:end], n == len(links) - 1


@cache
def _length(unit: Unit) -> bool | None:
    """Return True for a long vowel, False for a short one, None for other units."""
    if len(unit) > 1:
        return None
    kind, _, last = unicodedata.name(unit, "").rpartition(" ")
    if not kind.endswith((" VOWEL SIGN", " LETTER")):
        return None
    return False if last in _LONG else True if last in _LONG.values() else None


@cache
def _other(unit: Unit) -> Unit:
    """Return the vowel of the other length, or the unit itself if there is none."""
    head, _, last = unicodedata.name(unit).rpartition(" ")
    other = _LONG.get(last) or last[0]
    try:
        return unicodedata.lookup(f"{head} {other}")
    except KeyError:
        return unit
