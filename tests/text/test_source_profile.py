"""Profile of a training text, and notes on lines that differ from it."""

from pathlib import Path

import pytest

from seq2seq.data.public_corpora import unpack_demo_corpora
from seq2seq.text.learned_profile import MIN_LINES, describe_source
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

PLAIN = [f"Tom has {number} apples." for number in range(200)]
TWO = "I like it. He does not."


def profile_of(lines: list[str]) -> SourceProfile:
    return describe_source(lines, lines)


def test_95_percent_of_the_lines_define_the_usual_sentence_count() -> None:
    pairs = [f"I like {name}. He likes it." for name in ("Tom", "it", "Mary", "him")]
    rarely = [*PLAIN, *pairs * 2]
    often = [*PLAIN, *pairs * 10]
    assert profile_of(rarely).sentences == 1
    assert profile_of(often).sentences == 2
    assert profile_of(rarely).parts(TWO) == ["I like it.", "He does not."]
    assert profile_of(often).parts(TWO) == [TWO]
    assert profile_of(often).parts(f"{TWO} Why? So.") == [TWO, "Why? So."]


def test_few_lines_give_no_profile() -> None:
    assert profile_of(PLAIN[: MIN_LINES - 1]) == NO_PROFILE
    assert NO_PROFILE.parts(TWO) == [TWO]
    assert NO_PROFILE.notes("ALL IN CAPITALS Привет") == []


def test_title_case_is_noted_if_the_text_has_none() -> None:
    lines = [f"Alice has met {name} in the garden." for name in ("Bob", "Eve")] * 100
    profile = profile_of(lines)
    assert profile.notes("The Red Car Is Old.") == [
        "words in title case, which the training text hardly has"
    ]
    assert profile.notes("The Lord of the Old Rings") != []
    mixed = profile_of([*lines, "iPods are met in Alice", "eBay has met Eve", "iPod met Bob"])
    assert mixed.notes("the red car is old.") == [
        "all in lower case, which the training text hardly has"
    ]
    assert profile.notes("the red car is old.") == []
    for line in ("Alice has met Bob.", "alice", "The car is old.", "Alice and Bob", "12"):
        assert profile.notes(line) == []
    assert profile_of([*lines, "The Red Car Is Old"]).notes("The Red Car Is Old.") == []


def test_a_line_without_the_tag_of_all_lines_is_noted() -> None:
    lines = ["<2fr> The car is old.", "<2en> La voiture est rouge."] * 100
    symbols = ["<2fr>", "<2en>"]
    profile = describe_source(lines, lines, symbols)
    note = "no tag such as <2fr>, unlike lines of the training text"
    for line in ("The car is old.", "<2FR> The car is old.", "<2de> The car is old."):
        assert note in profile.notes(line)
    assert profile.notes("<2en> Le car.") == []
    half = [*lines, *["The car is old."] * 10]
    assert describe_source(half, half, symbols).notes("The car is old.") == []


def test_capitals_are_noted_if_the_text_has_none() -> None:
    profile = profile_of(PLAIN)
    assert profile.notes("HELP ME NOW!") == ["all in capitals, which the training text hardly has"]
    for line in ("OK.", "NATO 2024", "Help ME", "help me", "", "123 456", "मला मदत करा"):
        assert "all in capitals, which the training text hardly has" not in profile.notes(line)
    assert profile_of([*PLAIN, *["STAY AWAY!"] * 5]).notes("HELP ME NOW!") == []


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("Это Том.", "Cyrillic"),
        ("Tom said नमस्ते", "Devanagari"),
        ("कुत्ता सोता है।", "Devanagari"),  # a mark follows every letter
        ("e\u0301te\u0301", None),
        ("東京 is nice", "CJK"),
        ("\uff34\uff4f\uff4d", None),  # full-width Latin
        ("Zoë is naïve, I think.", None),
        ("x² + µ", None),  # no word of two letters
    ],
)
def test_other_scripts_are_noted(line: str, script: str | None) -> None:
    notes = profile_of(PLAIN).notes(line)
    expected_note = f"{script} letters, which the training text hardly has"
    assert notes == ([] if script is None else [expected_note])


def test_a_script_of_the_training_text_is_known() -> None:
    text = [*PLAIN, *["Это Том."] * 3]
    assert profile_of(text).notes("Привет") == []


ENGLISH = ("the cat is black and the dog is old", "she has a small house in the town")
FRENCH = ("le chat est noir et le chien est vieux", "elle a une petite maison dans la ville")
NOTE = "seems to be in the target language"


def test_a_line_of_the_target_language_is_noted() -> None:
    profile = describe_source(MIN_LINES * ENGLISH, MIN_LINES * FRENCH)
    assert profile.notes("le chien a une maison") == [NOTE]
    assert profile.notes("the dog has a house") == []
    assert profile.notes('She said "le chat noir" in the town') == []
    assert profile.notes("le chien") == [], "too short to tell"
    assert describe_source(MIN_LINES * FRENCH, MIN_LINES * ENGLISH).notes("Elle a une maison") == []


def test_sides_of_one_language_have_no_telling_words() -> None:
    profile = describe_source(MIN_LINES * ENGLISH, MIN_LINES * ENGLISH)
    assert profile.src_words == profile.tgt_words == []


@pytest.mark.parametrize("name", ["demo", "demo-en-mr"])
def test_no_line_of_a_demo_corpus_is_taken_for_the_other_side(tmp_path: Path, name: str) -> None:
    unpack_demo_corpora(tmp_path)
    suffixes = ("en", "fr" if name == "demo" else "mr")
    train, test = (
        [(tmp_path / name / f"{part}.{side}").read_text("utf-8").splitlines() for side in suffixes]
        for part in ("train", "test")
    )
    profile = describe_source(*train)
    noted = [sum(NOTE in profile.notes(line) for line in side) for side in test]
    assert noted[0] == 0
    assert noted[1] > 0.5 * len(test[1])
