"""Spelling of names that the target language has of its own, in scripts with a virama.

A noisy channel: the spelling y of a name x maximises

    log P(x | y) + log P(y) - penalties,

where P(y) is the product of a bigram and a 4-gram model of the target's words, each to a power, and
P(x | y) the product of the letters that each unit is romanized as, given its neighbours. Unicode's
names of letters say how they sound. The penalties are for units that names have less often than
other words, as they come with loan words and endings: retroflex letters, the long vowels of some
places, vowels of English. The weights were fitted to spellings of 172 Indian names.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from seq2seq.names.ngrams import END, NgramModel
from seq2seq.names.romanization import is_indic, script_name
from seq2seq.names.sounds import Unit, ends_stem, units_of

BEAM = 60
ALTERNATIVES = 30  # spellings whose probabilities sum to 1
_ALPHABET = 100  # units, for smoothing
_BIGRAM, _FOURGRAM, _CHANNEL = 0.43, 0.36, 1.27  # weights of the models
_RETROFLEX = {"T": 2.9, "D": 2.9, "N": 1.6, "L": 2.1, "S": -0.5}  # by the letter that is doubled
_ENGLISH_VOWEL, _VOWEL_LETTER, _LONG_VOWEL, _FINAL_NASAL = 2.8, 2.3, 2.3, 2.85
_INITIAL_A, _NASAL_A, _INNER_A = 1.57, 0.6, 0.8  # long a, not in the first or last syllable
_SIBILANT_AFTER_A = -2.2  # at the end of a name
_KEEPS_A = 0.8  # probability that an inherent vowel between syllables is written
_MAX_LETTERS = 4  # maximum letters of a unit
_VOWELS: Mapping[str, dict[str, float]] = {
    "A": {"a": 1.0},
    "AA": {"a": 0.9, "aa": 0.1},
    "I": {"i": 0.97, "ee": 0.03},
    "II": {"i": 0.6, "ee": 0.38, "y": 0.02},
    "U": {"u": 0.97, "oo": 0.03},
    "UU": {"u": 0.6, "oo": 0.4},
    "E": {"e": 0.97, "ay": 0.03},
    "AI": {"ai": 0.8, "ay": 0.1, "ei": 0.05, "i": 0.02},
    "O": {"o": 1.0},
    "AU": {"au": 0.8, "ou": 0.1, "ow": 0.05},
    "VOCALIC R": {"ru": 0.5, "ri": 0.5},
    "CANDRA E": {"a": 0.8, "e": 0.1},
    "CANDRA O": {"o": 0.9, "au": 0.05},
}
_CONSONANTS: Mapping[str, dict[str, float]] = {
    "C": {"ch": 1.0},
    "CH": {"chh": 0.6, "ch": 0.4},
    "SS": {"sh": 0.9, "s": 0.1},
    "V": {"v": 0.7, "w": 0.3},
    "PH": {"ph": 0.5, "f": 0.5},
    "J": {"j": 0.9, "z": 0.1},
    "JH": {"jh": 0.7, "z": 0.3},
    "NY": {"n": 1.0},
    "NG": {"ng": 0.5, "n": 0.5},
    "K": {"k": 0.93, "c": 0.05, "q": 0.02},
}
_JOINERS = {"\u200c", "\u200d"}
_LABIALS = ("PA", "PHA", "BA", "BHA", "MA")


class _Partial(NamedTuple):
    """A partial spelling; the letters of its last unit are scored with the next one."""

    units: tuple[Unit, ...]
    letters: str  # romanization of the last unit


class NativeSpeller:
    """Spells names, given the words of the target."""

    def __init__(self, words: Iterable[str]) -> None:
        self._bigrams, self._fourgrams = (NgramModel(order, _ALPHABET) for order in (2, 4))
        units: set[Unit] = set()
        for word in words:
            spelled = units_of(word)
            if all(map(is_indic, spelled)):
                self._bigrams.add(spelled)
                self._fourgrams.add(spelled)
                units.update(unit for unit in spelled if not _JOINERS & set(unit))
        self._units: dict[str, list[Unit]] = {}
        for unit in sorted(units):
            for letters in _possible_letters(unit):
                self._units.setdefault(letters, []).append(unit)

    def __bool__(self) -> bool:
        """Return whether there are words of such a script."""
        return bool(self._units)

    def spellings(self, name: str) -> dict[str, float]:
        """Return the best spellings of a name in lower case with their probabilities, best first.

        There are none if it has letters that no unit is romanized as.
        """
        beams: list[dict[_Partial, float]] = [{} for _ in range(len(name) + 1)]
        beams[0][_Partial((), "")] = 0.0
        for at, beam in enumerate(beams):
            for partial, score in sorted(beam.items(), key=_rank)[:BEAM]:
                for end in range(at + 1, min(at + _MAX_LETTERS, len(name)) + 1):
                    for unit in self._units.get(name[at:end], ()):
                        total = score + self._extension(partial, unit)
                        after = _Partial((*partial.units, unit), name[at:end])
                        if total > beams[end].get(after, -math.inf):
                            beams[end][after] = total
        found: dict[str, float] = {}
        for partial, score in beams[-1].items():
            total, text = score + self._extension(partial, END), "".join(partial.units)
            found[text] = max(found.get(text, -math.inf), total)
        best = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:ALTERNATIVES]
        if not best or best[0][1] == -math.inf:
            return {}
        weights = {text: math.exp(score - best[0][1]) for text, score in best}
        return {text: weight / sum(weights.values()) for text, weight in weights.items()}

    def _extension(self, partial: _Partial, unit: Unit) -> float:
        """Return the score of the last letters and of the next unit, which may be the end."""
        units = partial.units
        score = _BIGRAM * math.log(self._bigrams.prob(_history(units, 1), unit))
        score += _FOURGRAM * math.log(self._fourgrams.prob(_history(units, 3), unit))
        if not units:
            return score if unit != END and starts_word(unit) else -math.inf
        following = None if unit == END else unit
        if not may_follow(units[-1], following):
            return -math.inf
        letters = letters_of(units[-1], len(units) == 1, following)
        if (prob := letters.get(partial.letters, 0.0)) == 0:
            return -math.inf
        return score + _CHANNEL * math.log(prob) - _penalty(units, following)


def _rank(item: tuple[_Partial, float]) -> tuple[float, tuple[Unit, ...]]:
    return -item[1], item[0].units


def _history(units: tuple[Unit, ...], size: int) -> tuple[Unit, ...]:
    return ("<s>",) * (size - len(units)) + units[-size:]


def starts_word(unit: Unit) -> bool:
    """Return whether a unit may start a word: not a sign."""
    return not _is_vowel_sign(unit) and not _is_nasal(unit)


def may_follow(unit: Unit, following: Unit | None) -> bool:
    """Return whether a word may continue so, or end: not after a virama, unless by a consonant."""
    has_vowel = ends_stem(unit)
    if following is None:
        return has_vowel
    if _is_vowel_sign(following):
        return has_vowel and bool(_consonant(unit))
    return has_vowel or bool(_consonant(following))


@cache
def letters_of(unit: Unit, first: bool, following: Unit | None) -> dict[str, float]:
    """Return the probability of each romanization of a unit, given the unit that follows it."""
    if _is_nasal(unit):
        if following is None:
            return {"n": 0.3, "m": 0.3}
        labial = script_name(following[0]).endswith(_LABIALS)
        return {"m": 0.9, "n": 0.1} if labial else {"n": 0.98, "m": 0.02}
    if vowel := _VOWELS.get(_vowel(unit)):
        return vowel
    consonant = _romanized(_consonant(unit))
    if not ends_stem(unit) or (following is not None and _is_vowel_sign(following)):
        return consonant
    share = _KEEPS_A
    if following is None:
        share = 0.005  # a final inherent vowel is hardly ever written
    elif first or _is_nasal(following):
        share = 0.999
    return {
        letters + vowel: prob * part
        for letters, prob in consonant.items()
        for vowel, part in (("a", share), ("", 1 - share))
    }


def _possible_letters(unit: Unit) -> set[str]:
    contexts = [letters_of(unit, first, None) for first in (False, True)]
    if ends_stem(unit):
        contexts.append({f"{each}a": 1.0 for each in _romanized(_consonant(unit))})
    return {letters for context in contexts for letters in context}


def _romanized(consonant: str) -> dict[str, float]:
    """Return the letters of a consonant by its name; doubled ones are retroflex."""
    if not consonant:
        return {}
    once = "".join(c for n, c in enumerate(consonant) if n == 0 or c != consonant[n - 1])
    return _CONSONANTS.get(consonant, {once.lower(): 1.0})


@cache
def _consonant(unit: Unit) -> str:
    """Return the name of a consonant without its inherent vowel, such as "KH"; "" for others."""
    name = script_name(unit[0])
    if not name.startswith("LETTER ") or name.removeprefix("LETTER ") in _VOWELS:
        return ""
    letters = name.removeprefix("LETTER ")
    return letters[:-1] if letters.endswith("A") and " " not in letters else ""


@cache
def _vowel(unit: Unit) -> str:
    return script_name(unit[0]).removeprefix("VOWEL SIGN ").removeprefix("LETTER ")


@cache
def _is_vowel_sign(unit: Unit) -> bool:
    return script_name(unit[0]).startswith("VOWEL SIGN ")


@cache
def _is_nasal(unit: Unit) -> bool:
    return script_name(unit[0]) in ("SIGN ANUSVARA", "SIGN CANDRABINDU")


def _penalty(units: tuple[Unit, ...], following: Unit | None) -> float:
    """Return the penalty of the last unit, in nats."""
    unit, first = units[-1], len(units) == 1
    if _is_nasal(unit):
        return _FINAL_NASAL if following is None else 0.0
    if consonant := _consonant(unit):
        total = _RETROFLEX.get(consonant[0], 0.0) if consonant[1:2] == consonant[0] else 0.0
        if following is None and len(units) > 2 and _is_inner_a(units[:-1], unit):
            total += _SIBILANT_AFTER_A if consonant in ("S", "SH", "SS") else 0.0
        return total
    vowel = _vowel(unit)
    total = 0.0 if first or _is_vowel_sign(unit) else _VOWEL_LETTER
    if vowel.startswith("CANDRA "):
        return total + _ENGLISH_VOWEL
    if vowel in ("II", "UU"):
        return total + (_LONG_VOWEL if following is not None else 0.0)
    return total + (_penalty_of_a(units, following) if vowel == "AA" else 0.0)


def _penalty_of_a(units: tuple[Unit, ...], following: Unit | None) -> float:
    if len(units) == 1:
        return _INITIAL_A
    if following is None:
        return 0.0
    if _is_nasal(following):
        return _NASAL_A
    return _INNER_A if _is_inner_a(units, following) else 0.0


def _is_inner_a(units: tuple[Unit, ...], following: Unit) -> bool:
    """Return whether the last unit is a long a after the first syllable."""
    if _vowel(units[-1]) != "AA" or len(units) < 2 or _is_nasal(following):
        return False
    return len(units) > 3 or (len(units) == 3 and ends_stem(units[0]))
