"""Final punctuation: the usual mark of a text, and lines without one."""

import pytest

from seq2seq.text.final_marks import lacks_mark, split_ending, without_mark
from seq2seq.text.learned_profile import MIN_LINES, describe_source
from seq2seq.text.learned_sentences import endings_of, usual_marks
from seq2seq.text.source_profile import NO_PROFILE

PLAIN = [f"Tom has {number} apples." for number in range(200)]
BARE = [line[:-1] for line in PLAIN]


@pytest.mark.parametrize(
    ("text", "body", "mark", "closing"),
    [
        ("Yes.", "Yes", ".", ""),
        ("yes", "yes", "", ""),
        ('He said "yes."', 'He said "yes', ".", '"'),
        ('He said "yes"', 'He said "yes', "", '"'),
        ("„Ja.“ ", "„Ja", ".", "“ "),
        ("(Yes!)", "(Yes", "!", ")"),
        ("मला माहीत नाही।", "मला माहीत नाही", "।", ""),
        ("你好。」", "你好", "。", "」"),
        ("من أنت؟", "من أنت", "؟", ""),
        ("Oui !", "Oui", " !", ""),
        ("I am here .\u200b", "I am here", " .", "\u200b"),
        ("Wait…", "Wait", "…", ""),
        ("Wait...", "Wait..", ".", ""),
        ("as follows:", "as follows", ":", ""),
        ("that is —", "that is", " —", ""),
        ("100 %", "100 %", "", ""),
        ("C#", "C#", "", ""),
        ("5 €", "5 €", "", ""),
        ("in 1990", "in 1990", "", ""),
        ("the dogs'", "the dogs", "", "'"),
        ("Hello 😀", "Hello 😀", "", ""),
        ("Hi \ufdd0", "Hi \ufdd0", "", ""),  # placeholder of a name
        ("Hi, \ufdd0.", "Hi, \ufdd0", ".", ""),
        ("", "", "", ""),
        (".", "", ".", ""),
    ],
)
def test_a_text_is_split_into_body_mark_and_closing_characters(
    text: str, body: str, mark: str, closing: str
) -> None:
    assert split_ending(text) == (body, mark, closing)
    assert body + mark + closing == text


@pytest.mark.parametrize("text", ["", " ", "...", "—", "👩\u200d🚀", '"', "\u0301", "▁"])
def test_a_text_without_words_needs_no_mark(text: str) -> None:
    assert not lacks_mark(text)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("राहुल चांगला मुलगा आहे.", "राहुल चांगला मुलगा आहे"),
        ("राहुल अच्छा लड़का है।", "राहुल अच्छा लड़का है"),
        ('He said "yes."', 'He said "yes"'),
        ('He said "yes".', 'He said "yes"'),
        ("I am here .", "I am here"),
        ("Is he?", "Is he?"),  # the model chose the mark
        ("Go!", "Go!"),
        ("Wait...", "Wait..."),
        ("Wait . . .", "Wait . . ."),
        ("He lives in the U.S.", "He lives in the U.S."),
        ("So am I.", "So am I"),
        ("It weighs 1.5.", "It weighs 1.5"),
        ("plain", "plain"),
        (".", ""),
        ("", ""),
    ],
)
def test_the_mark_of_a_translation_is_removed(text: str, bare: str) -> None:
    assert without_mark(text, [".", "।"]) == bare
    assert without_mark(text, []) == text


def usual_marks_of(src: list[str], tgt: list[str]) -> list[str]:
    return usual_marks(endings_of(src), endings_of(tgt))


def test_a_usual_mark_requires_marks_on_nearly_all_lines() -> None:
    assert usual_marks_of(PLAIN, PLAIN) == ["."]
    assert usual_marks_of(PLAIN * 3 + ["Is it?"] * 99, PLAIN * 3 + ["!"] * 99) == ["."]
    assert usual_marks_of([*PLAIN, *BARE[:2]], [*PLAIN, *BARE[:2]]) == ["."]
    assert usual_marks_of([*PLAIN, *BARE[:5]], [*PLAIN, *BARE[:5]]) == []  # headings
    assert usual_marks_of(BARE, PLAIN) == []
    assert usual_marks_of([], []) == []


def test_translations_may_have_another_usual_mark() -> None:
    hindi = [f"{line}{'.।'[number % 2]}" for number, line in enumerate(BARE)]
    assert usual_marks_of(PLAIN, hindi) == [".", "।"]
    assert usual_marks_of(PLAIN, [f"{line}。" for line in BARE]) == [".", "。"]
    assert usual_marks_of(PLAIN, BARE) == ["."]  # no marks, as in Thai
    rarely = [f"{line}{'!' if number % 9 == 0 else '.'}" for number, line in enumerate(BARE)]
    assert usual_marks_of(PLAIN, rarely) == ["."]


def test_white_space_before_the_usual_mark_is_part_of_it() -> None:
    tokenized = [f"{line} ." for line in BARE]
    profile = describe_source(tokenized, PLAIN)
    assert profile.final_marks == [" ."]
    assert profile.with_final_mark("Tom is here") == "Tom is here ."
    assert profile.without_final_mark("Tom ist da.") == "Tom ist da"


def test_a_mark_is_added_only_if_the_training_text_has_marks() -> None:
    profile = describe_source(PLAIN, PLAIN)
    assert profile.with_final_mark("Tom is here ") == "Tom is here."
    assert profile.with_final_mark('the song "Lollipop"') == 'the song "Lollipop".'
    for line in ("Tom is here.", "Is he?", '"Yes."', "as follows:", "Wait...", "", " ", "—"):
        assert profile.with_final_mark(line) == line
    assert profile.with_final_mark("<2fr> Hi", "<2fr>") == "<2fr> Hi."
    assert profile.with_final_mark("<2fr>", "<2fr>") == "<2fr>"
    for unmarked_profile in (
        describe_source(BARE, BARE),
        describe_source(PLAIN[: MIN_LINES - 1], PLAIN),
    ):
        assert unmarked_profile.with_final_mark("Tom is here") == "Tom is here"
    assert NO_PROFILE.without_final_mark("Tom is here.") == "Tom is here."
