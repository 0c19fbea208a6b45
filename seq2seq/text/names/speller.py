"""Spelling of names in the target's script: a joint n-gram model and a language model of words.

A name x and its spelling y are generated as a sequence of links (chunk of x, unit of y), a joint
n-gram model (Bisani and Ney, 2008) with an n-gram model of the target's words beside it:

    score(x, y) = sum_i log P(link_i | links before) + log P(chunk_i | unit_i)
                        + weight * log P(unit_i | units before),

where P(chunk | unit) is that of the alignment (`sounds`), by which no letter is dropped lightly.

The joint model is that of the mined name pairs, most of which are foreign to the target. If the
script of the target has a virama, the probability of a spelling is a mixture, weighted by the
probability that x is foreign, with that of the noisy channel of `native_speller`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from seq2seq.text.names.native_speller import (
    END,
    History,
    NativeSpeller,
    NgramModel,
    Symbol,
    is_indic,
    may_follow,
    normalized,
)
from seq2seq.text.names.sounds import (
    MAX_LETTERS,
    Link,
    SoundModel,
    ends_stem,
    starts_unit,
    units_of,
)

BEAM = 12
# least probabilities of a reliable spelling: by two models, by the joint one, of a listed name
RELIABLE = 0.8
RELIABLE_ALONE = 0.95
RELIABLE_LISTED = 0.95
_LISTED = 8.0  # factor of a listed name
_ORDER = 3
_LM_ORDER = 5
_LETTER_ORDER = 4
_LINKS = 3000  # sizes of the alphabets, for smoothing
_UNITS = 100
_LETTERS = 30
_LM_WEIGHT = 0.6
_NAME_WEIGHT = 3.0  # of a name in the language model, relative to another word
_SECOND = 0.5  # weight of a word's second romanization
_FOREIGN = 0.1  # prior probability
_MIN_MIXTURE = 0.02  # weight of either model
_ITERATIONS = 4
_ALTERNATIVES = 10  # spellings whose probabilities sum to 1
_MAX_UNITS = 25  # for a chunk


class _PartialSpelling(NamedTuple):
    links: History
    units: History
    text: str


class Speller:
    """Spells names, given pairs of names and the frequent words of the target."""

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        words: Sequence[str],
        names: Sequence[str] = (),
        loans: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`pairs`: a name in lower case and its spelling; `names`: in the target's script.

        `loans`: further words of the source and their spellings, which are transliterated alike.
        """
        self._words = frozenset(words)
        self._listed = frozenset(names)
        self._sounds = SoundModel()
        self.native = NativeSpeller(words, names)
        self._units: dict[str, list[str]] = defaultdict(list)
        self._links, foreign_letters = self._learn_pairs([*pairs, *loans])
        self._spellings = NgramModel(_LM_ORDER, _UNITS)
        native_letters = NgramModel(_LETTER_ORDER, _LETTERS)
        weighted = [(word, 1.0) for word in words]
        weighted += [(name, _NAME_WEIGHT) for name in (*(name for _, name in pairs), *names)]
        for text, weight in weighted:
            self._spellings.add(units_of(text), weight)
        for text in (*words, *names):
            for number, letters in enumerate(self.native.romanizations(text)):
                native_letters.add(letters, _SECOND if number else 1.0)
        self._letters = foreign_letters, native_letters

    def _learn_pairs(self, pairs: Sequence[tuple[str, str]]) -> tuple[NgramModel, NgramModel]:
        """Align the pairs; return models of links, and of the letters of foreign names."""
        link_model = NgramModel(_ORDER, _LINKS)
        letter_model = NgramModel(_LETTER_ORDER, _LETTERS)
        split = [(name, units_of(spelling)) for name, spelling in pairs]
        for _ in range(_ITERATIONS):
            self._sounds.fit(split)
        counts = Counter[Link]()
        for name, units in split:
            if (links := self._sounds.align(name, units)) is not None:
                link_model.add(links)
                letter_model.add(name)
                counts.update(links)
        for (chunk, unit), _ in counts.most_common():
            if len(self._units[chunk]) < _MAX_UNITS:
                self._units[chunk].append(unit)
        return link_model, letter_model

    def spell(self, name: str) -> tuple[str, bool] | None:
        """Return the best spelling of a name in lower case, and whether it is reliable.

        It is if both models give it a high probability, or the joint one alone a higher one, and it
        is no word of the target, to which they are biased, or if it is listed and clearly the best.
        None for unknown letters.
        """
        as_foreign = self.as_foreign(name)
        as_native = self.native.spellings(name)
        spellings = self._mixture(name, as_foreign, as_native)
        if not spellings:
            return None
        text = max(spellings, key=lambda spelling: (spellings[spelling], spelling))
        if text in self._listed and spellings[text] >= RELIABLE_LISTED:
            return text, True
        is_certain = as_foreign.get(text, 0.0) >= (RELIABLE if as_native else RELIABLE_ALONE)
        if as_native:
            is_certain = is_certain and as_native.get(text, 0.0) >= RELIABLE
        return text, is_certain and text not in self._words

    def as_foreign(self, name: str) -> dict[str, float]:
        """Return the best spellings of a lower-case name, if any, by the joint model."""
        beams: list[dict[_PartialSpelling, float]] = [{} for _ in range(len(name) + 1)]
        start = _PartialSpelling(self._links.start, self._spellings.start, "")
        beams[0][start] = 0.0
        for at, beam in enumerate(beams):
            for state, score in self._best(beam):  # units without letters
                self._extend(beam, state, score, "")
            best = self._best(beam)
            beams[at] = dict(best)
            for state, score in best:
                for end in range(at + 1, min(at + MAX_LETTERS, len(name)) + 1):
                    self._extend(beams[end], state, score, name[at:end])
        ends = beams[-1].items()
        spellings = ((end.text, score + self._score(end, END, END)) for end, score in ends)
        return normalized(spellings, _ALTERNATIVES)

    def _best(self, beam: Mapping[_PartialSpelling, float]) -> list[tuple[_PartialSpelling, float]]:
        return sorted(beam.items(), key=lambda item: (-item[1], item[0].text))[:BEAM]

    def _extend(
        self, beam: dict[_PartialSpelling, float], state: _PartialSpelling, score: float, chunk: str
    ) -> None:
        for unit in self._units.get(chunk, []):
            if not _fits(state.text[-2:], unit):
                continue
            link = Link(chunk, unit)
            total = score + self._score(state, link, unit) + self._sounds.log_prob(chunk, unit)
            links = self._links.next(state.links, link)
            units = self._spellings.next(state.units, unit)
            longer = _PartialSpelling(links, units, state.text + unit)
            if total > beam.get(longer, -math.inf):
                beam[longer] = total

    def _score(self, state: _PartialSpelling, link: Symbol, unit: str) -> float:
        prob = self._links.prob(state.links, link)
        return math.log(prob) + _LM_WEIGHT * math.log(self._spellings.prob(state.units, unit))

    def _mixture(
        self, name: str, as_foreign: Mapping[str, float], as_native: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the probabilities of spellings by both models; listed ones weigh more."""
        if as_native and as_foreign:
            foreign = self._foreign_probability(name)
        else:
            foreign = 0.0 if as_native else 1.0
        mixture = {
            text: foreign * as_foreign.get(text, 0.0) + (1 - foreign) * as_native.get(text, 0.0)
            for text in {**as_native, **as_foreign}
        }
        weights = {
            text: prob * (_LISTED if text in self._listed else 1.0)
            for text, prob in mixture.items()
        }
        total = sum(weights.values())
        return {text: weight / total for text, weight in weights.items()}

    def _foreign_probability(self, name: str) -> float:
        """Return the probability that a name is spelled like those of the pairs."""
        foreign_letters, native_letters = self._letters
        odds = foreign_letters.log_prob(name) - native_letters.log_prob(name)
        odds += math.log(_FOREIGN / (1 - _FOREIGN))
        prob = 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))
        return max(_MIN_MIXTURE, min(1 - _MIN_MIXTURE, prob))


@cache
def _fits(text: str, unit: str) -> bool:
    """Return whether a unit may follow the last two characters of a spelling.

    A mark needs a letter with a vowel, and a vowel sign of a script with a virama a consonant.
    """
    if not starts_unit(unit[0]) and not (text and ends_stem(text[-1])):
        return False
    return not is_indic(unit) or may_follow(units_of(text)[-1:], unit)
