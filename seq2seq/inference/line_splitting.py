"""A line longer than `data.max_length`, cut into parts that are not."""

import re
from collections.abc import Iterator
from itertools import islice

from seq2seq.data.vocabulary import Vocabulary

MOST_PARTS = 20  # of a stretch without a space: what follows is no word of any language
_ENDS = ".!?\u0964\u0965\u3002\uff01\uff1f\u061f\u06d4"
_FULL = "\u3002\uff01\uff1f"  # the ends after which Chinese and Japanese set no space
_CLOSING = "\u300d\u300f\uff09\u201d\u2019"
_BETWEEN_WORDS = re.compile("[ \t]+")  # a no-break space stands within a word
_SENTENCE_END = re.compile(
    rf"(?<=[{_ENDS}])\s+|(?:(?<=[{_FULL}])|(?<=[{_FULL}][{_CLOSING}]))(?=[^\s{_FULL}{_CLOSING}])"
)


def cut_line(line: str, vocabulary: Vocabulary, longest: int) -> tuple[list[str], bool]:
    """Parts of at most `longest` pieces, cut at sentence ends, else between words.

    A longer word is cut where it must be, and after twenty parts of it the rest is left out, so
    that a file without any space takes seconds, not hours. Returns also whether that was done.
    """
    parts: list[str] = []
    left_out = False
    for sentence in _SENTENCE_END.split(line):
        words = [word for word in _BETWEEN_WORDS.split(sentence) if word]
        pieces = [len(ids) for ids in vocabulary.encode(words)]
        left_out = left_out or max(pieces, default=0) > MOST_PARTS * longest
        parts += _runs(words, pieces, vocabulary, longest)
    return parts, left_out


def _runs(
    words: list[str], pieces: list[int], vocabulary: Vocabulary, longest: int
) -> Iterator[str]:
    """Runs of words that have so many pieces each."""
    run: list[str] = []
    room = longest
    for word, count in zip(words, pieces, strict=True):
        if count > room and run:
            yield " ".join(run)
            run, room = [], longest
        if count > MOST_PARTS * longest:
            yield from islice(_heads(word, vocabulary, longest), MOST_PARTS)
            continue
        rest, length = word, count
        if count > longest:
            *heads, rest = _heads(word, vocabulary, longest)
            yield from heads
            length = len(vocabulary.encode([rest])[0])
        if length:
            run.append(rest)
            room -= length
    if run:
        yield " ".join(run)


def _heads(word: str, vocabulary: Vocabulary, longest: int) -> Iterator[str]:
    """The word in parts of at most `longest` pieces; the time it takes grows as its length."""
    start = 0
    while start < len(word):
        head = _head(word[start : start + 8 * longest], vocabulary, longest)
        yield head
        start += len(head)


def _head(word: str, vocabulary: Vocabulary, longest: int) -> str:
    """The longest beginning of the word, by halving, that has at most `longest` pieces."""
    fits, fails = 1, len(word) + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if len(vocabulary.encode([word[:middle]])[0]) <= longest:
            fits = middle
        else:
            fails = middle
    return word[:fits]
