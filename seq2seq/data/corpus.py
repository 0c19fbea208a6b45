"""Parallel text: sentence pairs from files, and checks of pairs and languages."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.lines import is_blank, iter_lines
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.config.schema import ParallelFiles

MIN_DISTINCT_WORDS = 20  # per side, to recognise its language
MAX_SAMPLED_LINES = 50_000  # per side of the training text, to collect its words


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations: `tgt[i]` translates `src[i]`."""

    src: Sequence[str]
    tgt: Sequence[str]
    source_name: str = "the parallel text"  # the files, for messages

    def __len__(self) -> int:
        return len(self.src)


def read_pairs(files: "ParallelFiles") -> ParallelText:
    """Return all pairs that `iter_pairs` yields."""
    src, tgt = [], []
    for src_line, tgt_line in iter_pairs(files):
        src.append(src_line)
        tgt.append(tgt_line)
    return ParallelText(src, tgt, source_name(files))


def iter_pairs(files: "ParallelFiles") -> Iterator[tuple[str, str]]:
    """Yield the source and target lines of a parallel text, blank lines included.

    In a TSV file, quotes have no special meaning and columns beyond the second are ignored. Raises
    UserError as `iter_lines` does, for sides of unequal length, and for a TSV line without a tab.
    """
    if files.tsv is not None:
        return _iter_columns(files.tsv)
    assert files.src is not None, "give src and tgt, or tsv"
    assert files.tgt is not None, "give src and tgt, or tsv"
    return _iter_aligned(files.src, files.tgt)


def paths_of(files: "ParallelFiles") -> dict[str, Path]:
    """Return the paths that are set, by config key."""
    paths = {"src": files.src, "tgt": files.tgt, "tsv": files.tsv}
    return {key: path for key, path in paths.items() if path is not None}


def source_name(files: "ParallelFiles") -> str:
    """Return the paths of a parallel text as messages name it."""
    return " and ".join(map(str, paths_of(files).values()))


def usable(text: ParallelText) -> tuple[ParallelText, int]:
    """Drop pairs with a blank side; return the remaining pairs and the number dropped.

    Raises UserError if no pair remains.
    """
    kept = [pair for pair in zip(text.src, text.tgt, strict=True) if has_text(*pair)]
    if not kept:
        raise no_usable_pair(text.source_name, len(text))
    src, tgt = (list(side) for side in zip(*kept, strict=True))
    return ParallelText(src, tgt, text.source_name), len(text) - len(kept)


def has_text(src: str, tgt: str) -> bool:
    """Return whether neither side of a pair is blank."""
    return not (is_blank(src) or is_blank(tgt))


def no_usable_pair(name: str, pairs: int) -> UserError:
    """Return the error for a text all of whose pairs have a blank side."""
    return UserError(
        f"{name}: none of the {_count(pairs, 'pair')} has text on both sides. "
        "Check that these are the right files."
    )


def count_same(text: ParallelText) -> int:
    """Count pairs with identical source and target."""
    return sum(map(str.__eq__, text.src, text.tgt))


def same_sides(text: ParallelText, same: int | None = None) -> str | None:
    """Return a note if at least half of the pairs have identical sides (`same`, if counted)."""
    if same is None:
        same = count_same(text)
    if 2 * same < len(text):
        return None
    return (
        f"note: source and target are identical in {same:,} of {_count(len(text), 'pair')} of "
        f"{text.source_name}; check that these are the right files"
    )


