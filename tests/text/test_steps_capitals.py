"""Lines in capitals: read as the training text writes its words, and translated in capitals."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

NOTE = "read in lower case; the translation is written in capitals"
TEXT = [
    "We live in Paris.",
    "The NATO is here.",
    "He and I are in Paris.",
    "Yes, I know the NATO.",
    "the end is near.",
    "March and may are words.",
    "It may be in March.",
] * 30


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(tiny_runs["luong"], device="cpu")


def profile_of(*capitalised: str, capitals: bool = False, knows_case: bool = True) -> SourceProfile:
    return replace(NO_PROFILE, capitals=capitals, knows_case=knows_case, capitalised=[*capitalised])


def test_words_keep_the_case_that_they_have_within_lines() -> None:
    profile = describe_source(TEXT, TEXT)
    assert sorted(profile.capitalised) == ["I", "March", "NATO", "Paris"]
    assert profile.without_capitals("I KNOW THE NATO, PARIS AND MAY.") == (
        "I know the NATO, Paris and may."
    )


def test_a_line_in_capitals_is_translated_as_another_and_written_in_capitals(
    translator: Translator,
) -> None:
    model = Translator(replace(translator.loaded, source=profile_of("Modu")))
    plain, shouted = model.translate(["buda ki Modu.", "BUDA KI MODU."], 3)
    assert shouted.text == plain.text.upper()
    assert shouted.src_tokens == plain.src_tokens
    assert NOTE in shouted.notes
    assert NOTE not in plain.notes


@pytest.mark.parametrize(
    "profile", [profile_of(capitals=True), profile_of(knows_case=False), NO_PROFILE], ids=str
)
def test_a_line_stays_in_capitals_where_the_text_has_such_or_nothing_is_known(
    translator: Translator, profile: SourceProfile
) -> None:
    line = "BUDA KI MODU."
    model = Translator(replace(translator.loaded, source=profile))
    assert model.translate(line).text == translator.translate(line).text


def test_a_line_with_a_prefix_stays_as_it_is(translator: Translator) -> None:
    model = Translator(replace(translator.loaded, source=profile_of("Modu")))
    assert NOTE not in model.translate("BUDA KI MODU.", prefixes="zu").notes
    assert model.translate("BUDA KI MODU.", prefixes="zu").text.startswith("zu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JOHN'S DOG IS OLD.", "John's dog is old."),
        ("I'M IN THE STRASSE.", "I'm in the Stra\u00dfe."),
        ("L'EUROPE DON'T.", "L'Europe don't."),
    ],
)
def test_apostrophes_and_letters_without_a_capital(text: str, expected: str) -> None:
    words = profile_of("John", "I", "Stra\u00dfe", "Europe")
    assert replace(words, begins_in_capitals=True).without_capitals(text) == expected


def test_turkish_capitals_have_two_forms_of_i() -> None:
    profile = replace(profile_of(), characters="I\u0130i\u0131YZyz\u015e\u015fKk")
    assert profile.without_capitals("\u0130Y\u0130 I\u015eIK") == "iyi \u0131\u015f\u0131k"


def test_a_forbidden_word_is_not_written_in_capitals(translator: Translator) -> None:
    model = Translator(replace(translator.loaded, source=profile_of()))
    shouted = model.translate("BUDA KI MODU.", 3).text
    word = next(word for word in re.findall(r"[A-Z]{3,}", shouted))
    settings = SearchSettings(forbidden=(word,))
    text = model.translate("BUDA KI MODU.", 3, settings=settings).text
    assert not re.search(rf"\b{word}\b", text)


def test_names_stay_as_they_are_in_a_line_in_capitals() -> None:
    run = Path(__file__).parents[1] / "cases/written_at_56a3ce7b/names"
    model = Translator.load(run, device="cpu")
    profile = replace(model.source, capitals=False, knows_case=True)
    translation = Translator(replace(model.loaded, source=profile)).translate(
        "THE BOY MET ZORBLATT."
    )
    assert "\ufdd0" not in translation.text
    assert "ZORBLATT" in "".join(translation.src_tokens)
