"""Statistics of parallel text: duplicates, characters, tokens. Lines count from 1."""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from seq2seq.data.corpus import ParallelText, has_text
from seq2seq.data.vocabulary.vocabulary import UNK_ID, Ids, Vocabularies, Vocabulary
from seq2seq.text.sameness import sentence_key

MAX_RATIO = 3  # length ratio of an outlier, relative to the median ratio
RATIO_SLACK = 10  # characters added to both sides: ratios of short lines vary freely

TABLE = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text(encoding="utf-8"))
PATTERNS = {  # unusual characters by kind
    kind: re.compile(row["pattern"]) for kind, row in TABLE["characters"].items()
}
NOT_NFC = "not NFC"
UNUSUAL_KINDS = (*PATTERNS, NOT_NFC)


class SideStatistics(NamedTuple):
    """Statistics of one side of a parallel text."""

    unknown: float  # share of tokens that are unknown, in 0..1
    bytes: float  # share of tokens that are single bytes of unknown characters, in 0..1
    unusual_characters: dict[str, list[int]]  # lines of each of UNUSUAL_KINDS that occurs


class TextStatistics(NamedTuple):
    """Statistics of a parallel text; lists hold line numbers."""

    lines: int
    too_long: list[int]  # pairs with more tokens on a side than training accepts
    blank: list[int]  # pairs with a blank side
    duplicates: list[int]  # pairs that occur earlier in the text
    identical: list[int]  # pairs whose sides are equal
    length_outliers: list[int]  # pairs with MAX_RATIO times the usual length ratio, or its inverse
    length_ratio: float | None  # median of target characters per source character
    src: SideStatistics
    tgt: SideStatistics


class Overlap(NamedTuple):
    """Lines of one text whose source, or whose source and target, occur in another text."""

    sources: list[int]
    pairs: list[int]


def text_statistics(
    text: ParallelText, vocabularies: Vocabularies, max_length: int
) -> TextStatistics:
    """Compute the statistics of one text; pairs with a blank side count as blank or too long only.

    `max_length` is the most tokens of a side in training.
    """
    src, tgt = ([line.strip() for line in side] for side in (text.src, text.tgt))
    src_ids = vocabularies.src.encode(text.src)
    tgt_ids = vocabularies.tgt.encode(text.tgt)
    rows = [i for i in range(len(src)) if has_text(src[i], tgt[i])]
    first, second = (np.array([float(len(side[i])) for i in rows]) for side in (src, tgt))
    ratio = float(np.median(second / first)) if rows else None
    difference = np.log((second / (ratio or 1.0) + RATIO_SLACK) / (first + RATIO_SLACK))
    outliers = np.flatnonzero(np.abs(difference) > math.log(MAX_RATIO))
    longest = map(max, map(len, src_ids), map(len, tgt_ids))
    seen = set[tuple[str, str]]()
    duplicates = list[int]()
    for i in rows:
        if (src[i], tgt[i]) in seen:
            duplicates.append(i + 1)
        seen.add((src[i], tgt[i]))
    return TextStatistics(
        lines=len(src),
        too_long=[number for number, length in enumerate(longest, start=1) if length > max_length],
        blank=[i + 1 for i in range(len(src)) if not has_text(src[i], tgt[i])],
        duplicates=duplicates,
        identical=[i + 1 for i in rows if src[i] == tgt[i]],
        length_outliers=[rows[k] + 1 for k in outliers],
        length_ratio=ratio,
        src=_side_statistics(text.src, src_ids, vocabularies.src),
        tgt=_side_statistics(text.tgt, tgt_ids, vocabularies.tgt),
    )


def unusual_characters(lines: Sequence[str]) -> dict[str, list[int]]:
    """Return the lines with each kind of unusual character; kinds that do not occur are omitted."""
    tests: dict[str, Callable[[str], object]] = {
        **{kind: pattern.search for kind, pattern in PATTERNS.items()},
        NOT_NFC: lambda line: not unicodedata.is_normalized("NFC", line),
    }
    numbers = {
        kind: [number for number, line in enumerate(lines, start=1) if test(line)]
        for kind, test in tests.items()
    }
    return {kind: lines for kind, lines in numbers.items() if lines}


def overlap(text: ParallelText, reference: ParallelText) -> Overlap:
    """Find the lines of `text` that occur in `reference`, as translation reads them."""
    pairs = {*zip(map(sentence_key, reference.src), map(sentence_key, reference.tgt), strict=True)}
    sources = {src for src, _ in pairs}
    lines = zip(map(sentence_key, text.src), map(sentence_key, text.tgt), strict=True)
    numbered = [(number, pair) for number, pair in enumerate(lines, start=1) if has_text(*pair)]
    return Overlap(
        [number for number, pair in numbered if pair[0] in sources],
        [number for number, pair in numbered if pair in pairs],
    )


def _side_statistics(
    lines: Sequence[str], ids: Sequence[Ids], vocabulary: Vocabulary
) -> SideStatistics:
    tokens = vocabulary.tokens(range(len(vocabulary)))
    bytes_ = {i for i, token in enumerate(tokens) if re.fullmatch("<0x[0-9A-F]{2}>", token)}
    total = max(1, sum(map(len, ids)))
    return SideStatistics(
        sum(line.count(UNK_ID) for line in ids) / total,
        sum(i in bytes_ for line in ids for i in line) / total,
        unusual_characters(lines),
    )
