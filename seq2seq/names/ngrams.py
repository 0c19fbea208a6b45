"""N-gram models with interpolated Witten-Bell smoothing."""

import math
from collections.abc import Hashable, Mapping, Sequence

START, END = "<s>", "</s>"
Symbol = Hashable
History = tuple[Symbol, ...]


class NgramModel:
    """Probabilities of symbols given the `order - 1` symbols before.

    A symbol x that follows a history h with T distinct successors and n occurrences has

        P(x | h) = (count(h x) + T * P(x | h')) / (n + T),

    where h' is the history without its first symbol; below unigrams is 1 / `size`.
    """

    def __init__(self, order: int, size: int) -> None:
        self.order, self._size = order, size
        self._counts: dict[History, dict[Symbol, float]] = {}
        self._totals: dict[History, float] = {}
        self._probs: dict[tuple[History, Symbol], float] = {}

    @property
    def start(self) -> History:
        """Return the history of the first symbol."""
        return (START,) * (self.order - 1)

    def add(self, symbols: Sequence[Symbol], weight: float = 1.0) -> None:
        """Count the n-grams of a sequence, its end included."""
        padded = (*self.start, *symbols, END)
        for i in range(self.order - 1, len(padded)):
            for size in range(self.order):
                history = padded[i - size : i]
                row = self._counts.setdefault(history, {})
                row[padded[i]] = row.get(padded[i], 0.0) + weight
                self._totals[history] = self._totals.get(history, 0.0) + weight
        self._probs = {}

    def prob(self, history: History, symbol: Symbol) -> float:
        """Return P(symbol | history) for a history of `order - 1` symbols or fewer."""
        value = self._probs.get((history, symbol))
        if value is None:
            value = self.prob(history[1:], symbol) if history else 1.0 / self._size
            row = self._counts.get(history)
            if row is not None:
                distinct = len(row)
                value = (row.get(symbol, 0.0) + distinct * value) / (
                    self._totals[history] + distinct
                )
            self._probs[history, symbol] = value
        return value

    def next(self, history: History, symbol: Symbol) -> History:
        """Return the history after a symbol."""
        return (*history, symbol)[1 - self.order :] if self.order > 1 else ()

    def log_prob(self, symbols: Sequence[Symbol]) -> float:
        """Return the log-probability of a sequence, its end included."""
        history, total = self.start, 0.0
        for symbol in (*symbols, END):
            total += math.log(self.prob(history, symbol))
            history = self.next(history, symbol)
        return total


def normalized(scores: Mapping[str, float], count: int) -> dict[str, float]:
    """Return the probabilities of the `count` strings with the best scores, best first."""
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]
    if not best or best[0][1] == -math.inf:
        return {}
    weights = {text: math.exp(score - best[0][1]) for text, score in best}
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}
