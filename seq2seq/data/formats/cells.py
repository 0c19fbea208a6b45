"""Text of a cell as one line, and errors about columns."""

import re
from collections.abc import Sequence
from pathlib import Path

from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import is_column_number
from seq2seq.runtime.files import LONE_SURROGATE
from seq2seq.runtime.suggestions import did_you_mean, shorten

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_SHOWN_NAMES = 10
_REMEDY = ". Choose columns by these names"
_HEADER_WORDS = frozenset(
    """column columns english french german id index label lang language line original pair
    reference score segment sentence sentences source src target text tgt translated translation
    trg""".split()  # noqa: SIM905
)


def as_line(text: str, place: str) -> str:
    """Return the text of a cell with line breaks as spaces, for a sentence is one line.

    Raises UserError for what no text in UTF-8 contains, a NUL character or a lone surrogate.
    """
    if "\n" in text or "\r" in text:
        text = _LINE_BREAK.sub(" ", text)
    if "\0" in text:
        raise UserError(f"{place}: contains a NUL character; no text does. Repair the file")
    if LONE_SURROGATE.search(text):
        raise UserError(f"{place}: contains half a surrogate pair, which UTF-8 has not; repair it")
    return text


def missing_column(
    path: Path, name: str, names: Sequence[str], remedy: str = "", other_format: str = ""
) -> UserError:
    """Return the error for a column that a file lacks, with the names it has.

    A hint to another format of the file replaces the others.
    """
    first = ", ".join(shorten(column) for column in names[:_SHOWN_NAMES])
    more = ", ..." * (len(names) > _SHOWN_NAMES)
    hint = other_format or did_you_mean(name, names) or f"{_REMEDY}{remedy}"
    return UserError(f"{path}:1: has no column {name!r}; it has: {first}{more}{hint}")


def position(path: Path, names: Sequence[str], name: str) -> int:
    """Return the place of a named column in a header; raises UserError if two have the name."""
    if names.count(name) > 1:
        raise UserError(
            f"{path}:1: {names.count(name)} columns are named {name!r}. Choose columns by number, "
            "or rename all but one"
        )
    return names.index(name)


def format_hint(line: str, ending: str) -> str:
    """Return a hint to the format that a line has, if it is not the one of the ending."""
    if line.lstrip().startswith("{"):
        suffix, kind = ".jsonl", "JSON lines"
    elif "\t" in line:
        suffix, kind = ".tsv", "TSV"
    elif "," in line and " " not in line:  # a header, not a sentence
        suffix, kind = ".csv", "CSV"
    else:
        return ""
    return "" if suffix == ending else f". It seems to be {kind}: give the file a name in {suffix}"


def as_numbers(columns: Sequence[str]) -> list[int] | None:
    """Return the positions, from 0, of columns given as numbers from 1; None if given by name."""
    if not all(map(is_column_number, columns)):
        return None
    return [int(column) - 1 for column in columns]


def is_header(line: str, languages: Sequence[str] = ()) -> bool:
    """Return whether all words of a line are names of columns or languages."""
    words = re.findall(r"[^\W\d_]+", line.lower())
    names = _HEADER_WORDS | {language.lower() for language in languages}
    return 0 < len(words) <= 3 and names.issuperset(words) and not line.rstrip().endswith(".")
