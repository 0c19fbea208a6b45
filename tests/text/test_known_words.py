"""Words that a training text never has: their record, and the note on a line of them."""

import random
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text import known_words
from seq2seq.text.known_words import KnownWords, frequent_words, joined, record_of, words_of
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.line import line_of
from seq2seq.text.source_profile import NO_PROFILE
from seq2seq.text.steps import NoteUnknownWords, StepContext

TEXT = [
    f"The {colour} {thing} is {number} years old."
    for colour in ("red", "black", "small")
    for thing in ("car", "house", "cat")
    for number in range(3, 20)
]
NOTE = "words that the training text never has: "


def note_on(line: str) -> str:
    """Return the note of the step on a line, or ""."""
    step = NoteUnknownWords(StepContext(describe_source(TEXT, TEXT), None))  # type: ignore[arg-type]
    parted_line = line_of(line)
    step.apply(parted_line)
    return "".join(parted_line.notes)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Hello, love.", "Hello, love"),
        ("The car is old.", ""),
        ("THE CAR IS OLD.", ""),
        ("The red zebra is old.", ""),  # a third of red, zebra and old
        ("The zebra is old.", "zebra"),
        ("The zebra is the giraffe of zoos and lions.", "zebra, giraffe, of"),
        ("12345", ""),
        ("The is the.", ""),
        ("\u732b\u306f\u9ed2\u3044\u3002", ""),
    ],
)
def test_words_are_noted_if_they_are_half_of_a_line(line: str, words: str) -> None:
    assert note_on(line) == (f"{NOTE}{words}" if words else "")


def test_nothing_is_noted_where_the_words_are_not_known() -> None:
    assert NO_PROFILE.unknown_words(["Hello, love."]) == []


def test_the_most_frequent_words_have_no_content() -> None:
    assert frequent_words(TEXT) == ["the", "is", "years"]


@given(st.lists(st.text(max_size=12), max_size=40), st.lists(st.text(max_size=12), max_size=40))
def test_all_words_of_both_texts_are_known(first: list[str], second: list[str]) -> None:
    records = record_of(first), record_of(second)
    for lines, record in ((first, records[0]), (second, records[1])):
        known_words_of_record = KnownWords(record)
        assert all(
            word in known_words_of_record
            for line in lines
            for word in words_of(line.casefold())
            if record
        )
    record_of_both = joined(*records)
    known_words.check_record(record_of_both)
    assert bool(record_of_both) == all(records)
    for line in [*first, *second] if record_of_both else []:
        assert all(word in KnownWords(record_of_both) for word in words_of(line.casefold()))


@pytest.mark.parametrize(("count", "share"), [(2_000, 0.04), (32_000, 0.04), (100_000, 0.35)])
def test_few_other_words_are_taken_for_known(count: int, share: float) -> None:
    draw = random.Random(count)

    def word() -> str:
        return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=12))

    record = record_of(word() for _ in range(count))
    assert len(record) <= 44_000
    known_words_of_record = KnownWords(record)
    assert sum(word() in known_words_of_record for _ in range(2_000)) <= share * 2_000


def test_a_text_of_too_many_words_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_words, "MAX_WORDS", 3)
    assert record_of(["one two three"])
    assert record_of(["one two three", "four"]) == ""


@pytest.mark.parametrize("record", ["?", "abc", b64encode(b"abc").decode(), "\u00e9"])
def test_a_damaged_record_is_refused(record: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- any message: the file is named elsewhere
        known_words.check_record(record)
