"""Long lines: split into parts at sentence ends, between words, or inside very long words."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from seq2seq.data.vocabulary.vocabulary import Vocabulary

MAX_PARTS = 20  # per word; longer text without spaces is not language
_ENDS = ".!?\u0964\u0965\u3002\uff01\uff1f\u061f\u06d4"
_FULL = "\u3002\uff01\uff1f"  # sentence ends without a following space (Chinese, Japanese)
_CLOSING = "\u300d\u300f\uff09\u201d\u2019"
_BETWEEN_WORDS = re.compile("[ \t]+")  # a no-break space is part of a word
_SENTENCE_END = re.compile(
    rf"(?<=[{_ENDS}])\s+|(?:(?<=[{_FULL}])|(?<=[{_FULL}][{_CLOSING}]))(?=[^\s{_FULL}{_CLOSING}])"
)


def with_tag(texts: Sequence[str], tag: str | None) -> list[str]:
    """Put the tag of a line before those of its parts that do not begin with it."""
    if tag is None:
        return list(texts)
    return [text if text.split(maxsplit=1)[:1] == [tag] else f"{tag} {text}" for text in texts]


def split_line(line: str, vocabulary: Vocabulary, max_length: int) -> tuple[list[str], bool]:
    """Split a line into parts of at most `max_length` tokens, at sentence ends or between words.

    A longer word is split anywhere; after MAX_PARTS parts its rest is omitted, so that a file
    without spaces takes seconds, not hours. Return the parts and whether text was omitted.
    """
    parts: list[str] = []
    left_out = False
    for sentence in _SENTENCE_END.split(line):
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
        rest = word
        if length > max_length:
            *heads, rest = _split_word(word, vocabulary, max_length)
            yield from heads
            length = len(vocabulary.encode([rest])[0])
        if length:
            group.append(rest)
            room -= length
    if group:
        yield " ".join(group)


def _split_word(word: str, vocabulary: Vocabulary, max_length: int) -> Iterator[str]:
    """Split a word into parts of at most `max_length` tokens, in linear time."""
    start = 0
    while start < len(word):
        head = _longest_head(word[start : start + 8 * max_length], vocabulary, max_length)
        yield head
        start += len(head)


def _longest_head(word: str, vocabulary: Vocabulary, max_length: int) -> str:
    """Find by bisection the longest start of a word with at most `max_length` tokens."""
    fits, fails = 1, len(word) + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if len(vocabulary.encode([word[:middle]])[0]) <= max_length:
            fits = middle
        else:
            fails = middle
    return word[:fits]
