"""Long lines: split into parts at sentence ends, between words, or inside very long words."""

import re
from collections.abc import Iterator
from itertools import islice

from seq2seq.data.sentences import split_sentences
from seq2seq.data.vocabulary.vocabulary import Vocabulary

MAX_PARTS = 20  # per word; longer text without spaces is not language
_BETWEEN_WORDS = re.compile("[ \t]+")  # a no-break space is part of a word


def split_line(line: str, vocabulary: Vocabulary, max_length: int) -> tuple[list[str], bool]:
    """Split a line into parts of at most `max_length` tokens, at sentence ends or between words.

    A longer word is split anywhere; after MAX_PARTS parts its rest is omitted, so that a file
    without spaces takes seconds, not hours. Return the parts and whether text was omitted.
    """
    parts: list[str] = []
    left_out = False
    for sentence in split_sentences(line, before_lower=True):
        words = [word for word in _BETWEEN_WORDS.split(sentence) if word]
        lengths = [len(ids) for ids in vocabulary.encode(words)]
        left_out = left_out or max(lengths, default=0) > MAX_PARTS * max_length
        parts += _group(words, lengths, vocabulary, max_length)
    return parts, left_out


def _group(
    words: list[str], lengths: list[int], vocabulary: Vocabulary, max_length: int
) -> Iterator[str]:
    """Group words, of `lengths` tokens each, into parts of at most `max_length` tokens."""
    group: list[str] = []
    room = max_length
    for word, length in zip(words, lengths, strict=True):
        if length > room and group:
            yield " ".join(group)
            group, room = [], max_length
        if length > MAX_PARTS * max_length:
            yield from islice(_split_word(word, vocabulary, max_length), MAX_PARTS)
            continue
        tail = word
        if length > max_length:
            *heads, tail = _split_word(word, vocabulary, max_length)
            yield from heads
            length = len(vocabulary.encode([tail])[0])
        if length:
            group.append(tail)
            room -= length
    if group:
        yield " ".join(group)


def _split_word(word: str, vocabulary: Vocabulary, max_length: int) -> Iterator[str]:
    """Split a word into parts of at most `max_length` tokens, in linear time, symbols intact."""
    cuts = vocabulary.cuts(word)
    start = done = 0
    while done < len(cuts):
        ends = cuts[done : done + 8 * max_length]
        done += _count_that_fit(word, start, ends, vocabulary, max_length)
        yield word[start : cuts[done - 1]]
        start = cuts[done - 1]


def _count_that_fit(
    word: str, start: int, ends: list[int], vocabulary: Vocabulary, max_length: int
) -> int:
    """Find by bisection the last of `ends` up to which a word has at most `max_length` tokens.

    Return its number, from 1; the first end counts in any case.
    """
    fits, fails = 1, len(ends) + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if len(vocabulary.encode([word[start : ends[middle - 1]]])[0]) <= max_length:
            fits = middle
        else:
            fails = middle
    return fits
