"""Parallel text from files: strict UTF-8, one sentence a line; every check on raw text is here.

A line ends at a line feed and nowhere else: a form feed, U+0085 or U+2028 inside a sentence cannot
shift one side against the other.
"""

import difflib
import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2seq.runtime.errors import UserError

FEWEST_WORDS = 20  # a side must have to be told from another language
MOST_LINES = 50_000  # of a side that its words are taken from


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations: `tgt[i]` translates `src[i]`."""

    src: Sequence[str]
    tgt: Sequence[str]
    source_name: str = "the parallel text"  # the files, for messages

    def __len__(self) -> int:
        return len(self.src)


def read_pairs(
    src: Path | None = None, tgt: Path | None = None, tsv: Path | None = None
) -> ParallelText:
    """Read parallel text from a file for each side, or else from one of tab-separated columns."""
    if tsv is not None:
        return read_tsv(tsv)
    assert src is not None, "give src and tgt, or tsv"
    assert tgt is not None, "give src and tgt, or tsv"
    return read_parallel(src, tgt)


def read_parallel(src: Path, tgt: Path) -> ParallelText:
    """Read two files whose lines translate one another; UserError where their numbers differ."""
    text = ParallelText(read_lines(src), read_lines(tgt), f"{src} and {tgt}")
    if len(text.src) != len(text.tgt):
        raise UserError(
            f"{src} has {_count(len(text.src), 'line')} and {tgt} has {len(text.tgt)}, but line n "
            f"of one must translate line n of the other; {_where_they_part(text, src, tgt)}"
        )
    return text


def read_tsv(path: Path) -> ParallelText:
    """Read column 1 as source and column 2 as target; quotes mean nothing, more columns neither."""
    rows = [line.split("\t", 2) for line in read_lines(path)]
    short = [number for number, row in enumerate(rows, start=1) if len(row) < 2]
    if short:
        others = f" (and so have {_count(len(short) - 1, 'other line')})" if short[1:] else ""
        raise UserError(
            f"{path}:{short[0]}: the line has no tab{others}; a line must be: source, a tab, target"
        )
    return ParallelText([row[0] for row in rows], [row[1] for row in rows], str(path))


def usable(text: ParallelText) -> tuple[ParallelText, int]:
    """Leave out pairs with a side of white space only; returns the others and the number left out.

    Raises UserError where no pair is left.
    """
    kept = [
        (src, tgt)
        for src, tgt in zip(text.src, text.tgt, strict=True)
        if src.strip() and tgt.strip()
    ]
    if not kept:
        raise UserError(
            f"{text.source_name}: none of the {_count(len(text), 'pair')} has text on both sides; "
            "check that these are the right files"
        )
    src, tgt = (list(side) for side in zip(*kept, strict=True))
    return ParallelText(src, tgt, text.source_name), len(text) - len(kept)


def count_same(text: ParallelText) -> int:
    """How many pairs have the same text on both sides."""
    return sum(map(str.__eq__, text.src, text.tgt))


def same_sides(text: ParallelText, counted: int | None = None) -> str | None:
    """Say so where half of the pairs or more have the same text on both sides.

    They are counted unless that was done before.
    """
    same = count_same(text) if counted is None else counted
    if 2 * same < len(text):
        return None
    return (
        f"note: both sides are the same text in {same:,} of {_count(len(text), 'pair')} of "
        f"{text.source_name}; check that these are the right files"
    )


def check_direction(train: ParallelText, other: ParallelText) -> None:
    """Refuse text whose sides are swapped against those of training.

    Judged by the words: most must be known from the wrong side, and few from the right one. Of a
    large training text, MOST_LINES or fewer, evenly spread, are looked at.
    """
    lines = slice(None, None, max(1, -(-len(train) // MOST_LINES)))
    known = [_words(train.src[lines]), _words(train.tgt[lines])]
    sides = [_words(other.src), _words(other.tgt)]
    if min(map(len, sides)) < FEWEST_WORDS:
        return
    right, wrong = (
        [len(side & words) / len(side) for side, words in zip(sides, against, strict=True)]
        for against in (known, known[::-1])
    )
    if min(wrong) > 0.5 and max(right) < 0.25:
        raise UserError(
            f"{other.source_name}: source and target seem swapped: {wrong[0]:.0%} of the source's "
            f"words are known from the target side of {train.source_name}, {right[0]:.0%} from its "
            "source side; swap them"
        )


def _words(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


def read_lines(path: Path) -> list[str]:
    r"""Read the lines of a UTF-8 file, unpacked where its name ends in `.gz`.

    A byte order mark at the start and one `\r` before each `\n` are dropped; nothing else changes.
    Raises UserError for a file that is missing, empty, damaged, not UTF-8, or has a NUL character.
    """
    data = _read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if not data:
        raise UserError(f"{path}: the file is empty; it needs one sentence a line")
    if (nul := data.find(b"\0")) >= 0:
        raise UserError(
            f"{path}:{_line_number(data, nul)}: a NUL character; "
            "the file is damaged or saved as UTF-16: save it as UTF-8"
        )
    lines = _decode(data, path).split("\n")
    if not lines[-1]:
        del lines[-1]  # what follows the last line feed is no line
    return [line.removesuffix("\r") for line in lines]


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_char_device():
            raise UserError(f"{path}: is a device, which may never end; name a file of text")
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return file.read()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{_suggest_file(path)}") from None
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(
            f"{path}: not a gzip file, or damaged; a plain text file must not end in .gz"
        ) from None
    except EOFError:
        raise UserError(f"{path}: the gzip file is cut off; copy or download it again") from None
    except OSError as error:
        reason = "this is a folder; name a file in it" if path.is_dir() else error.strerror
        raise UserError(f"{path}: {reason}") from None


def _suggest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        column = len(data[line_start : error.start].decode("utf-8")) + 1
        raise UserError(
            f"{path}:{_line_number(data, error.start)}: byte 0x{data[error.start]:02x} at column "
            f"{column} is not UTF-8; convert the file (iconv -f ENCODING -t UTF-8)"
        ) from None


def _line_number(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _where_they_part(text: ParallelText, src: Path, tgt: Path) -> str:
    """Guess in words which lines of the longer side have no counterpart on the other."""
    src_is_longer = len(text.src) > len(text.tgt)
    longer, shorter = (text.src, text.tgt) if src_is_longer else (text.tgt, text.src)
    longer_path, shorter_path = (src, tgt) if src_is_longer else (tgt, src)
    matching = _matching_lines(longer, shorter)
    if matching == len(shorter):
        return f"they seem to match until {shorter_path} ends: is it cut off?"
    extra = _count(len(longer) - len(shorter), "line")
    return (
        f"they seem to part ways near line {matching + 1}, where {longer_path} has {extra} more"
        " (judged by line lengths and question marks)"
    )


def _matching_lines(longer: Sequence[str], shorter: Sequence[str]) -> int:
    """How many lines match before the extra lines of the longer side, taken to be one block.

    Translations of long sentences are long (Gale and Church, 1993) and those of questions are
    questions: the block is taken out where the two sides then differ the least in sum.
    """
    long, short = _features(longer), _features(shorter)
    long[:, 0] -= np.median(long[:, 0]) - np.median(short[:, 0])  # one language may be wordier
    extra = len(longer) - len(shorter)
    before = np.abs(long[: len(short)] - short).sum(axis=1)  # line i beside line i
    after = np.abs(long[extra:] - short).sum(axis=1)  # line i + extra beside line i
    cost = np.append(0.0, np.cumsum(before)) + np.append(np.cumsum(after[::-1])[::-1], 0.0)
    return len(shorter) - int(np.argmin(cost[::-1]))  # of equal costs the last place


def _features(lines: Sequence[str]) -> NDArray[np.float64]:
    """What a line shares with its translation [lines, 2]: log length, and being a question."""
    marks = [any(mark in line for mark in "?\N{FULLWIDTH QUESTION MARK}؟") for line in lines]
    return np.stack([np.log1p([len(line.strip()) for line in lines]), np.array(marks, float)], 1)
