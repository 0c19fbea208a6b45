"""Steps of text around search: what they do to lines, and undo in translations."""

from dataclasses import replace
from pathlib import Path

import pytest

from seq2seq.inference.translator import Translator
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.source_profile import SourceProfile

LETTERS = "abdefgiklmnoprstuvyzABDEFGIKLMNOPRSTUVYZ .!?-"
PLAIN = SourceProfile(
    sentences=1,
    characters=LETTERS,
    wordless=False,
    heads=False,
    tails=False,
    begins_in_capitals=False,
)
LINE = "buda ki modu."


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    loaded = Translator.load(tiny_runs["luong"], device="cpu").loaded
    return Translator(replace(loaded, source=PLAIN))


@pytest.mark.parametrize(
    "line", ["12345", "-", "***", "😀", "$5.00", "10:30", "+00 1 23", "♪", "?", "<2fr>", "<b>5</b>"]
)
def test_a_line_without_letters_is_copied_with_a_note(translator: Translator, line: str) -> None:
    translation = translator.translate(line, 2, 2)
    assert [entry.text for entry in translation.n_best] == [line] * 2
    assert translation.notes == ["no letters, unlike the training text; copied"]
    without_step = Translator(
        replace(translator.loaded, source=replace(PLAIN, wordless=True))
    ).translate(line)
    assert not without_step.notes[:1] or "copied" not in without_step.notes[0]


@pytest.mark.parametrize(
    "affixes", [("1. ", ""), ("II. ", ""), ("", " 😀"), ("• ", "¹"), ("", " [1]"), ("<br> ", "")]
)
def test_affixes_are_put_back(translator: Translator, affixes: tuple[str, str]) -> None:
    head, tail = affixes
    plain = translator.translate(LINE, 2, 2)
    translation = translator.translate(f"{head}{LINE}{tail}", 2, 2)
    assert [e.text for e in translation.n_best] == [f"{head}{e.text}{tail}" for e in plain.n_best]
    assert translation.src_tokens == plain.src_tokens


@pytest.mark.parametrize("mark", ["…", "\u0964", "!!", "?!", "\u0964\u0964"])
def test_further_and_unknown_end_marks_are_put_back(translator: Translator, mark: str) -> None:
    marked = Translator(replace(translator.loaded, source=replace(PLAIN, final_marks=[".", "!"])))
    plain, with_mark = marked.translate([LINE, LINE[:-1] + mark])
    is_known = mark[0] in LETTERS
    assert with_mark.text.endswith(mark[1:] if is_known else mark)
    assert is_known or with_mark.text == plain.text.removesuffix("!") + mark
    assert not any("no final punctuation mark" in note for note in with_mark.notes)


def test_an_unknown_mark_alone_is_translated_as_it_is() -> None:
    profile = replace(PLAIN, wordless=True)
    for text in ("\u0964", ")", "", "12\u0964"):
        assert profile.affixes(text) == ("", text, "")


def test_brackets_are_put_back(translator: Translator) -> None:
    profile = replace(PLAIN, characters=LETTERS + "()", brackets=False)
    without = Translator(replace(translator.loaded, source=profile))
    first, second = without.translate(["buda ki.", "Modu na."])
    translated = without.translate(["(buda ki.)", "(buda ki.) (Modu na.)", "1. (buda ki.)"])
    assert [translation.text for translation in translated] == [
        f"({first.text})",
        f"({first.text}) ({second.text})",
        f"1. ({first.text})",
    ]
    assert without.translate("(buda ki.)", prefixes="nu").text.startswith("nu")
    assert translated[0].notes == []


def test_nothing_is_put_before_a_prefix(translator: Translator) -> None:
    assert translator.translate(f"1. {LINE}", prefixes="nu").text.startswith("nu")


@pytest.mark.parametrize(
    "written",
    ["buda\u00a0ki modu.", "buda ki\u3000modu.", "bu\u00adda ki modu.", "\u200bbuda ki \uff4dodu."],
)
def test_characters_are_read_as_those_of_the_training_text(
    translator: Translator, written: str
) -> None:
    translation = translator.translate(written)
    assert translation.text == translator.translate(LINE).text
    assert translation.notes[0].startswith("characters that the training text hardly has (U+")


def test_sentences_with_symbols_between_them_are_all_translated(translator: Translator) -> None:
    first, second = translator.translate(["buda ki.", "Modu na."])
    for between in (" ", " 😀 ", " - ", " → "):
        translation = translator.translate(f"buda ki.{between}Modu na.")
        assert translation.text == f"{first.text}{between}{second.text}"
        assert translation.parts == 2


