"""Subword regularization: random segmentations, a pure function of (text, seed, text number).

Tokens never cross a space, so each word of a text is sampled independently. Every occurrence of a
word is a new draw from the exact distribution; what is cached of a word only saves time.
(SentencePiece's own sampling differs between processes, which no resumed run would repeat.)
"""

import hashlib
import math
import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from sys import intern
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from seq2seq.text.characters import SPACE
from seq2seq.text.names.words import any_of

MAX_NEW_WORDS = 40_000  # cached, besides as many previous ones; about 3 kB each
MAX_STATES = 8  # cached of a word under BPE-dropout
_MORE = 8  # random numbers for a word, besides one for each character
_EDGES = re.compile(r"^\W+|\W+$")  # punctuation around a word
_MAX_LENGTH = 24  # characters of a cached word
_MAX_DROPPED = 4096  # merges dropped at once; words have fewer possible merges
_UNKNOWN_PENALTY = 10.0  # an unknown character's log-probability is lower than any token's by this

_GAMMA = np.array([0x9E3779B97F4A7C15], np.uint64)  # constants of SplitMix64
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


class SubwordSampler:
    """Samples segmentations under a unigram or BPE model of SentencePiece."""

    def __init__(
        self,
        processor: SentencePieceProcessor,
        amount: float,
        symbols: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`amount`: the exponent of a unigram model's probabilities, or the BPE dropout rate.

        `symbols` are the ids of tokens that separate a word from its rest and are never split.
        """
        tokens = Tokens(processor, symbols)
        self._symbols = symbols
        self._symbol = any_of(symbols)
        # Scores of BPE are negated merge ranks; those of a unigram model are log-probabilities.
        bpe = all(score.is_integer() for score in tokens.scores.values())
        self._model = BpeDropout(tokens, amount) if bpe else UnigramModel(tokens, amount)
        # Cached words are built of tuples alone, which the garbage collector does not visit.
        self._cached: dict[str, Any] = {}
        self._previous: dict[str, Any] = {}  # words cached before MAX_NEW_WORDS was reached

    def sample(self, texts: Sequence[str], seed: int, numbers: Sequence[int]) -> list[list[int]]:
        """Return ids under a random segmentation, a function of text, seed and text number."""
        lines = [_words(text) for text in texts]
        choices, starts = self._choices(lines, seed, numbers)
        draw = self._draw if self._symbols else self._model.draw
        cached = self._cached.get
        sampled = []
        for words, start in zip(lines, starts, strict=True):
            ids: list[int] = []
            for word in words:
                ids += draw(cached(word) or self._word(word), choices, start)
                start += len(word) + 1 + _MORE
            sampled.append(ids)
            cached = self._cached.get  # which may be another one
        return sampled

    def sample_pairs(
        self, src: Sequence[str], tgt: Sequence[str], seed: int, numbers: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of both sides, `tgt` drawn with seed + 1, equal words segmented alike.

        A word of a pair that occurs before, on either side and whatever punctuation surrounds it,
        takes the random numbers of its first occurrence, if they suffice. A string that is copied
        from source to target thus consists of the same tokens on both sides.
        """
        sampled: list[list[list[int]]] = [[], []]
        sides = [[_words(text) for text in texts] for texts in (src, tgt)]
        choices = [self._choices(lines, seed + n, numbers) for n, lines in enumerate(sides)]
        for n in range(len(src)):
            first: dict[str, tuple[list[Any], int, int]] = {}
            for lines, (flat, starts), side in zip(sides, choices, sampled, strict=True):
                start = starts[n]
                ids: list[int] = []
                for word in lines[n]:
                    count = len(word) + 1 + _MORE
                    earlier = first.setdefault(_EDGES.sub("", word), (flat, start, count))
                    decided = earlier if earlier[2] > len(word) else (flat, start, count)
                    ids += self._draw(self._word(word), *decided[:2])
                    start += count
                side.append(ids)
        return sampled[0], sampled[1]

    def _choices(
        self, lines: Sequence[Sequence[str]], seed: int, numbers: Sequence[int]
    ) -> tuple[list[Any], list[int]]:
        """Return what decides all words, and where each line starts in it.

        A word has one choice for each character, and some more for punctuation around it.
        """
        counts = [sum(map(len, words)) + (1 + _MORE) * len(words) for words in lines]
        choices = self._model.choices(uniform(seed, numbers, counts))
        return choices, [0, *accumulate(counts[:-1])] if counts else []

    def _word(self, text: str) -> Any:
        """Return the distribution of a word of the text, from the cache if it is there."""
        if (word := self._cached.get(text)) is not None:
            return word
        word = self._previous.get(text) or self._new_word(text)
        if len(text) <= _MAX_LENGTH:
            if len(self._cached) >= MAX_NEW_WORDS:
                self._previous = self._cached
                self._cached = {}
            self._cached[text] = word
        return word

    def _new_word(self, text: str) -> Any:
        text = SPACE + text
        if not (self._symbols and self._symbol.search(text)):
            return self._model.word(text)
        parts: list[tuple[int, Any]] = []
        start = 0
        for match in self._symbol.finditer(text):
            if match.start() > start:
                parts.append((start, self._model.word(text[start : match.start()])))
            parts.append((match.start(), self._symbols[match[0]]))
            start = match.end()
        if start < len(text):
            parts.append((start, self._model.word(text[start:])))
        return _Parts(parts)

    def _draw(self, word: Any, choices: Sequence[Any], start: int) -> Sequence[int]:
        if not isinstance(word, _Parts):
            return self._model.draw(word, choices, start)
        ids: list[int] = []
        for first, part in word:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._model.draw(part, choices, start + first)
        return ids


class _Parts(tuple[tuple[int, Any], ...]):
    """A word with symbols: ids of symbols, and words, each with its first character."""

    __slots__ = ()


def _words(text: str) -> list[str]:
    return [word for word in text.replace(SPACE, " ").split(" ") if word]


def uniform(seed: int, numbers: Sequence[int], counts: Sequence[int]) -> NDArray[np.float64]:
    """Return `counts[i]` uniform numbers in [0, 1) for each of `numbers`, concatenated.

    Those for a number depend on it and the seed alone (SplitMix64, Steele et al., 2014).
    """
    digest = hashlib.blake2b(repr(seed).encode(), digest_size=8).digest()
    key = np.frombuffer(digest, "<u8").astype(np.uint64)
    start = _mixed(key + _GAMMA * np.asarray(numbers, np.int64).astype(np.uint64))
    repeats = np.asarray(counts, np.int64)
    place = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    bits = _mixed(np.repeat(start, repeats) + _GAMMA * (place + 1).astype(np.uint64))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64."""
    for shift, factor in ((30, _FACTORS[:1]), (27, _FACTORS[1:])):
        bits = (bits ^ (bits >> np.uint64(shift))) * factor
    return bits ^ (bits >> np.uint64(31))


class Tokens:
    """Scores and ids of a SentencePiece model's tokens, except special ones, bytes and symbols."""

    def __init__(
        self, processor: SentencePieceProcessor, symbols: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.scores: dict[str, float] = {}
        self._ids: dict[str, tuple[int, ...]] = {}
        without = set(symbols.values())
        for i in range(processor.get_piece_size()):
            special = processor.is_control(i) or processor.is_unknown(i) or processor.is_unused(i)
            if not (special or processor.is_byte(i) or i in without):
                token = processor.id_to_piece(i)
                self._ids[token] = (i,)
                self.scores[token] = processor.get_score(i)
        self._bytes = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]

    def ids(self, token: str) -> tuple[int, ...]:
        """Return the id of a token, or the ids of the bytes of a character that has none."""
        return self._ids.get(token) or tuple(self._bytes[byte] for byte in token.encode())


class BpeDropout:
    """BPE-dropout (Provilkov et al., 2020, algorithm 1).

    In each step every possible merge is dropped with probability p, and the best of the others is
    applied; a word is done when none is left. With m possible merges the best k are dropped, and
    the next applied, with probability p^k (1 - p), and all with p^m: one number decides a step.
    """

    def __init__(self, tokens: Tokens, dropout: float) -> None:
        self._tokens = tokens
        self._ranks = {token: -score for token, score in tokens.scores.items()}
        self._at_least = 1 - dropout ** np.arange(1, _MAX_DROPPED + 1)  # 1 to _MAX_DROPPED dropped

    def choices(self, numbers: NDArray[np.float64]) -> list[int]:
        """Return the number of merges dropped in each step."""
        dropped: list[int] = self._at_least.searchsorted(numbers, side="right").tolist()
        return dropped

    def word(self, text: str) -> "_BpeWord":
        """Return the distribution of a word."""
        ranks = (self._ranks.get(left + right, math.inf) for left, right in pairwise(text))
        return _BpeWord(_State(tuple(text), tuple(ranks)))

    def draw(self, word: "_BpeWord", choices: Sequence[int], start: int) -> tuple[int, ...]:
        """Merge the characters of a word until no merge is left."""
        state = word.start
        while (dropped := choices[start]) < state.merges:
            start += 1
            following = state.successors.get(dropped) if state.successors else None
            if following is None:
                following = state.merged(dropped, self._ranks)
                if word.states < MAX_STATES:
                    word.states += 1
                    state.successors = {**(state.successors or {}), dropped: following}
            state = following
        if state.ids is None:
            state.ids = tuple(i for token in state.tokens for i in self._tokens.ids(token))
        return state.ids


class _BpeWord:
    """A word under BPE-dropout. Partly merged words are cached as a graph, which grows."""

    __slots__ = ("start", "states")

    def __init__(self, start: "_State") -> None:
        self.start = start
        self.states = 0


class _State:
    """A partly merged word: its tokens, and the rank of the merge of each with the next."""

    __slots__ = ("_ranks", "ids", "merges", "successors", "tokens")

    def __init__(self, tokens: tuple[str, ...], ranks: tuple[float, ...]) -> None:
        self.tokens = tokens
        self._ranks = ranks
        self.merges = len(ranks) - ranks.count(math.inf)  # possible merges
        self.successors: dict[int, _State] | None = None  # by the number of merges dropped
        self.ids: tuple[int, ...] | None = None

    def merged(self, dropped: int, rank_of: dict[str, float]) -> "_State":
        """Apply the best merge except `dropped` better ones; of equal ones the first is best."""
        tokens = self.tokens
        ranks = self._ranks
        order = sorted(range(len(ranks)), key=ranks.__getitem__) if dropped else ()
        n = order[dropped] if order else ranks.index(min(ranks))
        token = intern(tokens[n] + tokens[n + 1])  # one string for all states that have it
        left = [rank_of.get(neighbour + token, math.inf) for neighbour in tokens[n - 1 : n] if n]
        right = [rank_of.get(token + neighbour, math.inf) for neighbour in tokens[n + 2 : n + 3]]
        return _State(
            (*tokens[:n], token, *tokens[n + 2 :]),
            (*ranks[: max(0, n - 1)], *left, *right, *ranks[n + 2 :]),
        )


# For each character of a word the tokens that start there: their cumulative probabilities but the
# last, ids, and ends.
Lattice: TypeAlias = tuple[
    tuple[tuple[float, ...], tuple[tuple[int, ...], ...], tuple[int, ...]], ...
]


class UnigramModel:
    """Segmentations x of a word with probability proportional to P(x)^amount (Kudo, 2018, 3.2).

    Drawn token by token from the sums over all of them, not over the n best.
    """

    def __init__(self, tokens: Tokens, amount: float) -> None:
        self._ids = tokens.ids
        self._scores = {token: amount * score for token, score in tokens.scores.items()}
        self._unknown = amount * (min(tokens.scores.values()) - _UNKNOWN_PENALTY)
        self._longest = max(map(len, tokens.scores))

    def choices(self, numbers: NDArray[np.float64]) -> list[float]:
        """Return the numbers, each of which chooses a token by cumulative probabilities."""
        chosen: list[float] = numbers.tolist()
        return chosen

    def word(self, text: str) -> Lattice:
        """Return the distribution of a word."""
        log_sums = [0.0] * (len(text) + 1)
        lattice = []
        for start in range(len(text) - 1, -1, -1):
            ends = []
            scores = []
            for end in range(start + 1, min(start + self._longest, len(text)) + 1):
                score = self._scores.get(text[start:end])
                if score is None and end == start + 1:
                    score = self._unknown
                if score is not None:
                    ends.append(end)
                    scores.append(score + log_sums[end])
            best = max(scores)
            sums = list(accumulate(math.exp(score - best) for score in scores))
            log_sums[start] = best + math.log(sums[-1])
            ids = tuple(self._ids(text[start:end]) for end in ends)
            lattice.append((tuple(value / sums[-1] for value in sums[:-1]), ids, tuple(ends)))
        return tuple(reversed(lattice))

    def draw(self, word: Lattice, choices: Sequence[float], start: int) -> list[int]:
        """Draw token after token, from the first character to the last."""
        place = 0
        length = len(word)
        drawn: list[int] = []
        while place < length:
            cumulative, ids, ends = word[place]
            n = bisect(cumulative, choices[start])
            drawn += ids[n]
            place = ends[n]
            start += 1
        return drawn
