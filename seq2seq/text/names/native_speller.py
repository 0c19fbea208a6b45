"""Spelling of names that the target language has of its own, in scripts with a virama.

A noisy channel: the spelling y of a name x maximises

    log P(x | y) + log P(y) - penalties,

where P(y) is a 4-gram model of the target's words, to a power, and P(x | y) the product of the
letters that each unit is romanized as, given its neighbours. Unicode's names of letters say how
they sound. The penalties are for units that names have less often than other words, as they come
with loan words and endings: retroflex letters, vowels of English, and long vowels in some places.
The weights were fitted to spellings of 172 Indian names; docs/results/names.md has what each part
gives on others.
"""

import json
import math
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import NamedTuple

from seq2seq.text.names.sounds import MAX_LETTERS, Unit, ends_stem, units_of

BEAM = 60
NAME_WEIGHT = 3.0  # of a name, relative to another word
ALTERNATIVES = 30  # spellings whose probabilities sum to 1
_ALPHABET = 100  # units, for smoothing
_FOURGRAM = 0.36  # weight of log P(y)
_CHANNEL = 1.27  # weight of log P(x | y)
_RETROFLEX = {"T": 2.9, "D": 2.9, "N": 1.6, "L": 2.1, "S": -0.5}  # by the letter that is doubled
_LONG_VOWEL = 2.3
_ENGLISH_VOWEL = 2.8
_INITIAL_A = 1.57  # long a, in the first letter
_INNER_A = 0.8  # long a, after the first syllable
_INHERENT = 0.8  # probability that an inherent vowel is written
_FINAL_INHERENT = 0.005  # the same for that of the last letter
_USUAL = 0.3  # least probability of the second romanization of a unit
_ROMANIZATION = json.loads(Path(__file__).with_name("romanization.json").read_text("utf-8"))
_VOWELS: Mapping[str, dict[str, float]] = _ROMANIZATION["vowels"]
_CONSONANTS: Mapping[str, dict[str, float]] = _ROMANIZATION["consonants"]
_NASALS = ("SIGN ANUSVARA", "SIGN CANDRABINDU")
_LABIALS = ("P", "PH", "B", "BH", "M")
_JOINERS = {"\u200c", "\u200d"}
START = "<s>"
END = "</s>"
Symbol = Hashable
History = tuple[Symbol, ...]


class NgramModel:
    """Probabilities of symbols given the `order - 1` symbols before.

    A symbol x that follows a history h with T distinct successors and n occurrences has

        P(x | h) = (count(h x) + T * P(x | h')) / (n + T),

    where h' is the history without its first symbol; below unigrams is 1 / `size`.
    """

    def __init__(self, order: int, size: int) -> None:
        self.order = order
        self._size = size
        self._counts: dict[History, dict[Symbol, float]] = defaultdict(dict)
        self._totals: dict[History, float] = {}
        self._probs: dict[tuple[History, Symbol], float] = {}

    @property
    def start(self) -> History:
        """Return the history of the first symbol."""
        return (START,) * (self.order - 1)

    def add(self, symbols: Sequence[Symbol], weight: float = 1.0) -> None:
        """Count the n-grams of a sequence, its end included."""
        padded = (*self.start, *symbols, END)
        for end in range(self.order - 1, len(padded)):
            symbol = padded[end]
            for start in range(end - self.order + 1, end + 1):
                row = self._counts[padded[start:end]]
                row[symbol] = row.get(symbol, 0.0) + weight
        self._totals = {}
        self._probs = {}

    def prob(self, history: History, symbol: Symbol) -> float:
        """Return P(symbol | history) for a history of `order - 1` symbols or fewer."""
        value = self._probs.get((history, symbol))
        if value is None:
            value = self.prob(history[1:], symbol) if history else 1.0 / self._size
            if row := self._counts.get(history):
                successors = row.get(symbol, 0.0) + len(row) * value
                value = successors / (self._total(history, row) + len(row))
            self._probs[history, symbol] = value
        return value

    def _total(self, history: History, row: Mapping[Symbol, float]) -> float:
        """Return the sum of a row, which is added up once."""
        total = self._totals.get(history)
        if total is None:
            total = self._totals[history] = sum(row.values())
        return total

    def next(self, history: History, symbol: Symbol) -> History:
        """Return the history after a symbol."""
        return (*history, symbol)[1 - self.order :] if self.order > 1 else ()

    def log_prob(self, symbols: Sequence[Symbol]) -> float:
        """Return the log-probability of a sequence, its end included."""
        history = self.start
        total = 0.0
        for symbol in (*symbols, END):
            total += math.log(self.prob(history, symbol))
            history = self.next(history, symbol)
        return total


