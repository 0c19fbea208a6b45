"""Lexical constraints: phrases that a translation contains (Post & Vilar 2018), and prefixes."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.vocabulary.vocabulary import EOS_ID, FIRST_ID, UNK_ID, Vocabulary
from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import SPACE, normalized

MAX_TOKENS = 200  # in all phrases of one line; search keeps a bank of hypotheses for each number
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


class Phrase(NamedTuple):
    """Tokens that a hypothesis must contain; occurrences do not overlap."""

    tokens: tuple[int, ...]
    borders: tuple[int, ...]  # failure function of Knuth, Morris & Pratt (1977)
    times: int
    ends_in_letter: bool


class PhraseProgress(NamedTuple):
    """Occurrences of the phrases in a hypothesis so far."""

    # phrases, their occurrences still needed, and how many of their tokens end the hypothesis
    places: tuple[tuple[Phrase, int, int], ...]
    ended: tuple[int, ...] = ()  # phrases whose last letter has just come: the word has to end

    @property
    def closed(self) -> bool:
        """Return whether the next token may not continue a word."""
        return bool(self.ended)


class Lexical(NamedTuple):
    """Phrases, as tokens, that a hypothesis must contain.

    `met` counts tokens: of complete occurrences, and of the longest incomplete one at the end.
    """

    phrases: tuple[Phrase, ...] = ()
    continuing: frozenset[int] = frozenset()  # tokens that continue a word

    @property
    def total(self) -> int:
        """Return the number of tokens to be met."""
        return sum(phrase.times * len(phrase.tokens) for phrase in self.phrases)

    def start(self) -> PhraseProgress:
        """Return the progress of the empty hypothesis."""
        return PhraseProgress(tuple((phrase, phrase.times, 0) for phrase in self.phrases))

    def after(self, progress: PhraseProgress, token: int) -> PhraseProgress:
        """Return the progress after one more token."""
        places = []
        ended = list[int]()
        continues = token in self.continuing
        for number, (phrase, times_left, length) in enumerate(progress.places):
            if continues and number in progress.ended:  # as in a prefix: it was no word of its own
                times_left += 1
                length = phrase.borders[-1]
            while length and phrase.tokens[length] != token:
                length = phrase.borders[length - 1]
            length += phrase.tokens[length] == token
            if length == len(phrase.tokens):
                if times_left and phrase.ends_in_letter:
                    ended.append(number)
                times_left = max(0, times_left - 1)
                length = 0
            places.append((phrase, times_left, length))
        if ended:  # a phrase in the middle of that word is not met there
            for i, (phrase, times_left, length) in enumerate(places):
                while length and phrase.tokens[length] in self.continuing:
                    length = phrase.borders[length - 1]
                places[i] = phrase, times_left, length
        return PhraseProgress(tuple(places), tuple(ended))

    def is_met_by(self, ids: Sequence[int]) -> bool:
        """Return whether a hypothesis contains the phrases."""
        progress = self.start()
        for token in ids:
            progress = self.after(progress, token)
        return self.met(progress) == self.total

    def missing(self, progress: PhraseProgress) -> list[tuple[tuple[int, ...], int]]:
        """Return the tokens of the phrases still needed, and how many end the hypothesis."""
        return [(phrase.tokens, length) for phrase, count, length in progress.places if count]

    def met(self, progress: PhraseProgress) -> int:
        """Return the number of tokens that are met."""
        unmet = sum(count * len(phrase.tokens) for phrase, count, _ in progress.places)
        longest = max((length for _, length in self.missing(progress)), default=0)
        return self.total - unmet + longest

    def advancing(self, progress: PhraseProgress) -> dict[int, int]:
        """Return the tokens that start or continue a phrase that is missing, in ascending order.

        Each with the number of tokens at the end of the hypothesis that then belong to the phrase.
        """
        return dict(sorted((ids[length], length + 1) for ids, length in self.missing(progress)))


NO_LEXICAL = Lexical()


def lexical_of(
    phrases: Iterable[tuple[Sequence[int], bool]], continuing: frozenset[int] = frozenset()
) -> Lexical:
    """Return the constraints of phrases, each as tokens and whether it ends in a letter.

    A phrase that is given twice must occur twice.
    """
    pairs = [(tuple(ids), ends_in_letter) for ids, ends_in_letter in phrases]
    counts = Counter(ids for ids, _ in pairs)
    records = (Phrase(ids, _borders(ids), counts[ids], end) for ids, end in dict(pairs).items())
    return Lexical(tuple(records), continuing)


def merge(first: Lexical, second: Lexical) -> Lexical:
    """Return the constraints of both, as far as their tokens are no more than MAX_TOKENS."""
    counts = Counter[tuple[tuple[int, ...], bool]]()
    room = MAX_TOKENS
    for phrase in (*first.phrases, *second.phrases):
        key = phrase.tokens, phrase.ends_in_letter
        missing_tokens = (phrase.times - counts[key]) * len(phrase.tokens)
        if 0 < missing_tokens <= room:
            room -= missing_tokens
            counts[key] = phrase.times
    return lexical_of(counts.elements(), first.continuing | second.continuing)


def _borders(phrase: Sequence[int]) -> tuple[int, ...]:
    """Return the length of the longest proper border of each prefix of a phrase."""
    borders = [0]
    for token in phrase[1:]:
        length = borders[-1]
        while length and phrase[length] != token:
            length = borders[length - 1]
        borders.append(length + (phrase[length] == token))
    return tuple(borders)


def byte_of(token: str) -> int | None:
    """Return the byte that a token spells, None for a token of text."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match[1], 16) if match else None


