"""Cleaned copy of the training text: some pairs are dropped, the others copied unchanged."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from seq2seq.analysis.check.alignment import Alignment
from seq2seq.analysis.check.data_statistics import MOJIBAKE, TextStatistics
from seq2seq.config.schema import ParallelFiles
from seq2seq.data.corpus import ParallelText, iter_untagged, paths_of
from seq2seq.data.lines import iter_raw_lines
from seq2seq.data.tables import new_file, pair_writer
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import write_errors

if TYPE_CHECKING:
    from seq2seq.data.corpus import Texts

DROPPED = "dropped.tsv"  # number and reason of each dropped line
MIN_COPIED_WORDS = 3  # shorter identical pairs may be names or numbers


class Cleaning(NamedTuple):
    """Files that were written, and the numbers of pairs kept and dropped."""

    files: list[str]
    kept: int
    dropped: dict[str, int]  # pairs by reason; a pair counts for its first reason only


def together(parts: Sequence[Cleaning]) -> Cleaning:
    """Add up the cleaned copies of several corpora."""
    dropped: dict[str, int] = {}
    for part in parts:
        for reason, count in part.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    files = [file for part in parts for file in part.files]
    return Cleaning(files, sum(part.kept for part in parts), dropped)


def check_folder_to_write(folder: Path, files: "Texts") -> None:
    """Raise UserError if a cleaned text cannot be written: nothing is ever overwritten."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{folder}: exists and is not a folder; choose another name")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty, and nothing is overwritten; choose a new folder")
    if not folder.parent.is_dir():
        raise UserError(f"{folder}: there is no folder {folder.parent}; create it first")
    for path in paths_of(files).values():
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: can be read only once; a cleaned copy needs a regular file")


def reasons_to_drop(
    text: ParallelText,
    statistics: TextStatistics,
    alignment: Alignment,
    held_out: list[int],
    max_length: int,
) -> dict[int, str]:
    """Return the lines to drop, in order, with the first reason of each.

    `held_out` are the lines whose pair occurs in the validation or test text.
    """
    unusual = [side.unusual_characters for side in (statistics.src, statistics.tgt)]
    reasons = {
        "blank side": statistics.blank,
        "duplicate pair": statistics.duplicates,
        "pair also in valid or test": held_out,
        "identical sides": [
            line
            for line in statistics.identical
            if len(text.src[line - 1].split()) >= MIN_COPIED_WORDS
        ],
        f"more than {max_length} tokens on a side": statistics.too_long,
        "unusual length ratio": statistics.length_outliers,
        "damaged characters (U+FFFD)": [
            n for kinds in unusual for n in kinds.get("replacement", [])
        ],
        MOJIBAKE: [n for kinds in unusual for n in kinds.get(MOJIBAKE, [])],
        "misaligned": [line for stretch in alignment.stretches for line in stretch.lines],
    }
    first_reasons: dict[int, str] = {}
    for reason, lines in reasons.items():
        for line in lines:
            first_reasons.setdefault(line, reason)
    return dict(sorted(first_reasons.items()))


def write_cleaned(folder: Path, files: ParallelFiles, lines: int, drop: dict[int, str]) -> Cleaning:
    """Copy all pairs but those to drop into `folder`, under the names of their files.

    Lines are copied unchanged; CSV, JSON lines and Parquet keep the two columns that are read.
    Raises UserError if no pair would remain or the files have changed, RunError if writing fails.
    """
    if len(drop) == lines:
        raise UserError(f"{folder}: not written, because every pair would be dropped")
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    paths = paths_of(files)
    names = {key: path.name for key, path in paths.items()}
    if len(set(names.values()) | {DROPPED}) <= len(names):
        names = {key: f"{key}-{name}" for key, name in names.items()}
    for key, path in paths.items():
        if key == "alignment" or files.file is None or files.is_table:
            has_header = files.has_header and key != "alignment"
            with new_file(folder / names[key]) as file:
                count = _copy(path, file, drop, has_header)
        else:
            count = _rewrite(files, folder / names[key], drop)
        if count != lines:
            raise UserError(f"{path}: changed while being read. Try again, with a new folder.")
    with new_file(folder / DROPPED) as file:
        file.write("".join(f"{line}\t{reason}\n" for line, reason in drop.items()).encode())
    reasons = list(drop.values())
    counts = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
    written = [str(folder / name) for name in (*names.values(), DROPPED)]
    return Cleaning(written, lines - len(drop), counts)


def _copy(path: Path, file: IO[bytes], drop: dict[int, str], has_header: bool) -> int:
    """Copy the lines of a file that are not dropped; return the number of pairs."""
    number = 0
    for number, line in enumerate(iter_raw_lines(path), start=0 if has_header else 1):
        if number not in drop:
            file.write(line)
    return number


def _rewrite(files: ParallelFiles, path: Path, drop: dict[int, str]) -> int:
    """Write the pairs of a table that are not dropped; return the number of all pairs."""
    number = 0
    assert files.columns is not None, "of another table than TSV"
    with pair_writer([path], files.columns) as write:
        for number, pair in enumerate(iter_untagged(files), start=1):
            if number not in drop:
                write(*pair)
    return number
