"""Prefixes that translations must start with: from text to the tokens that search may take."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import EOS_ID, FIRST_ID, UNK_ID, Vocabulary, normalized
from seq2seq.runtime.errors import UserError

MAX_CHARACTERS = 2000  # search takes a step for each token of a prefix


class PrefixState(NamedTuple):
    """A position in a prefix."""

    tokens: NDArray[
        np.int64
    ]  # [M], the allowed next tokens, EOS included if the translation may end
    successors: dict[int, int]  # token -> next state; other tokens complete the prefix


class Prefix(NamedTuple):
    """Automaton over tokens; transitions lead to later states only."""

    states: list[PrefixState]
    words: list[str]  # to print for the unknown tokens of the prefix

    def after(self, state: int, token: int) -> int:
        """Return the state after a token; `len(states)` once the prefix is complete."""
        complete = len(self.states)
        return complete if state == complete else self.states[state].successors.get(token, complete)


NO_PREFIX = Prefix([], [])


def check_prefixes(texts: Sequence[str]) -> None:
    """Raise UserError if a text is too long for a prefix."""
    for number, text in enumerate(texts, start=1):
        if len(text) > MAX_CHARACTERS:
            raise UserError(
                f"prefix {number}: too long ({len(text):,} characters); "
                f"use at most {MAX_CHARACTERS:,}"
            )


class PrefixMaker:
    """Converts text to prefixes in the tokens of one vocabulary.

    All words but the last are segmented as in any text. The last one may continue: search chooses
    among all token sequences that spell it or a longer word. White space after it marks it as
    complete.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        tokens = [token.encode() for token in vocabulary.tokens(range(len(vocabulary)))]
        ids = {token: i for i, token in enumerate(tokens)}
        self._bytes = [
            ids.pop(b"<0x%02X>" % byte) for byte in range(256 * vocabulary.has_byte_fallback)
        ]
        self._ids = {token: i for token, i in ids.items() if i >= FIRST_ID}
        self._sorted = sorted(self._ids)
        self._max_bytes = max(map(len, self._sorted), default=0)  # per token

    def prefix(self, text: str) -> Prefix:
        """Return the prefix for a text; for white space, one without states."""
        text = normalized(text).replace(SPACE, " ")
        words = self._vocabulary.words(text.strip())
        last = words.pop() if words and text == text.rstrip() else None
        (ids,) = self._vocabulary.encode([" ".join(words)])
        states = [_single(i, n + 1) for n, i in enumerate(ids)]
        if self._vocabulary.has_byte_fallback:
            if last is not None:
                return Prefix(states + self._spell((SPACE + last).encode(), len(states)), [])
            return Prefix([*states, self._space] if states else [], [])
        unknown = [word for word, i in zip(words, ids, strict=True) if i == UNK_ID]
        if last is None:
            return Prefix(states, unknown)  # the next token starts another word anyway
        tokens = self._starting_with((SPACE + last).encode())
        if tokens:
            return Prefix([*states, PrefixState(np.array(tokens, np.int64), {})], unknown)
        return Prefix([*states, _single(UNK_ID, len(states) + 1)], [*unknown, last])

    @cached_property
    def _space(self) -> PrefixState:
        """State after a complete word: another word or the end."""
        return PrefixState(np.array([*self._starting_with(SPACE.encode()), EOS_ID]), {})

    def _spell(self, text: bytes, number: int) -> list[PrefixState]:
        """Return a state, numbered from `number`, for each place where a token may start."""
        is_byte: dict[int, bool] = {}  # place -> whether the byte there is a token
        start = 0
        for character in map(str.encode, text.decode()):
            is_known = character in self._ids
            places = range(start, start + (1 if is_known else len(character)))
            is_byte |= dict.fromkeys(places, not is_known)
            start += len(character)
        numbers = {place: number + n for n, place in enumerate([*is_byte, len(text)])}
        states = []
        for place, byte in is_byte.items():
            ends = range(place + 1, min(len(text), place + self._max_bytes + 1))
            spelled = {end: self._ids.get(text[place:end]) for end in ends}
            successors = {i: numbers[end] for end, i in spelled.items() if i is not None}
            if byte:
                successors[self._bytes[text[place]]] = numbers[place + 1]
            tokens = [*self._starting_with(text[place:]), *successors]
            states.append(PrefixState(np.array(tokens, np.int64), successors))
        return states

    def _starting_with(self, text: bytes) -> list[int]:
        """Return the tokens that start with the text."""
        size = len(text)
        low = bisect_left(self._sorted, text)
        high = bisect_right(self._sorted, text, low, key=lambda token: token[:size])
        return [self._ids[token] for token in self._sorted[low:high]]


def _single(token: int, successor: int) -> PrefixState:
    return PrefixState(np.array([token], np.int64), {token: successor})
