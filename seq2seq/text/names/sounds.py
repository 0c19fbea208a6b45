"""Alignment of a source word with the characters of a target word that sounds like it.

A target word is a sequence of units, each a letter with the marks that belong to it. Each unit
emits zero to MAX_LETTERS letters of the source word, monotonically. The emission probabilities are
estimated by Viterbi EM, which starts from the names that Unicode gives to letters.
"""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby, takewhile
from typing import NamedTuple

MAX_LETTERS = 4  # most letters of the source word that one unit emits
_JOINERS = "\u200c\u200d"
_JOINING = ("VIRAMA", "NUKTA")  # last words of the names of marks that belong to a unit
_VOWELS = frozenset("aeiouy")
_PRIOR_COUNT = 2.0  # pseudo-count of the prior for each unit
_RARE_CHUNK = 1e-4  # prior of a letter unlike the unit, divided by 26 for each further one

Unit = str
Chunk = str


class Link(NamedTuple):
    """A unit of the target word and the letters of the source word aligned to it."""

    chunk: Chunk
    unit: Unit


def units_of(word: str) -> list[Unit]:
    """Split a word of the target script into units."""
    units: list[Unit] = []
    for character in word:
        if units and (_joins(character) or units[-1][-1] in _JOINERS):
            units[-1] += character
        else:
            units.append(character)
    return units


def starts_unit(character: str) -> bool:
    """Return whether an ending may start with this character: a letter, not a dependent mark."""
    return unicodedata.category(character)[0] == "L"


def ends_stem(unit: Unit) -> bool:
    """Return whether a stem may end with a unit: not one without a vowel of its own."""
    return not _joins(unit[-1]) or unicodedata.name(unit[-1], "").endswith("NUKTA")


@cache
def _joins(character: str) -> bool:
    return character in _JOINERS or unicodedata.name(character, "").endswith(_JOINING)


@cache
def _consonants(letters: str) -> str:
    return "".join(letter for letter, _ in groupby(letters) if letter not in _VOWELS)


def _is_alike(chunk: Chunk, sound: str) -> bool:
    """Return whether letters have the consonants of a letter's name, or those that it begins with.

    Unicode calls Devanagari letters `ka` and `kha`, but Georgian ones `an` and `ban`.
    """
    return _consonants(chunk) == _consonants(sound) or chunk == _initial(sound)


@cache
def _initial(sound: str) -> str:
    """Return the vowels or the consonants with which the name of a letter begins."""
    is_vowel = sound[0] in _VOWELS
    return "".join(takewhile(lambda letter: (letter in _VOWELS) == is_vowel, sound))


class SoundModel:
    """Emission probabilities of letters given a unit."""

    def __init__(self) -> None:
        self._counts: dict[Unit, Counter[Chunk]] = {}
        self._log_probs: dict[tuple[Chunk, Unit], float] = {}

    def fit(self, pairs: Iterable[tuple[str, Sequence[Unit]]]) -> None:
        """Replace the counts by those of the best alignments of pairs under the present ones."""
        counts: dict[Unit, Counter[Chunk]] = defaultdict(Counter)
        for word, units in pairs:
            for link in self.align(word, units) or ():
                counts[link.unit][link.chunk] += 1
        self._counts = dict(counts)
        self._log_probs = {}

    def log_prob(self, chunk: Chunk, unit: Unit) -> float:
        """Return the log-probability of letters given a unit, smoothed by the prior."""
        value = self._log_probs.get((chunk, unit))
        if value is None:
            name = unicodedata.name(unit[0], "")  # such as "DEVANAGARI LETTER KA"
            sound = name.split()[-1].lower() if name and not _joins(unit[0]) else ""
            is_alike = _is_alike(chunk, sound) if sound else not chunk
            prior = 0.25 * is_alike + _RARE_CHUNK / 26.0 ** max(0, len(chunk) - 1)
            counts = self._counts.get(unit)
            if counts:
                prior = counts[chunk] + _PRIOR_COUNT * prior
                prior /= counts.total() + _PRIOR_COUNT
            value = self._log_probs[chunk, unit] = math.log(prior)
        return value

    def prefix_scores(self, word: str, units: Sequence[Unit]) -> list[float]:
        """Return the log-probability of the word given the first n units, for n from 0 on."""
        return [column.get(len(word), (-math.inf, 0))[0] for column in self._columns(word, units)]

    def align(self, word: str, units: Sequence[Unit]) -> list[Link] | None:
        """Return the best alignment of a word with all units, or None if there is none."""
        columns = self._columns(word, units)
        end = len(word)
        if end not in columns[-1]:
            return None
        links = []
        for unit, column in zip(reversed(units), reversed(columns), strict=False):
            start = column[end][1]
            links.append(Link(word[start:end], unit))
            end = start
        return links[::-1]

    def _columns(self, word: str, units: Sequence[Unit]) -> list[dict[int, tuple[float, int]]]:
        """Return, for each number of units, the score and last start of each end in the word."""
        column = {0: (0.0, 0)}
        columns = [column]
        for unit in units:
            extended: dict[int, tuple[float, int]] = {}
            for start, (score, _) in column.items():
                for end in range(start, min(start + MAX_LETTERS, len(word)) + 1):
                    total = score + self.log_prob(word[start:end], unit)
                    if end not in extended or total > extended[end][0]:
                        extended[end] = (total, start)
            column = extended
            columns.append(column)
        return columns
