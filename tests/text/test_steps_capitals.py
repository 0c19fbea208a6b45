"""Lines in capitals: read as the training text writes its words, and translated in capitals."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.line_properties import in_capitals, in_lower_case
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


TURKISH = ["\u0130yi ak\u015famlar.", "\u0130ki kedi var.", "I\u015f\u0131k yand\u0131."] * 40
ENGLISH = ["It is here.", "In the end, we see.", "It is \u0130zmir."] * 40


def test_a_translation_has_the_capitals_of_its_language() -> None:
    """An English text may have a name with the Turkish capital."""
    for src, tgt, line, capitals in (
        (ENGLISH, TURKISH, "it is", "\u0130T \u0130S"),
        (TURKISH, ENGLISH, "it is", "IT IS"),
    ):
        assert describe_source(src, tgt).translation_in_capitals(line) == capitals
    older_record = replace(describe_source(ENGLISH, TURKISH), tgt_initials="")
    assert older_record.translation_in_capitals("it is") == "IT IS"
    english = describe_source(ENGLISH, TURKISH)
    assert english.without_capitals("IN THE END IT IS.") == "In the end it is."
    turkish = describe_source(TURKISH, ENGLISH)
    assert turkish.without_capitals("I\u015eIK \u0130Y\u0130.") == "I\u015f\u0131k iyi."


@pytest.mark.parametrize("street", ["STRASSE", "STRA\u1e9eE"])
def test_sharp_s_has_two_capitals(street: str) -> None:
    assert profile_of("Stra\u00dfe").without_capitals(f"DIE {street}") == "die Stra\u00dfe"


UNCASED = [
    "\u092f\u0939 \u0918\u0930",
    "\u05d6\u05d4 \u05d1\u05d9\u05ea",
    "\u732b\u306f",
    "\u12a0\u1260\u1260",
]


@pytest.mark.parametrize("words", UNCASED)
@pytest.mark.parametrize("line", ["{} BBC.", "NATO BBC {}.", "\u2163. {}.", "A. {}.", "{} TV 5."])
def test_a_line_in_a_script_without_capitals_is_not_in_capitals(words: str, line: str) -> None:
    """Also with an abbreviation, or with a label that is a capital."""
    assert not in_capitals(line.format(words))
    assert not in_lower_case(line.lower().format(words))
    assert describe_source([f"{words}."] * 120, ENGLISH).notes(line.format(words))[:1] in (
        [],
        ["Latin letters, which the training text hardly has"],
    )


@pytest.mark.parametrize(
    ("line", "is_in_capitals"),
    [
        *(("A CAT.", True), ("I AM.", True), ("PLAN B", True), ("HALF-TIME", True)),
        *(("NATO", False), ("NATO 5", False), ("U.S.A.", False), ("A B C", False)),
        *(("\u1c9b\u1c90\u1ca0\u1c90 \u1c90\u1ca0\u1c98\u1ca1", True), ("A Cat", False)),
    ],
)
def test_two_words_make_a_line_in_capitals(line: str, is_in_capitals: bool) -> None:
    assert in_capitals(line) is is_in_capitals


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
