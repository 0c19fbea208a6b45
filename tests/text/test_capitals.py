"""Lines in capitals: read as the training text writes its words, and translated in capitals."""

from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.inference.translator import Translator
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile, describe_source

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


def profile_of(*capitalised: str, capitals: bool = False) -> SourceProfile:
    return replace(NO_PROFILE, capitals=capitals, capitalised=[*capitalised])


def test_words_keep_the_case_that_they_have_within_lines() -> None:
    profile = describe_source(TEXT, TEXT)
    assert sorted(profile.capitalised) == ["I", "March", "NATO", "Paris"]
    assert profile.without_capitals("I KNOW THE NATO, PARIS AND MAY.") == (
        "I know the NATO, Paris and may."
    )


def test_a_line_in_capitals_is_translated_as_another_and_written_in_capitals(
    translator: Translator,
) -> None:
    model = replace(translator, source=profile_of("Modu"))
    plain, shouted = model.translate(["buda ki Modu.", "BUDA KI MODU."], 3)
    assert shouted.text == plain.text.upper()
    assert shouted.src_tokens == plain.src_tokens
    assert NOTE in shouted.notes
    assert NOTE not in plain.notes


@pytest.mark.parametrize(
    "profile", [profile_of("Modu", capitals=True), profile_of(), NO_PROFILE], ids=str
)
def test_a_line_stays_in_capitals_where_the_text_has_such_or_nothing_is_known(
    translator: Translator, profile: SourceProfile
) -> None:
    line = "BUDA KI MODU."
    assert (
        translator.translate(line).text == replace(translator, source=profile).translate(line).text
    )


def test_a_line_with_a_prefix_stays_as_it_is(translator: Translator) -> None:
    model = replace(translator, source=profile_of("Modu"))
    assert NOTE not in model.translate("BUDA KI MODU.", prefixes="zu").notes
    assert model.translate("BUDA KI MODU.", prefixes="zu").text.startswith("zu")
