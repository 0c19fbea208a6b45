"""Steps of a line, by themselves: what each part of it requires, and keeps at its end."""

from collections.abc import Iterable

import pytest

from seq2seq.text import steps
from seq2seq.text.glossary import Glossary
from seq2seq.text.line import Line, line_of
from seq2seq.text.source_profile import SourceProfile
from seq2seq.text.steps import StepContext, TextStep

MARKED = SourceProfile(final_marks=[".", "!"])


class Words:
    """A tokenizer whose tokens are words."""

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return a token for each word of each text."""
        return [[1] * len(text.split()) for text in texts]

    def cuts(self, word: str) -> list[int]:
        """Return the only end of a word."""
        return [len(word)]


def passed(
    line: Line, glossary: Glossary | None = None, max_length: int = 99
) -> tuple[list[TextStep], Line]:
    """Return the steps of a training text with final marks, and a line that has passed them."""
    context = StepContext(MARKED, Words(), glossary=glossary, max_length=max_length)
    passed_steps = steps.steps_of(context)
    steps.apply(passed_steps, line)
    return passed_steps, line


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        ("arbre!", "Un arbre!", "Un arbre!"),
        ("arbre", "Un arbre!", "Un arbre"),
        (None, "Un arbre!", "Un arbre"),
    ],
)
def test_a_term_that_ends_in_a_mark_keeps_it(term: str | None, text: str, expected: str) -> None:
    """The source has no final mark, so that the one of its translation is removed otherwise."""
    glossary = None if term is None else Glossary({"tree": term})
    passed_steps, line = passed(line_of("A tree"), glossary)
    assert steps.undo(passed_steps, line.parts[0], text) == expected


@pytest.mark.parametrize(
    ("phrase", "expected"), [("arbre!", "Un arbre!"), ("arbre", "Un arbre"), ("!", "Un arbre!")]
)
def test_a_phrase_that_ends_in_a_mark_keeps_it(phrase: str, expected: str) -> None:
    passed_steps, line = passed(line_of("A tree", phrases=[phrase]))
    assert steps.undo(passed_steps, line.parts[0], "Un arbre!") == expected


def test_the_first_part_of_a_long_line_has_its_phrases() -> None:
    """Each part has the terms that occur in it."""
    text = "A tree is here and a house is there and a tree."
    _, line = passed(line_of(text, phrases=["oui"]), Glossary({"tree": "arbre"}), max_length=5)
    assert len(line.parts) > 2
    assert [list(part.phrases) for part in line.parts] == [["oui"], *[[]] * (len(line.parts) - 1)]
    terms = [len(part.terms) for part in line.parts]
    assert terms == [part.text.count("tree") for part in line.parts]
    assert sum(terms) == 2