MAX_CHARACTERS = 2000  # search takes a step for each token of a prefix


class PrefixState(NamedTuple):
    """A position in a prefix."""

    tokens: NDArray[np.int64]  # [M], allowed next, EOS included if the translation may end
    successors: dict[int, int]  # token -> next state; other tokens complete the prefix


class Prefix(NamedTuple):
    """Automaton over tokens; transitions lead to later states only."""

    states: list[PrefixState]
    words: list[str]  # to print for the unknown tokens of the prefix

    def after(self, state: int, token: int) -> int:
        """Return the state after a token; `len(states)` once the prefix is complete."""
        complete = len(self.states)
        return complete if state == complete else self.states[state].successors.get(token, complete)

    def begins(self, ids: Sequence[int]) -> bool:
        """Return whether a hypothesis begins with the prefix."""
        state = 0
        for token in ids:
            if state == len(self.states):
                return True
            if token not in self.states[state].tokens:
                return False
            state = self.after(state, token)
        return state == len(self.states)


NO_PREFIX = Prefix([], [])


def path(ids: Sequence[int]) -> Prefix:
    """Return a prefix that leaves no choice: these tokens."""
    return Prefix([_single(token, number) for number, token in enumerate(ids, start=1)], [])


def check_prefixes(texts: Sequence[str]) -> None:
    """Raise UserError if a text is too long for a prefix."""
    for number, text in enumerate(texts, start=1):
        check_length(text, f"prefix {number}", MAX_CHARACTERS)


def check_length(text: str, place: str, max_length: int) -> None:
    """Raise UserError for a text of more than `max_length` characters."""
    if len(text) > max_length:
        count = f"{len(text):,} characters"
        raise UserError(f"{place}: too long ({count}); use at most {max_length:,}")


class PrefixMaker:
    """Converts text to prefixes in the tokens of one vocabulary.

    All words but the last are segmented as in any text. The last one may continue: search chooses
    among all token sequences that spell it or a longer word. White space after it completes it.
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
            token_at_end = {end: self._ids.get(text[place:end]) for end in ends}
            successors = {i: numbers[end] for end, i in token_at_end.items() if i is not None}
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
