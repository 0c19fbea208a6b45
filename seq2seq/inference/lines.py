"""Lines as they are searched: checked, counted, in chunks of bounded memory, and long ones cut."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from seq2seq.data.vocabulary.vocabulary import Vocabulary
from seq2seq.runtime import argument_types
from seq2seq.text.sentences import split_sentences

MAX_ATTENTION_TOKENS = 2000  # attention weights of longer lines, quadratic in length, are dropped
MAX_SQUARED_LENGTHS = 10_000_000  # searched at once, to bound the memory of attention weights


def line_list(lines: Iterable[str], name: str) -> list[str]:
    """Return lines without line ends, as of an open file; raises TypeError for other types."""
    return [
        line[:-1].removesuffix("\r") if line.endswith("\n") else line
        for line in argument_types.text_list(lines, name)
    ]


def counted(
    parts: Sequence[int], on_translated: Callable[[int], object] | None
) -> Callable[[int], None] | None:
    """Return a function of a part's number that reports complete lines, of some `parts` each."""
    if on_translated is None:
        return None
    if blank := parts.count(0):
        on_translated(blank)
    left = [*parts]
    line_of = [number for number, count in enumerate(parts) for _ in range(count)]

    def count(part: int) -> None:
        left[line_of[part]] -= 1
        if not left[line_of[part]]:
            on_translated(1)

    return count


def bounded_slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield slices, each of which ends where its sizes exceed MAX_SQUARED_LENGTHS in total."""
    start = total = 0
    for end, size in enumerate(sizes):
        total += size
        if total > MAX_SQUARED_LENGTHS:
            yield slice(start, end + 1)
            start, total = end + 1, 0
    if start < len(sizes):
        yield slice(start, len(sizes))


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


def _group(words: list[str], lengths: list[int], src: Vocabulary, max_length: int) -> Iterator[str]:
    """Group words, of `lengths` tokens each, into parts of at most `max_length` tokens."""
    group: list[str] = []
    room = max_length
    for word, length in zip(words, lengths, strict=True):
        if length > room and group:
            yield " ".join(group)
            group, room = [], max_length
        if length > MAX_PARTS * max_length:
            yield from islice(_split_word(word, src, max_length), MAX_PARTS)
            continue
        tail = word
        if length > max_length:
            *heads, tail = _split_word(word, src, max_length)
            yield from heads
            length = len(src.encode([tail])[0])
        if length:
            group.append(tail)
            room -= length
    if group:
        yield " ".join(group)


def _split_word(word: str, src: Vocabulary, max_length: int) -> Iterator[str]:
    """Split a word into parts of at most `max_length` tokens, in linear time, symbols intact."""

    def reached(start: int, ends: list[int]) -> int:
        return bisect_right(ends, max_length, key=lambda end: len(src.encode([word[start:end]])[0]))

    cuts = src.cuts(word)
    start = done = 0
    while done < len(cuts):
        done += max(1, reached(start, cuts[done : done + 8 * max_length]))
        yield word[start : cuts[done - 1]]
        start = cuts[done - 1]