def normalized(scored: Iterable[tuple[str, float]], count: int) -> dict[str, float]:
    """Return the probabilities of the `count` strings with the best scores, best first."""
    scores: dict[str, float] = {}
    for text, score in scored:
        scores[text] = max(scores.get(text, -math.inf), score)
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
    if not best or best[0][1] == -math.inf:
        return {}
    weights = {text: math.exp(score - best[0][1]) for text, score in best}
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}


class _Partial(NamedTuple):
    """A partial spelling; the letters of its last unit are scored with the next one."""

    units: tuple[Unit, ...]
    letters: str  # romanization of the last unit


class NativeSpeller:
    """Spells names, given the words of the target."""

    def __init__(self, words: Iterable[str], names: Iterable[str] = ()) -> None:
        """`names`: some in the target's script, which count more than words."""
        self._fourgrams = NgramModel(4, _ALPHABET)
        units: set[Unit] = set()
        weighted = chain(zip(words, repeat(1.0)), zip(names, repeat(NAME_WEIGHT)))
        for word, weight in weighted:
            spelling = units_of(word)
            if all(map(is_indic, spelling)):
                self._fourgrams.add(spelling, weight)
                units.update(unit for unit in spelling if not _JOINERS & set(unit))
        self._units: dict[str, list[Unit]] = {}
        for unit in sorted(units):
            with_vowel = {f"{letters}a" for letters in _romanized(_sound_of(unit).consonant)}
            for letters in {*letters_of(unit, None), *(with_vowel if ends_stem(unit) else ())}:
                self._units.setdefault(letters, []).append(unit)

    def __bool__(self) -> bool:
        """Return whether there are words of such a script."""
        return bool(self._units)

    def spellings(self, name: str) -> dict[str, float]:
        """Return the best spellings of a lower-case name, if any, with their probabilities."""
        beams: list[dict[_Partial, float]] = [{} for _ in range(len(name) + 1)]
        beams[0][_Partial((), "")] = 0.0
        for at, beam in enumerate(beams):
            best = sorted(beam.items(), key=lambda item: (-item[1], item[0].units))
            for partial, score in best[:BEAM]:
                for unit, end in self._next_units(name, at):
                    total = score + self._extension(partial, unit)
                    longer = _Partial((*partial.units, unit), name[at:end])
                    if total > beams[end].get(longer, -math.inf):
                        beams[end][longer] = total
        ends = beams[-1].items()
        spellings = (("".join(end.units), score + self._extension(end, END)) for end, score in ends)
        return normalized(spellings, ALTERNATIVES)

    def _next_units(self, name: str, start: int) -> Iterator[tuple[Unit, int]]:
        """Yield the units that the next letters of a name may romanize, with the end of these."""
        for end in range(start + 1, min(start + MAX_LETTERS, len(name)) + 1):
            for unit in self._units.get(name[start:end], ()):
                yield unit, end

    def romanizations(self, word: str) -> list[str]:
        """Return the usual letters of a word, such as "dipali" and "deepalee", if it is Indic."""
        units = units_of(word)
        if not all(map(is_indic, units)):
            return []
        usual: list[str] = []
        second: list[str] = []
        for unit, following in zip(units, [*units[1:], None], strict=True):
            probs = letters_of(unit, following)
            best = sorted(probs, key=lambda text: (-probs[text], text)) or [""]
            usual.append(best[0])
            second.append(best[1] if len(best) > 1 and probs[best[1]] >= _USUAL else best[0])
        return list(dict.fromkeys(["".join(usual), "".join(second)]))

    def _extension(self, partial: _Partial, unit: Unit) -> float:
        """Return the score of the last letters and of the next unit, which may be the end."""
        units = partial.units
        history = (START,) * (3 - len(units)) + units[-3:]
        score = _FOURGRAM * math.log(self._fourgrams.prob(history, unit))
        following = None if unit == END else unit
        if not may_follow(units, following):
            return -math.inf
        if not units:
            return score
        if (prob := letters_of(units[-1], following).get(partial.letters, 0.0)) == 0:
            return -math.inf
        return score + _CHANNEL * math.log(prob) - _penalty(units, following)


