"""Profile of a training text, and lines that are unlike it."""

import pytest

from seq2seq.data.source_profile import MIN_LINES, NO_PROFILE, SourceProfile, describe_source

PLAIN = [f"Tom has {number} apples." for number in range(200)]
TWO = "I like it. He does not."


def described(lines: list[str]) -> SourceProfile:
    return describe_source(lines, lines)


def test_all_but_a_twentieth_of_the_lines_decide_how_many_sentences_are_usual() -> None:
    pairs = [f"I like {name}. He likes it." for name in ("Tom", "it", "Mary", "him")]
    rarely, often = [*PLAIN, *pairs * 2], [*PLAIN, *pairs * 10]
    assert described(rarely).sentences == 1
    assert described(often).sentences == 2
    assert described(rarely).parts(TWO) == ["I like it.", "He does not."]
    assert described(often).parts(TWO) == [TWO]
    assert described(often).parts(f"{TWO} Why? So.") == [TWO, "Why? So."]


def test_few_lines_are_no_measure() -> None:
    assert described(PLAIN[: MIN_LINES - 1]) == NO_PROFILE
    assert NO_PROFILE.parts(TWO) == [TWO]
    assert NO_PROFILE.notes("ALL IN CAPITALS Привет") == []


def test_capitals_are_noted_where_the_text_has_none() -> None:
    profile = described(PLAIN)
    assert profile.notes("HELP ME NOW!") == ["all in capitals, which the training text hardly has"]
    for line in ("OK.", "NATO 2024", "Help ME", "help me", "", "123 456", "मला मदत करा"):
        assert "all in capitals, which the training text hardly has" not in profile.notes(line)
    assert described([*PLAIN, *["STAY AWAY!"] * 5]).notes("HELP ME NOW!") == []


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("Это Том.", "Cyrillic"),
        ("Tom said नमस्ते", "Devanagari"),
        ("कुत्ता सोता है।", "Devanagari"),  # no two letters without a mark between them
        ("e\u0301te\u0301", None),
        ("東京 is nice", "CJK"),
        ("\uff34\uff4f\uff4d", None),  # full-width Latin
        ("Zoë is naïve, I think.", None),
        ("x² + µ", None),  # no words of two letters
    ],
)
def test_other_scripts_are_noted(line: str, script: str | None) -> None:
    notes = described(PLAIN).notes(line)
    wanted = f"{script} letters, which the training text hardly has"
    assert notes == ([] if script is None else [wanted])


def test_a_script_of_the_training_text_is_known() -> None:
    text = [*PLAIN, *["Это Том."] * 3]
    assert described(text).notes("Привет") == []
