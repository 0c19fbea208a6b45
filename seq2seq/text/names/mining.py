"""Mining of name pairs from parallel text: capitalised words with translations of similar sound.

A source type is a candidate if it occurs capitalised and never in lower case. Each of its
occurrences is compared with every start of every target word of its pair; what follows the start is
a case ending. The sound model and the distribution of endings are learned by Viterbi EM.

Loan words (`taxi`) are found among the words in lower case by what was learned from names.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from seq2seq.text.names.sounds import SoundModel, ends_stem, starts_unit, units_of
from seq2seq.text.names.words import count_cases, source_words, target_words

MAX_TYPES = 20_000  # the most frequent candidates
MAX_OCCURRENCES = 40  # examined for each candidate, fewer if there are many
_LOAN_OCCURRENCES = 4  # the same for each word in lower case
_EXAMINED = 40_000  # occurrences in all
_ITERATIONS = (0.9, 1.0, 0.6, 0.4)  # minimum score of a letter in each iteration of EM
_FITTING_TYPES = 2_000  # candidates that all iterations but the last examine
_MIN_SHARE = 0.3  # least share of occurrences with the same stem
_NO_ENDING = 5.0  # pseudo-count of a word that is the stem
_ENDING = 0.02  # pseudo-count of each ending
_Occurrences = Mapping[str, Sequence[set[str]]]  # target words beside each, by source word


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
        self._src = src
        self._tgt = tgt
        lower = self.counts.lower
        capitalised = self.counts.capitalised
        names = (name for name, _ in capitalised.most_common() if name.lower() not in lower)
        self._occurrences = self._find_occurrences(names, MAX_OCCURRENCES)
        letters = Counter("".join(self._occurrences).lower())
        total = letters.total()
        self._letters = {letter: math.log(n / total) for letter, n in letters.items()}

    def _find_occurrences(self, words: Iterable[str], most: int) -> _Occurrences:
        """Return the target words beside up to `most` occurrences of each of the first words."""
        examined = list(islice((word for word in words if len(word) > 1), MAX_TYPES))
        most = max(1, min(most, _EXAMINED // max(1, len(examined))))
        occurrences: dict[str, list[set[str]]] = {word: [] for word in examined}
        for src_line, tgt_line in zip(self._src, self._tgt, strict=True):
            texts = (word.text for word in source_words(src_line))
            rest = [text for text in texts if text in occurrences and len(occurrences[text]) < most]
            if rest:
                beside = {match[0] for match in target_words(tgt_line)}
                for text in rest:
                    occurrences[text].append(beside)
        return occurrences

    def mine(self) -> dict[str, NamePair]:
        """Return the spelling of each name found."""
        frequent = dict(islice(self._occurrences.items(), _FITTING_TYPES))
        best: dict[str, tuple[str, _Evidence]] = {}
        for number, least in enumerate(_ITERATIONS, start=1):
            is_last = number == len(_ITERATIONS)
            best = self._matches(self._occurrences if is_last else frequent, least)
            self._fit(best)
        return {
            name: NamePair(stem, self.counts.capitalised[name]) for name, (stem, _) in best.items()
        }

    def mine_loans(self) -> dict[str, str]:
        """Return the spelling of each loan word among the frequent words, after `mine`."""
        words = (word for word, _ in self.counts.lower.most_common())
        occurrences = self._find_occurrences(words, _LOAN_OCCURRENCES)
        matches = self._matches(occurrences, _ITERATIONS[-1])
        return {word: stem for word, (stem, _) in matches.items()}

    def _matches(self, occurrences: _Occurrences, least: float) -> dict[str, tuple[str, _Evidence]]:
        """Return the best stem of each word that has one with this score of a letter."""
        best: dict[str, tuple[str, _Evidence]] = {}
        for word, beside in occurrences.items():
            evidence_of = self._evidence(word, beside)
            stem = max(evidence_of, key=lambda stem: (evidence_of[stem].score, stem), default=None)
            if stem is None:
                continue
            evidence = evidence_of[stem]
            count = len(evidence.endings)
            sounds_alike = evidence.score / count > least * len(word)
            if sounds_alike and count >= _MIN_SHARE * len(beside):
                best[word] = (stem, evidence)
        return best

    def _fit(self, best: Mapping[str, tuple[str, _Evidence]]) -> None:
        self.sounds.fit((name.lower(), units_of(stem)) for name, (stem, _) in best.items())
        self._endings = Counter()
        for _, evidence in best.values():
            weight = len(evidence.endings) ** -0.5
            for ending in evidence.endings:
                self._endings[ending] += weight

    def _evidence(self, name: str, beside: Sequence[set[str]]) -> dict[str, _Evidence]:
        """Return the stems beside a word, each with the best score of each of its occurrences."""
        evidence: dict[str, _Evidence] = defaultdict(_Evidence)
        for words in beside:
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
        stems = []
        end = 0
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
