"""Recognise a side of a parallel text, or a column of a table, that is not natural language."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from seq2seq.data.spread import spread_rows

SAMPLE = 1000  # lines that are examined, from all of a text
MIN_LINES = 20
MANY = 0.5  # share of lines of the kinds below

KINDS = {
    "numbers": re.compile(r"[^\w\s]*\d[\d\s.,:;/%eE+\-()]*[^\w\s]*"),
    "addresses": re.compile(r"(?:[a-zA-Z][\w+.-]*://|www\.|/)\S+|[\w.+-]+@[\w-]+\.[\w.-]+"),
    "identifiers": re.compile(r"(?=[!-~]*[\d_#])[!-~]*[A-Za-z_#][!-~]*"),  # one ASCII word
}


class Unnatural(NamedTuple):
    """Reason why lines are not natural language, with the share and the first of such lines."""

    kind: str
    share: float
    line: int  # from 1
    example: str


def not_language(lines: Sequence[str]) -> Unnatural | None:
    """Return the reason why lines are not natural language; None if they may be."""
    rows = {row + 1: lines[row].strip() for row in spread_rows(len(lines), SAMPLE)}
    rows = {row: line for row, line in rows.items() if line}
    if len(rows) < MIN_LINES:
        return None
    unnatural = [(row, kind) for row, line in rows.items() if (kind := _kind(line))]
    if len(unnatural) > MANY * len(rows):
        kinds = " or ".join(dict.fromkeys(kind for _, kind in unnatural))
        return Unnatural(kinds, len(unnatural) / len(rows), unnatural[0][0], rows[unnatural[0][0]])
    return None


def describe(reason: Unnatural) -> str:
    """Describe what the lines are, with an example."""
    example = reason.example if len(reason.example) <= 40 else f"{reason.example[:37]}..."
    return f"{100 * reason.share:.0f}% of the lines are {reason.kind}, such as {example!r}"


def _kind(line: str) -> str | None:
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(line)), None)
