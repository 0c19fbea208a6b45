"""Spelling of names in the target's script: a joint n-gram model and a language model of words.

A name x and its spelling y are generated as a sequence of links (chunk of x, unit of y), a joint
n-gram model (Bisani and Ney, 2008) with an n-gram model of the target's words beside it:

    score(x, y) = sum_i log P(link_i | links before) + weight * log P(unit_i | units before).

The joint model is that of the mined name pairs, most of which are foreign to the target. If the
script of the target has a virama, the probability of a spelling is a mixture, weighted by the
probability that x is foreign, with that of the noisy channel of `native_speller`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from seq2seq.names.native_speller import END, History, NativeSpeller, NgramModel, Symbol, normalized
from seq2seq.names.sounds import MAX_LETTERS, Link, SoundModel, ends_stem, starts_unit, units_of

BEAM = 12
RELIABLE, RELIABLE_NATIVE = 0.9, 0.65  # least probabilities of a reliable spelling, by model
_ORDER, _LM_ORDER, _LETTER_ORDER = 3, 5, 4
_LINKS, _UNITS, _LETTERS = 3000, 100, 30  # sizes of the alphabets, for smoothing
_LM_WEIGHT = 1.2
_PAIR_WEIGHT = 3.0  # weight of a pair in the language model, relative to another word
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

    def __init__(self, pairs: Sequence[tuple[str, str]], words: Iterable[str]) -> None:
        """`pairs`: a name in lower case and its spelling."""
        self._foreign = NgramModel(_ORDER, _LINKS)
        self._words = NgramModel(_LM_ORDER, _UNITS)
        self._foreign_letters, self._native_letters = (
            NgramModel(_LETTER_ORDER, _LETTERS) for _ in range(2)
        )
        counts = Counter[Link]()
        sounds = SoundModel()
        split = [(name, units_of(spelling)) for name, spelling in pairs]
        for _ in range(_ITERATIONS):
            sounds.fit(split)
        for name, units in split:
            self._words.add(units, _PAIR_WEIGHT)
            if (links := sounds.align(name, units)) is not None:
                self._foreign.add(links)
                self._foreign_letters.add(name)
                counts.update(links)
        self._known_words = set(words := list(words))
        self.native = NativeSpeller(words)
        for word in words:
            self._words.add(units_of(word))
            if letters := self.native.romanized(word):
                self._native_letters.add(letters)
        self._units: dict[str, list[str]] = defaultdict(list)
        for (chunk, unit), _ in counts.most_common():
            if len(self._units[chunk]) < _MAX_UNITS:
                self._units[chunk].append(unit)

    def spell(self, name: str) -> tuple[str, bool] | None:
        """Return the best spelling of a name in lower case, and whether it is reliable.

        It is if it is the best whether the name is foreign or not, by a clear margin, and is no
        word of the target, to which the models are biased. None for unknown letters.
        """
        as_foreign, as_native = self.as_foreign(name), self.native.spellings(name)
        foreign = 1.0 if not as_native else self._foreign_probability(name) if as_foreign else 0.0
        spellings = {
            text: foreign * as_foreign.get(text, 0.0) + (1 - foreign) * as_native.get(text, 0.0)
            for text in {**as_native, **as_foreign}
        }
        if not spellings:
            return None
        text = max(spellings, key=lambda spelling: (spellings[spelling], spelling))
        reliable = text not in self._known_words and as_foreign.get(text, 0.0) >= RELIABLE
        if as_native:
            reliable = reliable and as_native.get(text, 0.0) >= RELIABLE_NATIVE
        return text, reliable

    def as_foreign(self, name: str) -> dict[str, float]:
        """Return the best spellings of a lower-case name, if any, by the joint model."""
        beams: list[dict[_PartialSpelling, float]] = [{} for _ in range(len(name) + 1)]
        start = _PartialSpelling(self._foreign.start, self._words.start, "")
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
            if not starts_unit(unit[0]) and not (state.text and ends_stem(state.text[-1])):
                continue  # a sign needs a letter with a vowel
            link = Link(chunk, unit)
            total = score + self._score(state, link, unit)
            links = self._foreign.next(state.links, link)
            after = _PartialSpelling(links, self._words.next(state.units, unit), state.text + unit)
            if total > beam.get(after, -math.inf):
                beam[after] = total

    def _score(self, state: _PartialSpelling, link: Symbol, unit: str) -> float:
        prob = self._foreign.prob(state.links, link)
        return math.log(prob) + _LM_WEIGHT * math.log(self._words.prob(state.units, unit))

    def _foreign_probability(self, name: str) -> float:
        """Return the probability that a name is spelled like those of the pairs."""
        odds = self._foreign_letters.log_prob(name) - self._native_letters.log_prob(name)
        odds += math.log(_FOREIGN / (1 - _FOREIGN))
        prob = 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))
        return max(_MIN_MIXTURE, min(1 - _MIN_MIXTURE, prob))