class _Sound(NamedTuple):
    """Parts of the name of a unit's first character, such as "DEVANAGARI VOWEL SIGN AA"."""

    script: str
    consonant: str  # without its inherent vowel, such as "KH"
    vowel: str  # such as "AA"
    is_sign: bool  # a vowel sign
    is_nasal: bool


@cache
def _sound_of(unit: Unit) -> _Sound:
    script, _, name = unicodedata.name(unit[0], "").partition(" ")
    letter = name.removeprefix("LETTER ")
    is_consonant = name != letter and letter not in _VOWELS and " " not in letter
    consonant = letter[:-1] if is_consonant and letter.endswith("A") else ""
    vowel = letter.removeprefix("VOWEL SIGN ")
    is_nasal = name in _NASALS
    return _Sound(script, consonant, vowel, name.startswith("VOWEL SIGN "), is_nasal)


@cache
def is_indic(unit: Unit) -> bool:
    """Return whether a unit belongs to a script that has a virama."""
    try:
        return bool(unicodedata.lookup(f"{_sound_of(unit).script} SIGN VIRAMA"))
    except KeyError:
        return False


def may_follow(units: Sequence[Unit], following: Unit | None) -> bool:
    """Return whether a spelling may continue with a unit, or end (None): a sign needs a letter.

    A letter without a vowel of its own needs a consonant.
    """
    has_vowel = bool(units) and ends_stem(units[-1])
    if following is None:
        return has_vowel
    sound = _sound_of(following)
    if sound.is_sign:
        return has_vowel and bool(_sound_of(units[-1]).consonant)
    return has_vowel or bool(sound.consonant) if units else not sound.is_nasal


@cache
def letters_of(unit: Unit, following: Unit | None) -> dict[str, float]:
    """Return the probability of each romanization of a unit, given the unit that follows it."""
    sound = _sound_of(unit)
    if sound.is_nasal:
        if following is None:
            return {"n": 0.3, "m": 0.3}
        is_labial = _sound_of(following).consonant in _LABIALS
        return {"m": 0.9, "n": 0.1} if is_labial else {"n": 0.98, "m": 0.02}
    if vowel := _VOWELS.get(sound.vowel):
        return vowel
    consonant = _romanized(sound.consonant)
    if not ends_stem(unit) or (following is not None and _sound_of(following).is_sign):
        return consonant
    share = _FINAL_INHERENT if following is None else _INHERENT
    return {
        letters + vowel: prob * part
        for letters, prob in consonant.items()
        for vowel, part in (("a", share), ("", 1 - share))
    }


def _romanized(consonant: str) -> dict[str, float]:
    """Return the letters of a consonant by its name; doubled ones are retroflex."""
    once = "".join(letter for letter, _ in groupby(consonant.lower()))
    return _CONSONANTS.get(consonant, {once: 1.0}) if consonant else {}


def _penalty(units: tuple[Unit, ...], following: Unit | None) -> float:
    """Return the penalty of the last unit, in nats."""
    _, consonant, vowel, *_ = _sound_of(units[-1])
    if consonant:
        is_doubled = consonant[1:2] == consonant[0]
        return _RETROFLEX.get(consonant[0], 0.0) if is_doubled else 0.0
    if vowel.startswith("CANDRA "):
        return _ENGLISH_VOWEL
    if vowel == "AA" and len(units) == 1:
        return _INITIAL_A
    if following is None:
        return 0.0
    if vowel == "AA":
        return _INNER_A if len(units) > 2 else 0.0
    return _LONG_VOWEL if vowel in ("II", "UU") else 0.0
