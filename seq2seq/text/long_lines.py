"""Long lines, cut into parts of so many tokens: at sentence ends, between words, or anywhere."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from seq2seq.text.sentences import USUAL_HABITS, SentenceHabits, split_sentences

MAX_PARTS = 20  # per word; longer text without spaces is not language
_BETWEEN_WORDS = re.compile("[ \t]+")  # a no-break space is part of a word


class Tokenizer(Protocol):
    """Divides text into tokens, as a vocabulary does."""

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        ...

    def cuts(self, word: str) -> list[int]:
        """Return the ends of the parts that a word can be cut into."""
        ...


def split_line(
    line: str, tokenizer: Tokenizer, max_length: int, habits: SentenceHabits = USUAL_HABITS
) -> tuple[list[str], bool]:
    """Split a line into parts of at most `max_length` tokens, at sentence ends or between words.

    A longer word is split anywhere; after MAX_PARTS parts its rest is omitted, so that a file
    without spaces takes seconds, not hours. Return the parts and whether text was omitted.
    """
    parts: list[str] = []
    left_out = False
    for sentence in split_sentences(line, habits._replace(before_lower=True)):
        words = [word for word in _BETWEEN_WORDS.split(sentence) if word]
        lengths = [len(ids) for ids in tokenizer.encode(words)]
        left_out = left_out or max(lengths, default=0) > MAX_PARTS * max_length
        parts += _group(words, lengths, tokenizer, max_length)
    return parts, left_out


def _group(
    words: list[str], lengths: list[int], tokenizer: Tokenizer, max_length: int
) -> Iterator[str]:
    """Group words, of `lengths` tokens each, into parts of at most `max_length` tokens."""
    group: list[str] = []
    room = max_length
    for word, length in zip(words, lengths, strict=True):
        if length > room and group:
            yield " ".join(group)
            group = []
            room = max_length
        if length > MAX_PARTS * max_length:
            yield from islice(_split_word(word, tokenizer, max_length), MAX_PARTS)
            continue
        tail = word
        if length > max_length:
            *heads, tail = _split_word(word, tokenizer, max_length)
            yield from heads
            length = len(tokenizer.encode([tail])[0])
        if length:
            group.append(tail)
            room -= length
    if group:
        yield " ".join(group)


def _split_word(word: str, tokenizer: Tokenizer, max_length: int) -> Iterator[str]:
    """Split a word into parts of at most `max_length` tokens, in linear time, symbols intact."""

    def reached(start: int, ends: list[int]) -> int:
        return bisect_right(
            ends, max_length, key=lambda end: len(tokenizer.encode([word[start:end]])[0])
        )

    cuts = tokenizer.cuts(word)
    start = cut_number = 0
    while cut_number < len(cuts):
        cut_number += max(1, reached(start, cuts[cut_number : cut_number + 8 * max_length]))
        yield word[start : cuts[cut_number - 1]]
        start = cuts[cut_number - 1]
