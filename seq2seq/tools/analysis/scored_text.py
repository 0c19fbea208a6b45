"""Scored translations of a text, and BLEU by the length of the source."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from seq2seq.evaluation import metrics
from seq2seq.evaluation.bootstrap import RESAMPLES, Counts
from seq2seq.evaluation.metrics import Scores
from seq2seq.evaluation.segmentation import Segmentation, segmentation_of
from seq2seq.text.characters import is_blank

MIN_SENTENCES = 20  # in a bucket; BLEU of fewer means little


class ScoredText(NamedTuple):
    """Translations of a text with their scores."""

    segmentation: Segmentation
    scores: Scores
    counts: Counts  # statistics of BLEU, a row for each sentence

    def bleu(self, bucket: "Bucket") -> float:
        """Return the BLEU of the sentences in a bucket."""
        return metrics.score_of("bleu", self.counts[bucket.rows])


def score_text(
    hypotheses: list[str],
    references: Sequence[str],
    language: str,
    lowercase: bool = False,
    bootstrap: int = RESAMPLES,
) -> ScoredText:
    """Score translations into a language, by the tokenizer that suits the references."""
    segmentation = segmentation_of(language, [references])
    scores = metrics.score(hypotheses, [references], lowercase, segmentation, bootstrap)
    counts = metrics.counts_by("bleu", hypotheses, references, lowercase, segmentation)
    return ScoredText(segmentation, scores, counts)


class LengthUnit(NamedTuple):
    """Unit of the length of a line."""

    name: str  # in the plural
    bucket_width: int
    length: Callable[[str], int]


WORDS = LengthUnit("words", 5, lambda line: len(line.split()))
CHARACTERS = LengthUnit("characters", 10, lambda line: sum(map(len, line.split())))


def length_unit(lines: Sequence[str]) -> LengthUnit:
    """Return the unit for lines: characters in scripts without spaces between words."""
    return WORDS if segmentation_of("", [lines]).script is None else CHARACTERS


class Bucket(NamedTuple):
    """Sentences with sources of `first` to `last` words or characters."""

    first: int
    last: int
    rows: list[int]  # indices of the sentences
    beyond: bool  # longer than any source in training

    @property
    def label(self) -> str:
        """Range of source lengths, with a star if beyond training."""
        span = f"{self.first}-{self.last}" if self.first < self.last else f"{self.first}"
        return f"{span}*" if self.beyond else span


def length_buckets(sources: Sequence[str], longest: int, unit: LengthUnit = WORDS) -> list[Bucket]:
    """Sort non-blank sources into buckets; `longest` is the length of the longest in training.

    Neighbours of too few sentences are merged, but never with sources longer than in training.
    """
    lengths = {row: 0 if is_blank(text) else unit.length(text) for row, text in enumerate(sources)}
    trained = {row: length for row, length in lengths.items() if 0 < length <= longest}
    beyond = {row: length for row, length in lengths.items() if length > longest}
    shortest = min(trained.values(), default=1)
    width = unit.bucket_width
    return [*_cut(trained, shortest, width, False), *_cut(beyond, longest + 1, width, True)]


def _cut(lengths: dict[int, int], first: int, width: int, beyond: bool) -> list[Bucket]:
    """Return buckets from `first` on; too few sentences at the end join the last bucket."""
    buckets: list[Bucket] = []
    longest = max(lengths.values(), default=0)
    while first <= longest:
        last = width * -(-first // width)  # ends at multiples of the width
        while _within(lengths, first, last) < MIN_SENTENCES and last < longest:
            last += width
        if _within(lengths, last + 1, longest) < MIN_SENTENCES:
            last = longest
        rows = [row for row, length in lengths.items() if first <= length <= last]
        buckets.append(Bucket(first, last, rows, beyond))
        first = last + 1
    return buckets


def _within(lengths: dict[int, int], first: int, last: int) -> int:
    return sum(first <= length <= last for length in lengths.values())
