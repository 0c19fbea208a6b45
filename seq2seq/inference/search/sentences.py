"""Sentences to search: sources with what their translations must satisfy, and padded lengths."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL, Lexical
from seq2seq.inference.search.prefixes import NO_PREFIX, Prefix

WIDTH_STEP = 16  # padded source lengths are multiples of it


class Request(NamedTuple):
    """A source to translate, with what its translation must begin with and contain."""

    source: Ids  # without end-of-sentence
    limit: int  # tokens at most, without end-of-sentence, but for a prefix or phrases
    prefix: Prefix = NO_PREFIX
    lexical: Lexical = NO_LEXICAL
    marks: tuple[int, ...] = ()  # tokens that wait for all that the translation contains


class Sentence(NamedTuple):
    """A request as search reads it."""

    source: Ids  # without end-of-sentence
    limit: int  # tokens at most, end-of-sentence included
    prefix: Prefix
    lexical: Lexical
    seed: str
    placeholders: tuple[int, ...]  # source tokens that the translation contains once
    marks: tuple[int, ...] = ()


def make_sentence(request: Request, options: SearchOptions, seed: str = "") -> Sentence:
    """Return a sentence whose limit leaves room for what its translation must contain.

    The limit counts from the end of a prefix that leaves no room.
    """
    source, limit, prefix, lexical, marks = request
    forced = len(prefix.states)  # tokens at most
    placeholders: tuple[int, ...] = ()
    if options.kept_ids:
        placeholders = tuple(dict.fromkeys(token for token in source if token in options.kept_ids))
    limit = max(limit, 1 + len(placeholders))
    limit = limit if forced + len(placeholders) < limit else limit + forced
    limit = max(limit, options.min_length, forced + lexical.total + len(placeholders))
    return Sentence(source, limit + 1, prefix, lexical, seed, placeholders, marks)


def padded_width(source: Ids) -> int:
    """Return the padded length of a source, end-of-sentence included."""
    return -(-(len(source) + 1) // WIDTH_STEP) * WIDTH_STEP


def by_width(sources: Sequence[Ids]) -> dict[int, list[int]]:
    """Group sources by padded length, end-of-sentence included; in each group longest first."""
    groups: dict[int, list[int]] = {}
    for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])):
        groups.setdefault(padded_width(sources[i]), []).append(i)
    return groups


def queues(sentences: Sequence[Sentence]) -> Iterator[tuple[int, list[int]]]:
    """Yield padded lengths and the sentences searched together: those with phrases separately.

    They need beam search with any beam size, and the others must not depend on them.
    """
    for width, rows in by_width([sentence.source for sentence in sentences]).items():
        for with_phrases in (False, True):
            if chosen := [i for i in rows if bool(sentences[i].lexical.phrases) == with_phrases]:
                yield width, chosen
