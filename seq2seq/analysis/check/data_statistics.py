"""What parallel text is like, as facts without a judgement; every line number counts from 1."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.corpus import ParallelText

UNUSUAL_RATIO = 3  # times as long as usual for the other side
RATIO_SLACK = 10  # characters added to both sides, so that short lines may differ freely
BLOCK = 500  # lines whose lengths are compared together
UNRELATED = 0.2  # correlation of lengths that translations stay well above
PROFILE_LINES = 4000  # of a side, evenly spread, from which its profile is taken

ODD_CHARACTERS = {
    "control": re.compile("[\x01-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]"),
    "tab": re.compile("\t"),
    "replacement": re.compile("\ufffd"),
    "private use": re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]"),
    "byte order mark": re.compile("\ufeff"),
    # The joiners U+200C and U+200D are not among them: Marathi, for one, needs them.
    "zero width": re.compile("[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f]"),
    "wrong encoding": re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac|\u00e0\u00a4"),
    "HTML": re.compile(r"&(?:amp|apos|gt|lt|nbsp|quot|#\d+|#x[0-9a-fA-F]+);"),
}
NOT_NFC = "not NFC"
ODD_KINDS = (*ODD_CHARACTERS, NOT_NFC)


class Lengths(NamedTuple):
    """Of the lines of one side, in characters or pieces."""

    mean: float
    most: int  # 95 % of the lines are no longer
    longest: int
    longest_line: int


class SideFacts(NamedTuple):
    """One side of a parallel text."""

    characters: Lengths
    odd: dict[str, list[int]]  # of each of ODD_KINDS that occurs: the lines


class TextFacts(NamedTuple):
    """A parallel text; lists hold line numbers."""

    lines: int
    blank: list[int]  # white space alone on a side
    repeated: list[int]  # the same pair stands before
    ambiguous: list[int]  # the same source stands before, and only with other targets
    identical: list[int]  # both sides are the same
    unusual: list[int]  # one side is UNUSUAL_RATIO times as long as usual for the other
    ratio: float | None  # target characters a source character, the median
    correlation: float | None  # of the sides' lengths; None where they vary too little
    unrelated: list[int]  # first lines of blocks of BLOCK lines whose lengths are unrelated
    src: SideFacts
    tgt: SideFacts


class Overlap(NamedTuple):
    """Lines of a text that stand in another one too: their sources, and whole pairs."""

    sources: list[int]
    pairs: list[int]


class Resemblance(NamedTuple):
    """How alike two texts' sides are, 0 to 1: the cosine of their character trigrams."""

    src_src: float
    src_tgt: float  # the first text's source and the second's target
    tgt_src: float
    tgt_tgt: float


def examine(text: ParallelText) -> TextFacts:
    """All that one text shows by itself; pairs with a blank side are only counted as such."""
    src, tgt = ([line.strip() for line in side] for side in (text.src, text.tgt))
    rows = [i for i in range(len(src)) if src[i] and tgt[i]]
    repeated, ambiguous = _repetitions(src, tgt, rows)
    lengths = _lengths([src[i] for i in rows]), _lengths([tgt[i] for i in rows])
    ratio = float(np.median(lengths[1] / lengths[0])) if rows else None
    unusual = np.flatnonzero(_is_unusual(*lengths, ratio or 1.0))
    return TextFacts(
        len(src),
        [i + 1 for i in range(len(src)) if not (src[i] and tgt[i])],
        repeated,
        ambiguous,
        [i + 1 for i in rows if src[i] == tgt[i]],
        [rows[k] + 1 for k in unusual],
        ratio,
        _correlation(*lengths),
        [rows[k] + 1 for k in _unrelated_blocks(*lengths)],
        SideFacts(measure([len(line) for line in src]), odd_lines(text.src)),
        SideFacts(measure([len(line) for line in tgt]), odd_lines(text.tgt)),
    )


def measure(lengths: Sequence[int]) -> Lengths:
    """Mean, 95 % and longest of the lines' lengths; there is at least one line."""
    values = np.array(lengths)
    longest = int(values.argmax())
    most = int(np.quantile(values, 0.95, method="inverted_cdf"))
    return Lengths(float(values.mean()), most, int(values[longest]), longest + 1)


