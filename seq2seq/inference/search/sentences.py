"""Sentences in search: requests with their limits, queues by padded length, and their slots."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.engines.engine import Array
from seq2seq.inference.search.interface import Request, SearchOptions
from seq2seq.inference.search.lexical import Lexical, Prefix, path

WIDTH_STEP = 16  # padded source lengths are multiples of it


class Sentence(NamedTuple):
    """A request in search, and what its translation may have by the options of this search."""

    request: Request
    limit: int  # tokens at most, end-of-sentence included
    prefix: Prefix  # the whole translation, if that is fixed
    placeholders: tuple[int, ...] = ()  # source tokens that the translation contains once
    seed: str = ""  # for sampling

    @property
    def source(self) -> Ids:
        """Return the source tokens, without end-of-sentence."""
        return self.request.source

    @property
    def lexical(self) -> Lexical:
        """Return the phrases that the translation contains."""
        return self.request.lexical

    @property
    def marks(self) -> tuple[int, ...]:
        """Return the tokens that wait for all that the translation contains."""
        return self.request.marks


def make_sentence(request: Request, options: SearchOptions, sample: int = 0) -> Sentence:
    """Return a request whose limit leaves room for what its translation must contain.

    The limit counts from the end of a prefix that leaves no room, and has end-of-sentence. What is
    drawn for a sentence depends on it alone, not on the others.
    """
    prefix = request.prefix if request.fixed is None else path(request.fixed)
    forced = len(prefix.states)
    kept_tokens = [token for token in request.source if token in options.kept_ids]
    placeholders = tuple(dict.fromkeys(kept_tokens))
    limit = max(request.limit, 1 + len(placeholders))
    limit = limit if forced + len(placeholders) < limit else limit + forced
    limit = max(limit, options.min_length, forced + request.lexical.total + len(placeholders))
    seed = ""
    if options.sampling is not None:
        seed = f"{options.sampling.seed} {sample} {' '.join(map(str, request.source))}"
    return Sentence(request, limit + 1, prefix, placeholders, seed)


def by_width(sources: Sequence[Ids]) -> dict[int, list[int]]:
    """Group sources by padded length, end-of-sentence included; in each group longest first."""
    groups: dict[int, list[int]] = {}
    for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])):
        width = -(-(len(sources[i]) + 1) // WIDTH_STEP) * WIDTH_STEP
        groups.setdefault(width, []).append(i)
    return groups


def queues(sentences: Sequence[Sentence]) -> Iterator[tuple[int, list[int]]]:
    """Yield padded lengths and the sentences searched together: those with phrases separately.

    They need beam search with any beam size, and the others must not depend on them.
    """
    for width, rows in by_width([sentence.source for sentence in sentences]).items():
        for with_phrases in (False, True):
            queue = [i for i in rows if bool(sentences[i].lexical.phrases) == with_phrases]
            if queue:
                yield width, queue


class SlotTable:
    """Columns [B] with a row for each slot: the sentence that it holds, and how far its search is.

    An empty slot has limit 0.
    """

    def __init__(self, count: int) -> None:
        self.sentence_numbers = np.full(count, -1)  # -1: none
        self.lengths = np.zeros(count, np.int64)  # tokens so far
        self.limits = np.zeros(count, np.int64)  # tokens at most, end-of-sentence included
        self.source_lengths = np.ones(count, np.int64)  # end-of-sentence included
        self.starts = np.zeros(count, np.int64)  # number of the first step
        self.ends = np.zeros(count, np.int64)  # number of the step after the last, once it is done
        self.dead_ends = np.zeros(count, bool)  # rules left no next token to any hypothesis

    def __len__(self) -> int:
        return len(self.limits)

    def begin(self, slots: Array, entries: Sequence[tuple[int, Sentence]], step: int) -> None:
        """Start sentences, given with their numbers, in slots."""
        self.sentence_numbers[slots] = [number for number, _ in entries]
        self.limits[slots] = [sentence.limit for _, sentence in entries]
        self.source_lengths[slots] = [len(sentence.source) + 1 for _, sentence in entries]
        self.lengths[slots] = 0
        self.starts[slots] = step
        self.dead_ends[slots] = False

    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""
        for name, column in vars(self).items():
            setattr(self, name, column[slots])
