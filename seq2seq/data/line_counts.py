"""Line-aligned files: read in lockstep; files of unequal length are compared while streaming."""

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.lines import is_blank, iter_lines
from seq2seq.runtime.console import hides_bars
from seq2seq.runtime.errors import UserError

MAX_COUNTED_LINES = 1_000_000  # further lines that are counted for a message
_BLOCK_LINES = 10_000  # compared at a time
_MEDIAN_LINES = 200_000  # first lines, of which the median length is taken
_QUESTION_MARKS = "?\N{FULLWIDTH QUESTION MARK}\N{ARABIC QUESTION MARK}"

Features = NDArray[np.float64]
Line = TypeVar("Line", str, bytes)


class _Rest(NamedTuple):
    """Lines of the longer file beyond the end of the shorter one."""

    lines: int  # at most MAX_COUNTED_LINES, or as many as the shorter file has
    complete: bool  # all were counted
    blank: bool  # none of those counted has text


def aligned_lines(src: Path, tgt: Path) -> Iterator[tuple[str, str]]:
    """Yield line n of both files together; raise UserError if they have unequal numbers of lines.

    The error estimates where the sides diverge. Memory does not depend on the size of the files.
    """
    src_lines, tgt_lines = iter_lines(src), iter_lines(tgt)
    for count, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines)):
        if tgt_line is None:
            raise _unequal(src, tgt, count, _count_rest(src_line, src_lines, count), True)
        if src_line is None:
            raise _unequal(src, tgt, count, _count_rest(tgt_line, tgt_lines, count), False)
        yield src_line, tgt_line


def read_aligned(named: Sequence[tuple[str, Iterator[str]]]) -> list[list[str]]:
    """Return the lines of texts given by name; raises UserError if their numbers differ."""
    return [list(lines) for lines in zip(*in_step(named), strict=True)]


def in_step(
    named: Sequence[tuple[str, Iterator[Line]]],
    rule: str = "line N of one must belong to line N of the other",
) -> Iterator[tuple[Line, ...]]:
    """Yield line n of all texts together, given by name.

    Raises UserError with `rule` as soon as one of them ends before another.
    """
    iterators = [lines for _, lines in named]
    number = 0  # complete rows
    for row in zip_longest(*iterators):
        if None in row:
            break
        yield row
        number += 1
    else:
        return
    counts = [_count_from(number, *text) for text in zip(row, iterators, strict=True)]
    different = next(n for n, count in enumerate(counts) if count != counts[0])
    noun = "line" if counts[0] == "1" else "lines"
    raise UserError(
        f"{named[0][0]} has {counts[0]} {noun} but {named[different][0]} has "
        f"{counts[different]}: {rule}"
    )


def _count_from(number: int, line: Line | None, lines: Iterator[Line]) -> str:
    """Return the number of lines of a text, of which `number` and perhaps `line` were read."""
    if line is None:
        return str(number)
    count = number + 1 + sum(1 for _ in islice(lines, MAX_COUNTED_LINES))
    return f"more than {count}" if next(lines, None) is not None else str(count)


def _count_rest(first: str, lines: Iterator[str], shorter: int) -> _Rest:
    limit, count, blank = max(MAX_COUNTED_LINES, shorter), 1, is_blank(first)
    for line in islice(lines, limit - 1):
        count += 1
        blank = blank and is_blank(line)
    return _Rest(count, next(lines, None) is None, blank)


def _unequal(src: Path, tgt: Path, shorter: int, excess: _Rest, src_is_longer: bool) -> UserError:
    more = "" if excess.complete else "more than "
    counts = [f"{more}{shorter + excess.lines}", str(shorter)]
    src_count, tgt_count = counts if src_is_longer else counts[::-1]
    noun = "line" if src_count == "1" else "lines"
    paths = (src, tgt) if src_is_longer else (tgt, src)
    return UserError(
        f"{src} has {src_count} {noun} and {tgt} has {tgt_count}, but line n of one must "
        f"translate line n of the other{_divergence(*paths, shorter, excess)}"
    )


def _divergence(longer: Path, shorter: Path, lines: int, excess: _Rest) -> str:
    """Describe which lines of the longer file have no counterpart; empty for pipes."""
    if not (longer.is_file() and shorter.is_file() and excess.complete):
        return ""  # cannot be read again, or is far too long
    extra = "line" if excess.lines == 1 else "lines"
    if excess.blank:
        return (
            f"; they seem to match, but {longer} ends with {excess.lines} blank {extra} more. "
            "Delete the blank end"
        )
    matching = _matching_lines(longer, shorter, excess.lines)
    if matching == lines:
        return f"; they seem to match until {shorter} ends: is it truncated?"
    return (
        f"; they seem to diverge near line {matching + 1}, where {longer} has {excess.lines} more "
        f"{extra} (estimated from line lengths and question marks)"
    )


def _matching_lines(longer: Path, shorter: Path, extra: int) -> int:
    """Estimate the number of lines before the extra lines of the longer side.

    The extra lines are assumed to form one block. Long sentences have long translations (Gale and
    Church, 1993) and questions are translated as questions: the block is placed where the remaining
    lines differ least in total.
    """
    wordier = [_median(longer) - _median(shorter), 0]
    best, least, total = 0, 0.0, 0.0
    start = 0
    from tqdm import tqdm

    with tqdm(desc="comparing", unit=" lines", leave=False, disable=hides_bars()) as bar:
        for same, moved, second in zip(
            _features(longer), _features(longer, extra), _features(shorter), strict=False
        ):
            before = np.abs(same[: len(second)] - wordier - second).sum(axis=1)  # line i beside i
            after = np.abs(moved[: len(second)] - wordier - second).sum(
                axis=1
            )  # i + extra beside i
            costs = total + np.cumsum(before - after)  # if the block follows line i
            place = len(costs) - 1 - int(np.argmin(costs[::-1]))  # the last minimum
            if costs[place] <= least:
                least, best = float(costs[place]), start + place + 1
            total, start = float(costs[-1]), start + len(costs)
            bar.update(len(costs))
    return best


def _median(path: Path) -> float:
    lengths = [len(line.strip()) for line in islice(iter_lines(path), _MEDIAN_LINES)]
    return float(np.median(np.log1p(lengths)))


def _features(path: Path, skipped: int = 0) -> Iterator[Features]:
    """Yield blocks of features that translations share [lines, 2]: log length, being a question."""
    lines = islice(iter_lines(path), skipped, None)
    while block := list(islice(lines, _BLOCK_LINES)):
        rows = [
            (len(line.strip()), any(mark in line for mark in _QUESTION_MARKS)) for line in block
        ]
        lengths, questions = np.array(rows, float).T
        yield np.stack([np.log1p(lengths), questions], axis=1)
