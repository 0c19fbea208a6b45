"""Splits of a sorted text: training on short lines and validating on long ones, for instance."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from seq2seq.analysis.check.findings import Finding
from seq2seq.data.corpus import ParallelText
from seq2seq.data.spread import spread

APART = 0.9  # share of comparisons in which one split is longer, or later in the alphabet
MIN_LINES = 20
SAMPLE = 2000  # lines of the split that are compared


class SplitOrder(NamedTuple):
    """Shares of comparisons in which a source of one text exceeds one of another."""

    longer: float | None  # None for fewer than MIN_LINES lines
    later: float | None  # in alphabetical order
    median: int  # characters
    other_median: int


def split_order(text: ParallelText, other: ParallelText) -> SplitOrder:
    """Compare the sources of one text with those of another by length and by alphabet."""
    own, others = ([line.strip() for line in each.src if line.strip()] for each in (text, other))
    if min(len(own), len(others)) < MIN_LINES:
        return SplitOrder(None, None, 0, 0)
    sample = spread(own, SAMPLE)
    lengths, other_lengths = [len(line) for line in sample], [len(line) for line in others]
    return SplitOrder(
        _exceeding(lengths, sorted(other_lengths)),
        _exceeding(sample, sorted(others)),
        int(np.median(lengths)),
        int(np.median(other_lengths)),
    )


def order_findings(name: str, other: str, found: SplitOrder) -> Iterator[Finding]:
    """Judge whether a split differs from the training text as parts of a sorted text do."""
    if found.longer is None or found.later is None:
        text = f"{name}: lengths not compared with {other}: fewer than {MIN_LINES} lines"
        yield Finding("split", False, text, done=False)
        return
    remedy = f"If {name} and {other} are parts of a sorted text, shuffle it and split it again."
    if not 1 - APART <= found.longer <= APART:
        word = "longer" if found.longer > 0.5 else "shorter"
        share = max(found.longer, 1 - found.longer)
        text = (
            f"{name}: a source is {word} than one of {other} in {100 * share:.0f}% of comparisons "
            f"(median {found.median:,} and {found.other_median:,} characters): scores will not be "
            f"those of text like {other}. {remedy}"
        )
        yield Finding("split", True, text)
    elif not 1 - APART <= found.later <= APART:
        word = "after" if found.later > 0.5 else "before"
        share = max(found.later, 1 - found.later)
        text = (
            f"{name}: a source comes {word} one of {other} in alphabetical order in "
            f"{100 * share:.0f}% of comparisons. {remedy}"
        )
        yield Finding("split", True, text)
    else:
        text = f"{name}: sources are neither longer nor shorter than those of {other}"
        yield Finding("split", False, text)


def _exceeding(values: Sequence[Any], others: Sequence[Any]) -> float:
    """Return how often a value exceeds one of the sorted others; ties count half."""
    sums = (bisect_left(others, value) + bisect_right(others, value) for value in values)
    return sum(sums) / (2 * len(values) * len(others))