@pytest.mark.parametrize(
    "tail", [" *", "\u00b9", " (1)", " [2]", " ***", " 😀", " 2", " *) 7", " - 3 -", " ."]
)
@pytest.mark.parametrize("end", ["ki 1991.", "ki 1991!", "(1991).", "19 91 ."])
def test_what_follows_a_sentence_that_ends_in_a_number_is_put_back(
    translator: Translator, end: str, tail: str
) -> None:
    sentence = f"buda {end}"
    plain, marked = translator.translate([sentence, sentence + tail])
    assert marked.text == plain.text + tail
    assert marked.src_tokens == plain.src_tokens


def test_ordinals_end_no_sentence() -> None:
    text = "Buda am 3. 10. 1991"
    for abbreviations, tail in (([], " 10. 1991 *"), (["0"], "")):
        profile = replace(PLAIN, abbreviations=abbreviations)
        assert profile.affixes(f"{text} *").tail == tail


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Buda ki. <br> Modu na.", "{} <br> {}"),
        ("<b>10</b> 000! Buda ki. Modu na.", "<b>10</b> 000! {} {}"),
        ("Buda ki. Modu na. <br/>", "{} {} <br/>"),
        ("Buda ki.\u3002(1)\u3002 Modu na.", "{}\u3002(1)\u3002{}"),
    ],
)
def test_parts_without_letters_are_copied(
    translator: Translator, written: str, expected: str
) -> None:
    sentences = translator.translate(["Buda ki.", "Modu na."])
    assert translator.translate(written).text == expected.format(*(t.text for t in sentences))


def test_the_number_of_a_footnote_ends_no_sentence_s_mark(translator: Translator) -> None:
    first, second = translator.translate(["buda ki.", "Modu na."])
    assert translator.translate("buda ki.² Modu na.").text == f"{first.text}² {second.text}"


def test_a_sentence_begins_in_a_capital_where_those_of_the_training_text_do(
    translator: Translator,
) -> None:
    capitals = Translator(
        replace(translator.loaded, source=replace(PLAIN, begins_in_capitals=True))
    )
    expected, *translations = capitals.translate(
        ["Buda ki.", "buda ki.", "1. buda ki.", "- buda ki."]
    )
    assert [translation.text.split(" ", 1)[-1] for translation in translations[1:]] == [
        expected.text
    ] * 2
    assert translations[0].text == expected.text
    note = "begins in lower case, unlike the training text; read with a capital"
    assert [note in translation.notes for translation in (expected, *translations)] == [
        False,
        True,
        True,
        True,
    ]
    for text in ("iPhone ki.", "3rd ki.", "BUDA ki.", "..."):
        assert capitals.source.with_capital(text) == text
    assert PLAIN.with_capital("buda ki.") == "buda ki."


def test_characters_that_the_training_text_lacks_are_noted(translator: Translator) -> None:
    note = "characters that the training text hardly has: "
    notes = translator.translate("buda: ki; modu.").notes
    assert f"{note}:;" in notes
    assert notes[-1] == "such characters that the translation lacks: :;"
    assert translator.translate("😀 buda ki. 😀").notes == []
    unspaced = Translator(
        replace(translator.loaded, source=replace(PLAIN, characters=LETTERS.replace(" ", "")))
    )
    assert unspaced.translate(" buda. ").notes == []
    assert f"{note}U+0020 :" in unspaced.translate("buda: ki. ").notes


def test_numbers_that_one_side_lacks_are_noted(translator: Translator) -> None:
    profile = replace(PLAIN, numbers=True, characters="")
    (note,) = profile.notes_on_numbers("at 12:30, 05 men", "12 h 31, ५ gens, 0")
    assert note == "numbers that the source and the translation do not share: 0, 30, 31"
    assert PLAIN.notes_on_numbers("12", "13") == []
    (note_of_translation,) = (
        Translator(replace(translator.loaded, source=profile)).translate("buda 77.").notes
    )
    assert note_of_translation.endswith("share: 77")
    same = [f"It is {n}." for n in range(200)]
    other_numbers = [f"It is {n + 1}." for n in range(200)]
    assert [describe_source(same, tgt).numbers for tgt in (same, other_numbers)] == [True, False]
    words = ["It is old."] * 200
    assert not describe_source(words, words).numbers, "unknown"


def test_a_profile_describes_the_form_of_lines() -> None:
    lines = [f"The car {number} is old." for number in range(200)]
    profile = describe_source(lines, lines)
    assert set("Thecar isold.0123456789") == set(profile.characters)
    assert (profile.wordless, profile.heads, profile.tails) == (False, False, False)
    assert profile.begins_in_capitals
    rare_forms = ["1. The\u00a0car is old. 😀", "the car", "12"]
    profile = describe_source([*lines, *rare_forms], [*lines, *rare_forms])
    assert (profile.wordless, profile.heads, profile.tails) == (True, True, True)
    assert "\u00a0" in profile.characters
