"""A text cut by the length of its sources, in words."""

from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 5  # words of a bucket, unless it would have too few sentences
FEWEST = 20  # sentences of a bucket; with fewer, BLEU says little


class Bucket(NamedTuple):
    """The sentences with sources of `first` to `last` words; `rows` are their places."""

    first: int
    last: int
    rows: list[int]
    beyond: bool  # longer than any in training

    @property
    def label(self) -> str:
        """Its range of words, with a star where no source in training is as long."""
        span = f"{self.first}-{self.last}" if self.first < self.last else f"{self.first}"
        return f"{span}*" if self.beyond else span


def buckets(sources: Sequence[str], longest: int) -> list[Bucket]:
    """Cut into buckets, blank sources left out; `longest` is the most words of one in training.

    Neighbours with too few sentences are one bucket; but none holds both sources as long as those
    in training and longer ones.
    """
    lengths = {row: len(text.split()) for row, text in enumerate(sources)}
    known = {row: words for row, words in lengths.items() if 0 < words <= longest}
    beyond = {row: words for row, words in lengths.items() if words > longest}
    shortest = min(known.values(), default=1)
    return [*_cut(known, shortest, False), *_cut(beyond, longest + 1, True)]


def _cut(lengths: dict[int, int], first: int, beyond: bool) -> list[Bucket]:
    """Buckets from `first` words on; too few sentences at the end join the bucket before."""
    found: list[Bucket] = []
    most = max(lengths.values(), default=0)
    while first <= most:
        last = WIDTH * -(-first // WIDTH)  # ends at 5, 10, 15, ...
        while _within(lengths, first, last) < FEWEST and last < most:
            last += WIDTH
        if _within(lengths, last + 1, most) < FEWEST:
            last = most
        rows = [row for row, words in lengths.items() if first <= words <= last]
        found.append(Bucket(first, last, rows, beyond))
        first = last + 1
    return found


def _within(lengths: dict[int, int], first: int, last: int) -> int:
    return sum(first <= words <= last for words in lengths.values())
