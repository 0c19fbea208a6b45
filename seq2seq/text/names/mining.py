"""Mining of name pairs from parallel text: capitalised words with translations of similar sound.

A source type is a candidate if it occurs capitalised and never in lower case. Each of its
occurrences is compared with every start of every target word of its pair; what follows the start is
a case ending. The sound model and the distribution of endings are learned by Viterbi EM.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from seq2seq.text.names.sounds import SoundModel, ends_stem, starts_unit, units_of
from seq2seq.text.names.words import count_cases, source_words, target_words

MAX_TYPES = 20_000  # the most frequent candidates
MAX_OCCURRENCES = 40  # examined for each candidate, fewer if there are many
_EXAMINED = 40_000  # occurrences in all
_ITERATIONS = (0.9, 1.0, 0.6, 0.4)  # minimum score of a letter in each iteration of EM
_FITTING_TYPES = 2_000  # candidates that all iterations but the last examine
_MIN_SHARE = 0.3  # least share of occurrences with the same stem
_NO_ENDING, _ENDING = 5.0, 0.02  # pseudo-counts


class NamePair(NamedTuple):
    """A name and its spelling in the target's script, without a case ending."""

    stem: str
    occurrences: int  # occurrences of the name in capitals


@dataclass
class _Evidence:
    score: float = 0.0
    endings: list[str] = field(default_factory=list)


class NameMiner:
    """Finds name pairs in parallel text."""

    def __init__(self, src: Sequence[str], tgt: Sequence[str]) -> None:
        self.counts = count_cases(src)
        self.sounds = SoundModel()
        self._endings: Counter[str] = Counter()
        self._occurrences = self._find_occurrences(src, tgt)
        letters = Counter("".join(self._occurrences).lower())
        total = letters.total()
        self._letters = {letter: math.log(n / total) for letter, n in letters.items()}

    def _find_occurrences(
        self, src: Sequence[str], tgt: Sequence[str]
    ) -> Mapping[str, list[set[str]]]:
        """Return the target words beside occurrences of each candidate, by candidate."""
        lower, capitalised = self.counts.lower, self.counts.capitalised
        frequent = (word for word, _ in capitalised.most_common() if len(word) > 1)
        names = list(islice((word for word in frequent if word.lower() not in lower), MAX_TYPES))
        most = max(1, min(MAX_OCCURRENCES, _EXAMINED // max(1, len(names))))
        occurrences: dict[str, list[set[str]]] = {name: [] for name in names}
        for src_line, tgt_line in zip(src, tgt, strict=True):
            texts = (word.text for word in source_words(src_line))
            examined = [
                text for text in texts if text in occurrences and len(occurrences[text]) < most
            ]
            if examined:
                beside = {match[0] for match in target_words(tgt_line)}
                for name in examined:
                    occurrences[name].append(beside)
        return occurrences

    def mine(self) -> dict[str, NamePair]:
        """Return the spelling of each name found."""
        names = list(self._occurrences)
        best: dict[str, tuple[str, _Evidence]] = {}
        for number, least in enumerate(_ITERATIONS, start=1):
            examined = names if number == len(_ITERATIONS) else names[:_FITTING_TYPES]
            best = {}
            for name in examined:
                stems = self._evidence(name).items()
                stem = max(stems, key=lambda item: (item[1].score, item[0]), default=None)
                if stem is not None:
                    matched, beside = len(stem[1].endings), len(self._occurrences[name])
                    fits = stem[1].score / matched > least * len(name)
                    if fits and matched >= _MIN_SHARE * beside:
                        best[name] = stem
            self._fit(best)
        return {
            name: NamePair(stem, self.counts.capitalised[name]) for name, (stem, _) in best.items()
        }

    def _fit(self, best: Mapping[str, tuple[str, _Evidence]]) -> None:
        self.sounds.fit((name.lower(), units_of(stem)) for name, (stem, _) in best.items())
        self._endings = Counter()
        for _, evidence in best.values():
            weight = len(evidence.endings) ** -0.5
            for ending in evidence.endings:
                self._endings[ending] += weight

    def _evidence(self, name: str) -> dict[str, _Evidence]:
        """Return the stems beside a name, each with the best score of each of its occurrences."""
        evidence: dict[str, _Evidence] = defaultdict(_Evidence)
        for words in self._occurrences[name]:
            best: dict[str, tuple[float, str]] = {}
            for word in sorted(words):
                for stem, score in self.stems(name, word):
                    if score > best.get(stem, (0.0, ""))[0]:
                        best[stem] = (score, word[len(stem) :])
            for stem, (score, ending) in best.items():
                evidence[stem].score += score
                evidence[stem].endings.append(ending)
        return evidence

    def stems(self, name: str, word: str) -> list[tuple[str, float]]:
        """Return the starts of a target word that sound like a name, with their scores.

        These are log-probabilities of letters and ending, relative to the letters' own.
        """
        letters = name.lower()
        chance = sum(self._letters.get(letter, -4.0) for letter in letters)
        units = units_of(word)[: 2 * len(letters) + 2]
        stems, end = [], 0
        scores = self.sounds.prefix_scores(letters, units)
        for unit, score in zip(units, scores[1:], strict=True):
            end += len(unit)
            if end < len(word) and not (starts_unit(word[end]) and ends_stem(unit)):
                continue
            ending = word[end:]
            if self._endings:
                count = self._endings[ending] + (_ENDING if ending else _NO_ENDING)
                log_prob = math.log(count / (self._endings.total() + 10.0))
            else:
                log_prob = -4.0 - 0.5 * len(ending) if ending else -0.5
            total = score + log_prob - chance
            if total > 0:
                stems.append((word[:end], total))
        return stems
