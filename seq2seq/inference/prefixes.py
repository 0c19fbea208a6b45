"""The beginning that a translation must have: from text to the pieces that search may take."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary import EOS_ID, UNK_ID, Vocabulary, normalized, words_of
from seq2seq.runtime.errors import UserError

MOST_CHARACTERS = 2000  # of a prefix: search takes a step for each of its pieces
_SPECIAL = 4  # ids below are PAD's, UNK's, START's and END's


class PrefixState(NamedTuple):
    """What may follow when so much of a prefix is there."""

    pieces: Tensor  # [M], END among them where the translation may end
    onward: dict[int, int]  # the next state's number; a piece without one completes the prefix


class Prefix(NamedTuple):
    """The states from nothing to the last piece; each leads to later ones alone."""

    states: list[PrefixState]
    words: list[str]  # what to print for the unknown pieces it consists of

    def after(self, state: int, piece: int) -> int:
        """The state after a piece; `len(states)` once the prefix is complete."""
        done = len(self.states)
        return done if state == done else self.states[state].onward.get(piece, done)


NO_PREFIX = Prefix([], [])


def check_prefixes(texts: Sequence[str]) -> None:
    """Refuse, by UserError, a text that is too long for a prefix."""
    for number, text in enumerate(texts, start=1):
        if len(text) > MOST_CHARACTERS:
            raise UserError(
                f"prefix {number} has {len(text):,} characters; at most {MOST_CHARACTERS:,} can "
                "be asked for"
            )


class PrefixMaker:
    """Turns text into prefixes, in the pieces of one vocabulary.

    All words but the last are cut into pieces as in any text. The last may be the beginning of a
    longer word: search chooses among all pieces that spell it, or spell it and more. White space
    behind it says that it is complete.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        pieces = [piece.encode() for piece in vocabulary.tokens(range(len(vocabulary)))]
        ids = {piece: i for i, piece in enumerate(pieces)}
        self._bytes = [
            ids.pop(b"<0x%02X>" % byte) for byte in range(256 * vocabulary.has_byte_fallback)
        ]
        self._ids = {piece: i for piece, i in ids.items() if i >= _SPECIAL}
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._sorted), default=0)  # bytes of a piece

    def prefix(self, text: str) -> Prefix:
        """The prefix of this text; of white space alone, one that asks for nothing."""
        text = normalized(text).replace(SPACE, " ")
        words = words_of(text.strip())
        last = words.pop() if words and text == text.rstrip() else None
        (ids,) = self._vocabulary.encode([" ".join(words)])
        states = [_only(i, n + 1) for n, i in enumerate(ids)]
        if self._vocabulary.has_byte_fallback:
            if last is not None:
                return Prefix(states + self._spelt((SPACE + last).encode(), len(states)), [])
            return Prefix([*states, self._space] if states else [], [])
        unknown = [word for word, i in zip(words, ids, strict=True) if i == UNK_ID]
        if last is None:
            return Prefix(states, unknown)  # whatever follows is another word
        pieces = self._beginning((SPACE + last).encode())
        if pieces:
            return Prefix([*states, PrefixState(torch.tensor(pieces), {})], unknown)
        return Prefix([*states, _only(UNK_ID, len(states) + 1)], [*unknown, last])

    @cached_property
    def _space(self) -> PrefixState:
        """After a complete word: another, or the end."""
        return PrefixState(torch.tensor([*self._beginning(SPACE.encode()), EOS_ID]), {})

    def _spelt(self, rest: bytes, number: int) -> list[PrefixState]:
        """A state, from this number on, for each place in the rest where a piece may begin."""
        byte_wise: dict[int, bool] = {}  # place -> whether its byte is a piece there
        for start, size in _characters(rest):
            known = rest[start : start + size] in self._ids
            byte_wise |= dict.fromkeys(range(start, start + (1 if known else size)), not known)
        numbers = {place: number + n for n, place in enumerate([*byte_wise, len(rest)])}
        states = []
        for place, is_byte in byte_wise.items():
            onward = {i: numbers[end] for i, end in self._within(rest, place)}
            if is_byte:
                onward[self._bytes[rest[place]]] = numbers[place + 1]
            pieces = [*self._beginning(rest[place:]), *onward]
            states.append(PrefixState(torch.tensor(pieces), onward))
        return states

    def _within(self, rest: bytes, start: int) -> Iterator[tuple[int, int]]:
        """The pieces that spell some of the rest, and where they end."""
        for end in range(start + 1, min(len(rest), start + self._longest + 1)):
            if (i := self._ids.get(rest[start:end])) is not None:
                yield i, end

    def _beginning(self, rest: bytes) -> list[int]:
        """The pieces that begin with all of the rest."""
        size = len(rest)
        low = bisect_left(self._sorted, rest)
        high = bisect_right(self._sorted, rest, low, key=lambda piece: piece[:size])
        return [self._ids[piece] for piece in self._sorted[low:high]]


def _only(piece: int, following: int) -> PrefixState:
    return PrefixState(torch.tensor([piece]), {piece: following})


def _characters(text: bytes) -> Iterator[tuple[int, int]]:
    """Where each character of UTF-8 begins, and its number of bytes."""
    start = 0
    for character in text.decode():
        size = len(character.encode())
        yield start, size
        start += size
