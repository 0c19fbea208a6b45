"""Romanization of words in scripts whose consonants carry a vowel, by Unicode's names of letters.

Unicode names the letters of Indic scripts by their sounds (DEVANAGARI LETTER KA, VOWEL SIGN II). A
word spelled by these names, with the inherent vowel left out before a vowel sign, a virama and
the end of the word, and with long letters written once, reads as people write it in Latin letters.
"""

import unicodedata
from functools import cache

from seq2seq.names.sounds import Link, Unit, units_of

_VOWELS = frozenset("aeiou")
_NASAL = {"ANUSVARA": "n", "CANDRABINDU": "n", "VISARGA": "h"}
_LONG = {"II": "ee", "UU": "oo"}  # spelled so in English


def romanize(word: str) -> list[list[Link]]:
    """Return the usual spellings of a word, as alignments; none in other scripts."""
    units = units_of(word)
    spelled = [_letters(unit, units[n + 1 :]) for n, unit in enumerate(units)]
    if not all(map(is_indic, units)) or not any(spelled):
        return []
    usual = [Link(letters, unit) for letters, unit in zip(spelled, units, strict=True)]
    english = [link._replace(chunk=_lengthen(link)) for link in usual]
    return [usual] if english == usual else [usual, english]


@cache
def _name(character: str) -> tuple[str, ...]:
    return tuple(unicodedata.name(character, "").split())


@cache
def script_name(character: str) -> str:
    """Return the name of a character without its script, such as "VOWEL SIGN AA"."""
    return " ".join(_name(character)[1:])


@cache
def is_indic(unit: Unit) -> bool:
    """Return whether a unit belongs to a script that has a virama."""
    script = _name(unit[0])[:1]
    try:
        return bool(script) and bool(unicodedata.lookup(f"{script[0]} SIGN VIRAMA"))
    except KeyError:
        return False


def _letters(unit: Unit, following: list[Unit]) -> str:
    name = _name(unit[0])
    if not name:
        return ""
    for mark, letters in _NASAL.items():
        if mark in name:
            return letters if following else ""
    letters = name[-1].lower()
    inherent = letters.endswith("a") and not set(letters) <= _VOWELS
    if inherent and (
        (len(unit) > 1 and _name(unit[-1])[-1:] == ("VIRAMA",)) or _drops_vowel(following)
    ):
        letters = letters[:-1]
    if letters.startswith("c"):
        letters = "ch" + letters[1:].removeprefix("h")  # Unicode's C is English ch
    return _once(letters)


def _drops_vowel(following: list[Unit]) -> bool:
    """Return whether a consonant has no inherent vowel before these units."""
    if not following:
        return True
    return {"VOWEL", "SIGN"} <= set(_name(following[0][0]))


def _once(letters: str) -> str:
    """Write repeated letters once."""
    return "".join(c for n, c in enumerate(letters) if n == 0 or c != letters[n - 1])


def _lengthen(link: Link) -> str:
    for name, letters in _LONG.items():
        if name in _name(link.unit[0]):
            return letters
    return link.chunk
