"""Detection of names: which capitalised words of a source line are names.

A word of the training text is a name if mining found its spelling. Of other words, those that the
training text has in lower case are ordinary, unless they are capitalised within a sentence. The
rest is decided by logistic regression on the word's ending and its neighbours, trained on the
capitalised words of the training text as if each of them were unknown.
"""

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from seq2seq.names.ngrams import NgramModel
from seq2seq.names.symbols import any_of, inside
from seq2seq.names.words import CaseCounts, SourceWord, source_words

MAX_INSTANCES = 30_000  # that the regression is trained on
_PER_TYPE = 8  # instances of each word
_EPOCHS, _RATE, _DECAY = 10, 0.2, 1e-4
_LETTERS = 4  # order of the letter models
_MOST_LIKE = 6  # nats
MIN_SCORE = -3.0  # least log-odds of a name, lowered as most unknown words of a text are names
_MIN_COUNT = 2  # least frequency of a feature

Features = list[str]


class Spellings:
    """Letter models of names and of ordinary words."""

    def __init__(self, names: Iterable[str], ordinary: Iterable[str]) -> None:
        self._models = [NgramModel(_LETTERS, 100) for _ in range(2)]
        for model, words in zip(self._models, (names, ordinary), strict=True):
            for word in words:
                model.add(word.lower())

    def likeness(self, word: str) -> int:
        """Return the log-odds of being spelled like a name, in steps of a nat a word."""
        name, ordinary = (model.log_prob(word.lower()) for model in self._models)
        return round(max(-_MOST_LIKE, min(_MOST_LIKE, name - ordinary)))


def features_of(word: SourceWord, lower: Mapping[str, int], spellings: Spellings) -> Features:
    """Return features that do not depend on whether the word itself is known."""
    text, place = word.text.lower(), "initial" if word.initial else "inside"
    after = word.after
    found = [place, f"{place} after {word.before}", f"{place} before {after.lower()}"]
    found.append(f"{place} before {after.lower()[-2:]}")
    if after[:1].isupper():
        found.append(f"{place} before a capital")
    found += [f"{place} ends in {text[-size:]}" for size in (1, 2) if len(text) > size]
    found.append(f"{place} {_inflects(text, lower)}")
    likeness = spellings.likeness(text)
    found += [f"spelled {step}" for step in range(-_MOST_LIKE, likeness + 1)]
    if any(mark in text for mark in "-'\u2019"):
        found.append(f"{place} hyphen or apostrophe")
    return found


def _inflects(text: str, lower: Mapping[str, int]) -> str:
    """Return which ending makes the word a known ordinary one, as in "dinosaur" + "s"."""
    for size in (1, 2, 3):
        if len(text) - size >= 3 and text[:-size] in lower:
            return f"inflects with {text[-size:]}"
    return "does not inflect"


class NameDetector:
    """Decides which words of a line are names."""

    def __init__(
        self,
        names: Collection[str],
        lower: Mapping[str, int],
        capitalised: Mapping[str, int],
        weights: Mapping[str, float],
        spellings: Spellings,
        symbols: Iterable[str] = (),
    ) -> None:
        self._names, self._lower, self._capitalised = names, lower, capitalised
        self._weights, self._spellings = weights, spellings
        self._symbol = any_of(symbols)

    def names_in(self, line: str) -> list[SourceWord]:
        """Return the names of a line, in order.

        Of a line in capitals, and of one that is a single word, words that the training text lacks
        are names.
        """
        found = source_words(line)
        if line.isupper():
            words = [word for word in found if self._is_unseen(word)]
        elif len(found) == 1:
            words = [
                word
                for word in found
                if word.capitalised and (self._is_unseen(word) or self.is_name(word))
            ]
        else:
            words = [word for word in found if word.capitalised and self.is_name(word)]
        symbols = inside(self._symbol, line)
        return [word for word in words if word.start not in symbols]

    def _is_unseen(self, word: SourceWord) -> bool:
        """Return whether neither the word nor its lower case occurs, unless as a name."""
        text = word.text
        known = text.lower() in self._lower or text in self._capitalised
        return len(text) > 1 and not known

    def is_name(self, word: SourceWord) -> bool:
        """Return whether a capitalised word is a name."""
        if word.text in self._names:
            return True
        if len(word.text) == 1:
            return False
        if word.text.lower() in self._lower and (word.initial or word.text.isupper()):
            return False
        if self._capitalised.get(word.text, 0) > 1:
            return False  # translated, not spelled by its sound
        known = word.text.lower() in self._lower
        return not (known or word.initial) or self.score(word) > MIN_SCORE

    def score(self, word: SourceWord) -> float:
        """Return the log-odds that an unknown capitalised word is a name."""
        features = features_of(word, self._lower, self._spellings)
        return sum(self._weights.get(feature, 0.0) for feature in features)


def train_weights(
    lines: Sequence[str], names: Collection[str], counts: CaseCounts
) -> dict[str, float]:
    """Train the weights of features on the capitalised words of source lines (AdaGrad).

    Names are those found that also occur within sentences, ordinary words those that also occur in
    lower case.
    """
    instances = list(_instances(lines, names, counts))
    frequencies = Counter(feature for features, _ in instances for feature in features)
    kept = {feature for feature, count in frequencies.items() if count >= _MIN_COUNT}
    share = sum(label for _, label in instances) / max(1, len(instances))
    data = [
        ([each for each in features if each in kept], label, (1 - share) if label else share)
        for features, label in instances
    ]
    weights: dict[str, float] = defaultdict(float)
    squares: dict[str, float] = defaultdict(lambda: 1e-8)
    for _ in range(_EPOCHS):
        for features, label, scale in data:
            score = sum(weights[feature] for feature in features)
            error = scale * (label - 1 / (1 + math.exp(-max(-30.0, min(30.0, score)))))
            for feature in features:
                gradient = error - _DECAY * weights[feature]
                squares[feature] += gradient * gradient
                weights[feature] += _RATE * gradient / math.sqrt(squares[feature])
    return {feature: round(value, 4) for feature, value in sorted(weights.items())}


def _instances(
    lines: Sequence[str], names: Collection[str], counts: CaseCounts
) -> Iterable[tuple[Features, bool]]:
    """Yield features and label of capitalised words, as if each were unknown."""
    spellings = _without_own(names, counts.lower)
    seen: Counter[str] = Counter()
    for line in lines:
        for word in source_words(line):
            if not (word.capitalised and word.initial) or seen[word.text] == _PER_TYPE:
                continue
            name = word.text in names and counts.inside[word.text] > 0
            if name or counts.lower[word.text.lower()]:
                seen[word.text] += 1
                half = spellings[_half(word.text)]
                yield features_of(word, counts.lower, half), name
                if seen.total() == MAX_INSTANCES:
                    return


def _without_own(names: Iterable[str], ordinary: Iterable[str]) -> list[Spellings]:
    """Return letter models for the words of each half, which they were not trained on."""
    names, ordinary = list(names), list(ordinary)
    return [
        Spellings(
            (word for word in names if _half(word) != half),
            (word for word in ordinary if _half(word) != half),
        )
        for half in range(2)
    ]


def _half(word: str) -> int:
    return zlib.crc32(word.lower().encode()) % 2
