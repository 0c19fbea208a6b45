"""Translation of one line, and long lines: split into parts, then joined."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.data.vocabulary import Vocabulary

MAX_PARTS = 20  # per word; longer text without spaces is not language
_ENDS = ".!?\u0964\u0965\u3002\uff01\uff1f\u061f\u06d4"
_FULL = "\u3002\uff01\uff1f"  # sentence ends without a following space (Chinese, Japanese)
_CLOSING = "\u300d\u300f\uff09\u201d\u2019"
_BETWEEN_WORDS = re.compile("[ \t]+")  # a no-break space is part of a word
_SENTENCE_END = re.compile(
    rf"(?<=[{_ENDS}])\s+|(?:(?<=[{_FULL}])|(?<=[{_FULL}][{_CLOSING}]))(?=[^\s{_FULL}{_CLOSING}])"
)
_NO_SPACE_AFTER = tuple("\u3002\uff01\uff1f\u300d\u300f\uff09")


@dataclass(frozen=True)
class Translation:
    """Translation of one line; a blank line has a blank translation."""

    text: str = ""
    # log-probability in nats / length ** length_penalty; a mean over parts; nan if not requested
    score: float = 0.0
    src_tokens: list[str] = field(default_factory=list)  # end-of-sentence included
    tgt_tokens: list[str] = field(default_factory=list)
    attention_weights: list[list[float]] | None = None  # rows: target tokens, columns: source
    nbest: list[tuple[str, float]] = field(default_factory=list)  # text and score, best first
    parts: int = 1  # into which the line was split
    left_out: bool = False  # True if the end of a very long word was not translated
    notes: list[str] = field(
        default_factory=list
    )  # ways in which the line is unlike the training text


def split_line(line: str, vocabulary: "Vocabulary", max_length: int) -> tuple[list[str], bool]:
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
    words: list[str], lengths: list[int], vocabulary: "Vocabulary", max_length: int
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


def _split_word(word: str, vocabulary: "Vocabulary", max_length: int) -> Iterator[str]:
    """Split a word into parts of at most `max_length` tokens, in linear time."""
    start = 0
    while start < len(word):
        head = _longest_head(word[start : start + 8 * max_length], vocabulary, max_length)
        yield head
        start += len(head)


def _longest_head(word: str, vocabulary: "Vocabulary", max_length: int) -> str:
    """Find by bisection the longest start of a word with at most `max_length` tokens."""
    fits, fails = 1, len(word) + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if len(vocabulary.encode([word[:middle]])[0]) <= max_length:
            fits = middle
        else:
            fails = middle
    return word[:fits]


def join_parts(parts: list[Translation], n_best: int) -> Translation:
    """Join the translations of a line's parts; attention weights become diagonal blocks."""
    if not parts:
        return Translation(nbest=[("", 0.0)] * n_best)
    if len(parts) == 1:
        return _fill_nbest(parts[0], n_best)
    lengths = [len(part.tgt_tokens) for part in parts]
    ranks = [_fill_nbest(part, n_best).nbest for part in parts]
    nbest = [
        (
            _join_texts([text for text, _ in rank]),
            sum(n * score for n, (_, score) in zip(lengths, rank, strict=True)) / sum(lengths),
        )
        for rank in zip(*ranks, strict=True)
    ]
    return Translation(
        *nbest[0],
        [token for part in parts for token in part.src_tokens],
        [token for part in parts for token in part.tgt_tokens],
        _join_weights(parts),
        nbest,
        len(parts),
    )


def _join_texts(texts: list[str]) -> str:
    """Join texts by spaces, except after a Chinese or Japanese sentence end."""
    line = ""
    for text in filter(None, texts):
        line += text if not line or line.endswith(_NO_SPACE_AFTER) else f" {text}"
    return line


def _join_weights(parts: list[Translation]) -> list[list[float]] | None:
    """Return the parts' attention weights as blocks of one matrix; None if a part has none."""
    columns = sum(len(part.src_tokens) for part in parts)
    rows: list[list[float]] = []
    before = 0
    for part in parts:
        if part.attention_weights is None:
            return None
        after = columns - before - len(part.src_tokens)
        rows += [[0.0] * before + row + [0.0] * after for row in part.attention_weights]
        before += len(part.src_tokens)
    return rows


def _fill_nbest(part: Translation, n_best: int) -> Translation:
    """Repeat the last entry if search found fewer than `n_best`."""
    missing = n_best - len(part.nbest)
    return part if missing <= 0 else replace(part, nbest=part.nbest + part.nbest[-1:] * missing)
