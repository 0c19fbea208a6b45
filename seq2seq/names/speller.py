"""Spelling of names in the target's script: a joint n-gram model and a language model of words.

A name x and its spelling y are generated as a sequence of links (chunk of x, unit of y), a joint
n-gram model (Bisani and Ney, 2008) with an n-gram model of the target's words beside it:

    score(x, y) = sum_i log P(link_i | links before) + weight * log P(unit_i | units before)
                        + CHANNEL_WEIGHT * (log P(unit_i | chunk_i) + log P(chunk_i | unit_i)).

The joint model is that of the mined name pairs, most of which are foreign to the target. If the
target's words can be romanized, the probability of a spelling is a mixture, weighted by the
probability that x is foreign, with that of the noisy channel of `native_speller`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from seq2seq.names.native_speller import NativeSpeller
from seq2seq.names.ngrams import END, History, NgramModel, Symbol
from seq2seq.names.romanization import romanize
from seq2seq.names.sounds import (
    MAX_LETTERS,
    Link,
    SoundModel,
    ends_stem,
    starts_unit,
    units_of,
)
from seq2seq.names.vowel_length import VowelLengths

BEAM = 12
RELIABLE, RELIABLE_NATIVE = 0.95, 0.65  # least probabilities of a reliable spelling, by model
_ORDER, _LM_ORDER, _LETTER_ORDER = 3, 5, 4
_LINKS, _UNITS, _LETTERS = 3000, 100, 30  # sizes of the alphabets, for smoothing
_LM_WEIGHT = 1.2
_CHANNEL_WEIGHT = 0.5
_UNSEEN, _SEEN = 0.05, 1.0  # pseudo-counts of an unseen link and of all links, in the channel
_PAIR_WEIGHT = 3.0  # weight of a pair in the language model, relative to another word
_NATIVE_WEIGHT = 0.05
_FOREIGN = 0.1  # prior probability
_MIN_MIXTURE = 0.02  # weight of either model
_ITERATIONS = 4
_ALTERNATIVES = 10  # spellings whose probabilities sum to 1
_MAX_UNITS = 25  # for a chunk


class _PartialSpelling(NamedTuple):
    """A partial spelling: what the models know of it, and its text."""

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
        links_of: dict[Link, float] = defaultdict(float)
        self._sounds = sounds = SoundModel()
        split = [(name, units_of(spelling)) for name, spelling in pairs]
        for _ in range(_ITERATIONS):
            sounds.fit(split)
        aligned: list[list[Link]] = []
        for name, spelled in split:
            self._words.add(spelled, _PAIR_WEIGHT)
            if (links := sounds.align(name, spelled)) is not None:
                aligned.append(links)
                self._foreign.add(links)
                self._foreign_letters.add(name)
                for link in links:
                    links_of[link] += 1.0
        self._lengths = VowelLengths(aligned)
        self._known_words = set(words := list(words))
        self.native = NativeSpeller(words)
        for word in words:
            self._words.add(units_of(word))
            for number, links in enumerate(romanize(word)):
                weight = 0.5 if number else 1.0
                self._native_letters.add("".join(link.chunk for link in links), weight)
                for link in links:
                    links_of[link] += _NATIVE_WEIGHT * weight
        self._channel = _channel(links_of)
        self._units: dict[str, list[str]] = defaultdict(list)
        for chunk, unit in sorted(links_of, key=lambda link: -links_of[link]):
            if len(self._units[chunk]) < _MAX_UNITS:
                self._units[chunk].append(unit)

    def spell(self, name: str) -> tuple[str, bool] | None:
        """Return the best spelling of a name in lower case, and whether it is reliable.

        It is if it is the best whether the name is foreign or not, by a clear margin, and is no
        word of the target, to which the models are biased. Returns None for a name with unknown
        letters.
        """
        as_foreign, as_native = self.as_foreign(name), self.native.spellings(name)
        foreign = 1.0 if not as_native else self._foreign_probability(name) if as_foreign else 0.0
        found = {
            text: foreign * as_foreign.get(text, 0.0) + (1 - foreign) * as_native.get(text, 0.0)
            for text in {**as_native, **as_foreign}
        }
        if not found:
            return None
        text = max(found, key=lambda each: (found[each], each))
        reliable = text not in self._known_words and as_foreign.get(text, 0.0) >= RELIABLE
        if as_native:
            reliable = reliable and as_native.get(text, 0.0) >= RELIABLE_NATIVE
        return text, reliable

    def as_foreign(self, name: str) -> dict[str, float]:
        """Return the best spellings of a name in lower case by the joint model, best first.

        There are none if its letters are unknown.
        """
        beams: list[dict[_PartialSpelling, float]] = [{} for _ in range(len(name) + 1)]
        start = _PartialSpelling(self._foreign.start, self._words.start, "")
        beams[0][start] = 0.0
        for at, beam in enumerate(beams):
            for state, score in self._best(beam):  # units without letters
                self._extend(beam, state, score, "")
            kept = self._best(beam)
            beams[at] = dict(kept)
            for state, score in kept:
                for end in range(at + 1, min(at + MAX_LETTERS, len(name)) + 1):
                    self._extend(beams[end], state, score, name[at:end])
        found: dict[str, float] = {}
        for state, score in beams[-1].items():
            total = score + self._score(state, END, END)
            text = self._with_lengths(name, state.text)
            found[text] = max(found.get(text, -math.inf), total)
        best = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_ALTERNATIVES]
        weights = {text: math.exp(score - best[0][1]) for text, score in best}
        return {text: weight / sum(weights.values()) for text, weight in weights.items()}

    def _with_lengths(self, name: str, text: str) -> str:
        links = self._sounds.align(name, units_of(text))
        return text if links is None else self._lengths.apply(links)

    def _best(self, beam: Mapping[_PartialSpelling, float]) -> list[tuple[_PartialSpelling, float]]:
        return sorted(beam.items(), key=lambda each: (-each[1], each[0].text))[:BEAM]

    def _extend(
        self,
        beam: dict[_PartialSpelling, float],
        state: _PartialSpelling,
        score: float,
        chunk: str,
    ) -> None:
        for unit in self._units.get(chunk, []):
            if not _may_follow(state.text, unit):
                continue
            link = Link(chunk, unit)
            total = score + self._score(state, link, unit) + self._channel[link]
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


def _may_follow(text: str, unit: str) -> bool:
    """Return whether a unit may extend a spelling: a vowel sign needs a letter with a vowel."""
    return starts_unit(unit[0]) or (bool(text) and ends_stem(text[-1]))


def _channel(counts: Mapping[Link, float]) -> dict[Link, float]:
    """Return the weighted log-probability of each link given its chunk, and given its unit."""
    chunks: dict[str, float] = defaultdict(float)
    units: dict[str, float] = defaultdict(float)
    for (chunk, unit), count in counts.items():
        chunks[chunk] += count
        units[unit] += count
    return {
        link: _CHANNEL_WEIGHT
        * sum(
            math.log((count + _UNSEEN) / (total + _SEEN))
            for total in (chunks[link.chunk], units[link.unit])
        )
        for link, count in counts.items()
    }
