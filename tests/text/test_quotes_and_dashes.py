"""Quotation marks, apostrophes and dashes are read as the training text writes them."""

import unicodedata

import pytest
from cases.growth import LINEAR, growth
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.characters import DASHES, QUOTES
from seq2seq.text.glossary import Glossary
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.quotes_and_dashes import QuotesAndDashes
from seq2seq.text.source_profile import SourceProfile

# One sentence as texts of several kinds write it.
KEYBOARD = """Tom's "old" car - a 'well-known' one - won't go -5 miles."""
BOOK = "Tom\u2019s “old” car \u2013 a \u2018well-known\u2019 one \u2013 won\u2019t go -5 miles."
GERMAN = "Toms „old“ car \u2013 a \u201awell-known\u2018 one \u2013 will go -5 miles."
DANISH = "Toms »old« car \u2013 a \u203awell-known\u2039 one \u2013 will go -5 miles."
FRENCH = "Tom\u2019s « old » car — a « well-known » one — won\u2019t go -5 miles."


def marks_of(text: str) -> QuotesAndDashes:
    return QuotesAndDashes.of([text] * 3, least=2)


@pytest.mark.parametrize("training", [KEYBOARD, BOOK, GERMAN, DANISH, FRENCH])
def test_a_text_is_written_as_it_is(training: str) -> None:
    assert marks_of(training).written(training) == training


@pytest.mark.parametrize("training", [KEYBOARD, BOOK])
@pytest.mark.parametrize("line", [KEYBOARD, BOOK])
def test_keyboards_and_books_write_the_same_text(training: str, line: str) -> None:
    assert marks_of(training).written(line) == training


@pytest.mark.parametrize("training", [GERMAN, DANISH])
@pytest.mark.parametrize("line", [GERMAN, DANISH])
def test_each_language_has_its_quotation_marks(training: str, line: str) -> None:
    assert marks_of(training).written(line) == training


@pytest.mark.parametrize(
    ("training", "line", "written"),
    [
        (KEYBOARD, "don`t, don\u00b4t, don\u02bct", "don't, don't, don't"),
        (KEYBOARD, "wait—what", "wait - what"),
        (KEYBOARD, "Paris\u2013Rome, 3\u22125, well\u2011known", "Paris-Rome, 3-5, well-known"),
        (KEYBOARD, "(“yes”) „no“ »so«", '("yes") "no" "so"'),
        (KEYBOARD, "“¿Qué?”", '"¿Qué?"'),
        (BOOK, '("yes")', "(“yes”)"),
        (GERMAN, "don't", "don't"),  # it has no apostrophes
        (GERMAN, '"Komm", "Geh!"', "„Komm“, „Geh!“"),
        (FRENCH, '"Va", dit-il.', "«Va», dit-il."),
        ("「a」と『b』", "“a”と", "「a」と"),
        (BOOK, 'He said:"Yes."', "He said:“Yes.”"),
        (BOOK, '" hello " and "Ankara"da', "“ hello ” and “Ankara”da"),
        (BOOK, "'\"Yes,\"' he", "\u2018“Yes,”\u2019 he"),
        (GERMAN, "Hans\u2019 Auto", "Hans\u2019 Auto"),
        (GERMAN, "Vor\u2011 und Nachteile, \u22125 Grad", "Vor- und Nachteile, -5 Grad"),
        (
            KEYBOARD,
            "L\u2019“ancien” mot, \u05e6\u05d4\u05f4\u05dc",
            'L\'"ancien" mot, \u05e6\u05d4"\u05dc',
        ),
        ("「a」と", '他說\uff1a"你好。"', "他說\uff1a「你好。」"),
        (
            "the car is old",
            "don\u2019t \u2013 “go”",
            "don\u2019t \u2013 “go”",
        ),  # it has no marks at all
    ],
)
def test_a_mark_is_written_by_its_kind_and_place(training: str, line: str, written: str) -> None:
    assert marks_of(training).written(line) == written


def test_an_opening_mark_in_a_text_of_a_script_without_spaces_is_one_by_its_category() -> None:
    marks = marks_of("他说“好”。")
    assert marks == QuotesAndDashes("“", "", "”")


@given(
    st.text(st.sampled_from([*QUOTES, *DASHES, *"ab .,(", "好"])), st.sampled_from([KEYBOARD, BOOK])
)
def test_only_quotation_marks_and_dashes_change(line: str, training: str) -> None:
    marks = marks_of(training)
    written = marks.written(line)
    other_characters = [c for c in line if c not in {*QUOTES, *DASHES, " "}]
    assert [c for c in written if c not in {*QUOTES, *DASHES, " "}] == other_characters
    assert len(written.split()) >= len(line.split())


@given(st.text(st.sampled_from([*QUOTES, *DASHES, *"ab ."])))
def test_a_line_is_read_as_normalized_or_not(line: str) -> None:
    marks = marks_of(KEYBOARD)
    assert set(marks.written(line)) - set(line) <= set(KEYBOARD) | {" "}
    assert marks.written(unicodedata.normalize("NFC", line)) == marks.written(line)


@pytest.mark.parametrize("count", [1, 200])
def test_a_mark_is_rare_where_the_text_hardly_has_it(count: int) -> None:
    text = ["I don't."] * 2000 + ["I can\u2019t."] * count
    profile = describe_source(text, text)
    assert profile.ordinary("I don't.") == "I don't."
    assert (profile.ordinary("I don\u2019t.") == "I don't.") == (count == 1)


def test_a_record_without_marks_changes_none() -> None:
    assert SourceProfile(characters="abc '").ordinary("a\u2019b “c”") == "a\u2019b “c”"


def test_a_glossary_finds_a_phrase_as_it_is_written_and_as_it_is_read() -> None:
    profile = describe_source(["I don't know."] * 200, ["x"] * 200)
    glossary = Glossary({"don\u2019t": "ne pas", "I": "je"}).read_as(profile.ordinary)
    assert glossary.targets(profile.ordinary("I don\u2019t know.")) == ["je", "ne pas"]
    assert glossary.targets("I don\u2019t know.") == ["je", "ne pas"]


@pytest.mark.parametrize("unit", ["a' ", "\u201e.", 'a "b" ', "a ? ", "\ufb01. ", '"a\u3002"'])
def test_the_time_of_reading_a_line_grows_with_its_length(unit: str) -> None:
    profile = describe_source([KEYBOARD] * 200, [KEYBOARD] * 200)
    texts = {size: unit * (size // len(unit)) for size in (6_000, 12_000)}
    assert growth(lambda size: profile.ordinary(texts[size]), 6_000) < LINEAR
    assert growth(lambda size: profile.parts(texts[size]), 6_000) < LINEAR
