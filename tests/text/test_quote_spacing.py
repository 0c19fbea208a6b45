"""Spaces within quotation marks are read as the training text writes them."""

import pytest
from cases.growth import LINEAR, growth
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.learned_profile import describe_source
from seq2seq.text.line import line_of
from seq2seq.text.long_lines import Tokenizer
from seq2seq.text.mark_spacing import MarkSpacing
from seq2seq.text.quote_spacing import QuoteSpacing
from seq2seq.text.steps import StepContext, apply, steps_of

JOINED = ['He said, "It is so." Then he left.', 'It is "so", he said.', "It is so."] * 60
TOKENS = [
    *['he said , " it is so . " then he left .', 'it is " so " , he said .', "it is so ."] * 60
]
FRENCH = ["Il dit : \u00ab\u00a0Oui.\u00a0\u00bb", "C'est \u00ab\u00a0bon\u00a0\u00bb."] * 60
CURLY = ["He said, “It is so.”", "It is “so”, he said."] * 60


class Characters(Tokenizer):
    """A tokenizer of characters."""

    def encode(self, texts: list[str]) -> list[list[int]]:  # type: ignore[override]
        return [list(map(ord, text)) for text in texts]


def read(training: list[str], text: str) -> list[str]:
    """Return the parts of a line as they are searched, with what is set aside."""
    line = line_of(text)
    context = StepContext(describe_source(training, training), Characters())  # type: ignore[abstract]
    apply(steps_of(context), line)
    return [f"{part.head}{part.masked.text}{part.tail}" for part in line.parts]


@pytest.mark.parametrize("training", [JOINED, TOKENS, FRENCH, CURLY])
def test_lines_of_the_training_text_stay(training: list[str]) -> None:
    assert [read(training, line) for line in training[:3]] == [[line] for line in training[:3]]


@pytest.mark.parametrize(
    ("training", "line", "written"),
    [
        (JOINED, 'He said, " It is so. "', 'He said, "It is so."'),
        (JOINED, 'It is " so ", he said .', 'It is "so", he said.'),
        (JOINED, 'It is " so " , he said .', 'It is "so", he said.'),
        (JOINED, '" It is so . "', '"It is so."'),
        (JOINED, "It is \u00ab so \u00bb.", 'It is "so".'),
        (JOINED, 'It is 5 " so.', 'It is 5 " so.'),
        (JOINED, 'It is "so"so".', 'It is "so"so".'),
        (TOKENS, 'it is "so", he said.', 'it is " so " , he said .'),
        (TOKENS, '"it is so."', '" it is so . "'),
        (TOKENS, "it is “so”.", 'it is " so " .'),
        (FRENCH, 'C\'est "bon".', "C'est \u00ab\u00a0bon\u00a0\u00bb."),
        (CURLY, 'It is " so " .', "It is “so”."),
        (CURLY, "It is “ so ”.", "It is “so”."),
    ],
)
def test_quotations_have_the_spaces_of_the_training_text(
    training: list[str], line: str, written: str
) -> None:
    assert read(training, line) == [written]
    assert read(training, written) == [written]


def test_a_text_that_writes_both_changes_none() -> None:
    both = [*JOINED, *TOKENS]
    assert QuoteSpacing.of(both, 2) == QuoteSpacing([], "")
    assert read(both, 'It is " so ".') == ['It is " so ".']


@given(st.text(st.sampled_from([*'ab "\u201d\u201c.,\u00ab\u00bb\u00a0'])))
def test_only_spaces_change(line: str) -> None:
    for training in (JOINED, TOKENS, FRENCH):
        profile = describe_source(training, training)
        spacing = QuoteSpacing(profile.apart_quotes, profile.joined_quotes)
        marks = MarkSpacing(profile.apart_marks, profile.joined_marks)
        written = spacing.written(line, marks)
        assert "".join(written.split()) == "".join(line.split())
        assert spacing.written(written, marks) == written


@pytest.mark.parametrize("unit", ['"a" ', '" ', '"', 'a"b'])
def test_the_time_grows_with_the_length_of_a_line(unit: str) -> None:
    profile = describe_source(JOINED, JOINED)
    texts = {size: unit * (size // len(unit)) for size in (6_000, 12_000)}
    assert growth(lambda size: profile.ordinary(texts[size]), 6_000) < LINEAR