def check_direction(train: ParallelText, other: ParallelText) -> None:
    """Raise UserError if the sides of `other` are swapped relative to the training text.

    They are if more than half of the distinct words of each side occur on the opposite side of the
    training text and fewer than a quarter on the same side. At most MAX_SAMPLED_LINES evenly spaced
    training lines are read.
    """
    lines = slice(None, None, max(1, -(-len(train) // MAX_SAMPLED_LINES)))
    known = [_words(train.src[lines]), _words(train.tgt[lines])]
    sides = [_words(other.src), _words(other.tgt)]
    if min(map(len, sides)) < MIN_DISTINCT_WORDS:
        return
    same, opposite = (
        [len(side & words) / len(side) for side, words in zip(sides, against, strict=True)]
        for against in (known, known[::-1])
    )
    if min(opposite) > 0.5 and max(same) < 0.25:
        raise UserError(
            f"{other.source_name}: source and target seem to be swapped: {opposite[0]:.0%} of its "
            f"source words occur on the target side of {train.source_name} and {same[0]:.0%} on "
            "the source side. Swap the two files."
        )


def _words(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


def _iter_columns(path: Path) -> Iterator[tuple[str, str]]:
    lines = iter_lines(path)
    for number, line in enumerate(lines, start=1):
        src, tab, rest = line.partition("\t")
        if not tab:
            others = sum("\t" not in later for later in lines)
            more = f" (the first of {others + 1} such lines)" if others else ""
            raise UserError(
                f"{path}:{number}: the line has no tab{more}. "
                "Each line must be: source, a tab, target."
            )
        yield src, rest.partition("\t")[0]


def _iter_aligned(src: Path, tgt: Path) -> Iterator[tuple[str, str]]:
    src_lines, tgt_lines = iter_lines(src), iter_lines(tgt)
    for count, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines)):
        if src_line is None or tgt_line is None:
            src_count = count + (src_line is not None) + sum(1 for _ in src_lines)
            tgt_count = count + (tgt_line is not None) + sum(1 for _ in tgt_lines)
            raise UserError(
                f"{src} has {_count(src_count, 'line')} and {tgt} has {tgt_count}, but line n of "
                f"one must translate line n of the other{_divergence(src, tgt)}"
            )
        yield src_line, tgt_line


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _divergence(src: Path, tgt: Path) -> str:
    """Describe which lines of the longer file have no counterpart; empty for pipes."""
    if not (src.is_file() and tgt.is_file()):
        return ""  # cannot be read again
    features = [(_features(path), path) for path in (src, tgt)]
    (shorter, shorter_path), (longer, longer_path) = sorted(features, key=lambda each: len(each[0]))
    if not longer[len(shorter) :].any():
        blank = _count(len(longer) - len(shorter), "blank line")
        return (
            f"; they seem to match, but {longer_path} ends with {blank} more. Delete the blank end"
        )
    matching = _matching_lines(longer, shorter)
    if matching == len(shorter):
        return f"; they seem to match until {shorter_path} ends: is it truncated?"
    extra = _count(len(longer) - len(shorter), "more line")
    return (
        f"; they seem to diverge near line {matching + 1}, where {longer_path} has {extra} "
        "(estimated from line lengths and question marks)"
    )


def _matching_lines(longer: NDArray[np.float64], shorter: NDArray[np.float64]) -> int:
    """Estimate the number of lines before the extra lines of the longer side, given features.

    The extra lines are assumed to form one block. Long sentences have long translations (Gale and
    Church, 1993) and questions are translated as questions: the block is placed where the remaining
    lines differ least in total.
    """
    longer = longer - [np.median(longer[:, 0]) - np.median(shorter[:, 0]), 0]  # wordier language
    extra = len(longer) - len(shorter)
    before = np.abs(longer[: len(shorter)] - shorter).sum(axis=1)  # line i beside line i
    after = np.abs(longer[extra:] - shorter).sum(axis=1)  # line i + extra beside line i
    cost = np.append(0.0, np.cumsum(before)) + np.append(np.cumsum(after[::-1])[::-1], 0.0)
    return len(shorter) - int(np.argmin(cost[::-1]))  # the last minimum


def _features(path: Path) -> NDArray[np.float64]:
    """Return features that translations share [lines, 2]: log length and being a question."""
    marks = "?\N{FULLWIDTH QUESTION MARK}؟"
    rows = [(len(line.strip()), any(mark in line for mark in marks)) for line in iter_lines(path)]
    lengths, questions = np.array(rows, float).T
    return np.stack([np.log1p(lengths), questions], axis=1)
