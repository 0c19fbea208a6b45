"""References that are written otherwise than the translations are noted; others are not."""

import re
from collections.abc import Callable, Sequence

import pytest

from seq2seq.evaluation.writing_notes import shift_of, writing_notes

TEXT = "Der Hund sieht heute l'arbre vor dem alten Haus in Berlin und schläft dann"
WORDS = TEXT.split()
LINES = [
    f"{WORDS[n % 13]} {WORDS[3 * n % 13]} {WORDS[(5 * n + 1) % 13]}, {WORDS[4]} {n % 7}{end}"
    for n, end in enumerate(".!?." * 8)
]
OTHERWISE: dict[str, tuple[Callable[[str], str], str]] = {
    "tokenised": (lambda line: re.sub(r"([.,!?])", r" \1", line), "seem to be tokenised"),
    "lower case": (str.lower, "in lower case"),
    "capitals": (str.upper, "in capitals"),
    "subwords": (lambda line: line.replace("sch", "sch@@ ").replace("er", "er@@ "), "subword"),
    "escaped": (lambda line: line.replace("'", "&apos;"), "HTML entities"),
    "apostrophes": (lambda line: line.replace("'", "\u2019"), "write \u2019 where"),
    "full width": (lambda line: line.replace(".", "\u3002"), "write \u3002 where"),
}


@pytest.mark.parametrize("name", OTHERWISE)
@pytest.mark.parametrize("of_references", [True, False])
def test_one_side_written_otherwise_is_noted(name: str, of_references: bool) -> None:
    change, message = OTHERWISE[name]
    changed = list(map(change, LINES))
    sides = (LINES, changed) if of_references else (changed, LINES)
    if not of_references and message.startswith("write"):
        message = "references write"
    (note,) = writing_notes(*sides)
    assert message in note
    assert writing_notes(changed, changed) == []


@pytest.mark.parametrize("name", OTHERWISE)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_references_written_otherwise_are_noted(name: str, count: int) -> None:
    """A line is enough if it has what is written otherwise."""
    change, message = OTHERWISE[name]
    lines = [f"Der Hund schläft bei l'arbre {number}." for number in range(count)]
    (note,) = writing_notes(lines, list(map(change, lines)))
    assert message in note


@pytest.mark.parametrize(
    ("hypothesis", "reference"),
    [
        ("Ja - nein", "Ja, nein."),
        ("Er sagt: ja.", "Er sagt 'ja' !"),
        ("Das geht \u2019s!", "Es geht nicht 'so'."),
        ("Komm, geh", "Komm - geh!"),
        ("\u201eJa\u201c.", '"Nein".'),
    ],
)
def test_a_line_of_other_marks_is_not_noted(hypothesis: str, reference: str) -> None:
    assert writing_notes([hypothesis], [reference]) == []
    assert writing_notes([reference], [hypothesis]) == []


def test_case_is_not_noted_where_scores_ignore_it() -> None:
    assert writing_notes(LINES, list(map(str.lower, LINES)), lowercase=True) == []


def other_translations(lines: Sequence[str]) -> list[str]:
    """Return lines with some words and marks exchanged, as another translator would write them."""
    return [
        line.replace("Hund", "Vogel").replace("!", ".") if number % 3 else line.replace(",", "")
        for number, line in enumerate(lines)
    ]


def test_other_translations_in_the_same_writing_are_not_noted() -> None:
    assert writing_notes(other_translations(LINES), LINES) == []
    assert writing_notes([line.replace("!", ".") for line in LINES], LINES) == []
    assert writing_notes(["Ja"], ["Nein."]) == []
    assert writing_notes([], []) == []


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
def test_references_of_other_lines_are_noted(shift: int) -> None:
    lines = [f"{line} {chr(97 + n % 26) * 5} {n * n * 7919}" for n, line in enumerate(LINES)]
    moved = lines[-shift:] + lines[:-shift]
    assert shift_of(lines, moved) == shift
    half = len(lines) // 2
    assert shift_of(lines, lines[:half] + moved[half:]) == shift
    assert shift_of(lines, other_translations(lines)) is None
    side = "below" if shift > 0 else "above"
    count = "1 line" if abs(shift) == 1 else "2 lines"
    (note,) = writing_notes(lines, moved)
    assert f"{count} {side} the translations" in note