def odd_lines(lines: Sequence[str]) -> dict[str, list[int]]:
    """The lines that hold each kind of odd character; a kind that does not occur is left out."""
    found = {
        kind: [number for number, line in enumerate(lines, start=1) if pattern.search(line)]
        for kind, pattern in ODD_CHARACTERS.items()
    }
    found[NOT_NFC] = [
        number
        for number, line in enumerate(lines, start=1)
        if not unicodedata.is_normalized("NFC", line)
    ]
    return {kind: numbers for kind, numbers in found.items() if numbers}


def overlap(text: ParallelText, other: ParallelText) -> Overlap:
    """Which lines of `text` stand in `other`, white space at the ends and blank lines aside."""
    pairs = set(_stripped(other))
    sources = {src for src, _ in pairs}
    both = [(number, pair) for number, pair in enumerate(_stripped(text), start=1) if all(pair)]
    return Overlap(
        [number for number, (src, _) in both if src in sources],
        [number for number, pair in both if pair in pairs],
    )


def resemblance(text: ParallelText, other: ParallelText) -> Resemblance:
    """How alike the sides of two texts are."""
    src, tgt, other_src, other_tgt = map(_profile, (text.src, text.tgt, other.src, other.tgt))
    return Resemblance(
        _cosine(src, other_src),
        _cosine(src, other_tgt),
        _cosine(tgt, other_src),
        _cosine(tgt, other_tgt),
    )


def _stripped(text: ParallelText) -> Iterator[tuple[str, str]]:
    for src, tgt in zip(text.src, text.tgt, strict=True):
        yield src.strip(), tgt.strip()


def _repetitions(
    src: Sequence[str], tgt: Sequence[str], rows: Sequence[int]
) -> tuple[list[int], list[int]]:
    seen: dict[str, set[str]] = {}
    repeated, ambiguous = [], []
    for i in rows:
        targets = seen.setdefault(src[i], set())
        if tgt[i] in targets:
            repeated.append(i + 1)
        elif targets:
            ambiguous.append(i + 1)
        targets.add(tgt[i])
    return repeated, ambiguous


def _lengths(lines: Sequence[str]) -> NDArray[np.float64]:
    return np.array([len(line) for line in lines], dtype=np.float64)


def _is_unusual(
    src: NDArray[np.float64], tgt: NDArray[np.float64], ratio: float
) -> NDArray[np.bool_]:
    """Where a side is UNUSUAL_RATIO times as long as the other and the median ratio suggest."""
    difference = np.log((tgt / ratio + RATIO_SLACK) / (src + RATIO_SLACK))
    return np.asarray(np.abs(difference) > math.log(UNUSUAL_RATIO))


def _correlation(src: NDArray[np.float64], tgt: NDArray[np.float64]) -> float | None:
    """Pearson's, of log lengths; None for fewer than 50 pairs and for lengths all alike."""
    first, second = np.log1p(src), np.log1p(tgt)
    if len(src) < 50 or first.std() < 0.1 or second.std() < 0.1:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _unrelated_blocks(src: NDArray[np.float64], tgt: NDArray[np.float64]) -> list[int]:
    """Where blocks begin whose lengths have nothing to do with one another.

    A block that varies less than the whole, as in a file sorted by length, says nothing.
    """
    logs = np.stack([np.log1p(src), np.log1p(tgt)])
    if not len(src):
        return []
    spread = 0.8 * logs.std(axis=1)
    found = []
    starts = [*range(0, len(src) - BLOCK, BLOCK), max(0, len(src) - BLOCK)]
    for start in starts:
        part = slice(start, start + BLOCK)
        correlation = _correlation(src[part], tgt[part])
        varied = bool((logs[:, part].std(axis=1) >= spread).all())
        if varied and correlation is not None and correlation < UNRELATED:
            found.append(start)
    return found


def _profile(lines: Sequence[str]) -> Counter[str]:
    """How often each character trigram occurs."""
    counts: Counter[str] = Counter()
    for line in lines[:: -(-len(lines) // PROFILE_LINES)]:
        padded = f" {line.strip()} "
        counts.update(padded[i : i + 3] for i in range(len(padded) - 2))
    return counts


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    norms = [math.sqrt(sum(n * n for n in counts.values())) for counts in (one, other)]
    if not all(norms):
        return 0.0
    return sum(n * other[trigram] for trigram, n in one.items()) / math.prod(norms)
