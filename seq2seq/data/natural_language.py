"""Recognise a side of a parallel text, or a column of a table, that is not natural language."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from seq2seq.data.spread import spread_rows

SAMPLE = 1000  # lines that are examined, from all of a text
MIN_LINES = 20
MANY = 0.5  # share of lines of the kinds below
CONSTANT = 0.9  # share of lines that share a value, or several words
FEW_VALUES = 0.01  # distinct values per line of a column of labels

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
    return _labels(rows) or _boilerplate(rows)


def describe(reason: Unnatural) -> str:
    """Describe what the lines are, with an example."""
    example = reason.example if len(reason.example) <= 40 else f"{reason.example[:37]}..."
    return f"{100 * reason.share:.0f}% of the lines are {reason.kind}, such as {example!r}"


def _kind(line: str) -> str | None:
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(line)), None)


def _labels(rows: dict[int, str]) -> Unnatural | None:
    """Recognise one value in nearly all lines, or few values of at most two words."""
    values = Counter(rows.values())
    (value, count), *_ = values.most_common(1)
    few = len(values) <= FEW_VALUES * len(rows) and all(len(value.split()) <= 2 for value in values)
    if not few and count < CONSTANT * len(rows):
        return None
    row = next(row for row, line in rows.items() if line == value)
    return Unnatural("labels", 1.0 if few else count / len(rows), row, value)


def _boilerplate(rows: dict[int, str]) -> Unnatural | None:
    """Recognise text most of whose words are the same in nearly all lines."""
    words = [set(re.findall(r"[^\W\d_]{2,}", line)) for line in rows.values()]
    counts = Counter(word for line_words in words for word in line_words)
    shared = {word for word, count in counts.items() if count >= CONSTANT * len(rows)}
    average = sum(map(len, words)) / len(words)
    if len(shared) < 3 or len(shared) < average / 2:
        return None
    first = next(row for row, line_words in zip(rows, words, strict=True) if shared <= line_words)
    share = sum(shared <= line_words for line_words in words) / len(words)
    return Unnatural("repetitions of one text", share, first, rows[first])
