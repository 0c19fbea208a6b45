"""Characters of another form than a training text has."""

import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.affixes import split_affixes
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.line import line_of
from seq2seq.text.long_lines import Tokenizer
from seq2seq.text.source_profile import SourceProfile
from seq2seq.text.steps import StepContext, apply, steps_of, undo
from seq2seq.text.writing import kind_of_mark

ENGLISH = [
    f"The {word} is {number} here{mark}"
    for word in ("cat", "red car")
    for number in range(10, 40)
    for mark in ".?!"
]
JAPANESE = [
    f"\u732b\u306f{digit}\u6642\u306b\u8d77\u304d{ending}"
    for digit in "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19"
    for ending in ("\u305f\u3002", "\u307e\u3059\u304b\uff1f", "\u308d\uff01")
    for _ in range(5)
]
ARABIC = [
    f"\u0627\u0644\u0628\u064a\u062a {number} \u0647\u0646\u0627{mark}"
    for number in range(10, 60)
    for mark in (".", "\u061f")
]
HINDI = [
    f"\u092f\u0939 \u0918\u0930 {number} \u0939\u0948{mark}"
    for number in range(10, 60)
    for mark in ("\u0964", "?")
]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("The cat is here\uff1f", "The cat is here?"),
        ("The cat is here\u061f", "The cat is here?"),
        ("The cat is here\u3002", "The cat is here."),
        ("The cat is here\u0964", "The cat is here."),
        ("The cat is \u0967\u0968 here.", "The cat is 12 here."),
        ("The cat is \uff11\uff12 here\uff0e", "The cat is 12 here."),
        ("\uff34he\u3000cat is here.", "The cat is here."),
        ("The cat is here\u203c\ufe0f", "The cat is here!!"),  # with a variation selector
        ("The caf\u00e9 is here.", "The caf\u00e9 is here."),  # e has a mark, and is another letter
        ("The x\u0303 is here.", "The x\u0303 is here."),
    ],
)
def test_an_english_text_has_its_marks_and_digits(text: str, written: str) -> None:
    assert describe_source(ENGLISH, ENGLISH).ordinary(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "\u732b\u306f7\u6642\u306b\u8d77\u304d\u305f.",
            "\u732b\u306f\uff17\u6642\u306b\u8d77\u304d\u305f\u3002",
        ),
        (
            "\u732b \u306f \u8d77\u304d \u307e\u3059 \u304b ?",
            "\u732b\u306f\u8d77\u304d\u307e\u3059\u304b\uff1f",
        ),
        ("\u732b\u306f\u8d77\u304d\u308d!", "\u732b\u306f\u8d77\u304d\u308d\uff01"),
    ],
)
def test_a_japanese_text_has_wide_forms_and_no_spaces(text: str, written: str) -> None:
    assert describe_source(JAPANESE, ENGLISH).ordinary(text) == written


def test_a_full_stop_within_quotation_marks_is_a_final_mark() -> None:
    chinese = ["\u4ed6\u8bf4\uff1a\u201c\u597d\u3002\u201d", "\u4f60\u597d\u3002"] * 60
    profile = describe_source(chinese, ENGLISH)
    text = "\u201c\u597d{}\u201d\u4ed6\u8bf4\u3002"
    assert profile.ordinary(text.format(".")) == text.format("\u3002")


COMPOSED = [
    "\u304c\u3063\u3053\u3046\u3067\u3059\u3002",  # marks of kana
    "\u0642\u0631\u0623 \u0627\u0644\u0642\u0631\u0622\u0646.",  # alef with hamza and madda
    "\u09ac\u09be\u09dc\u09bf \u09b8\u09ae\u09df\u0964",  # letters that NFC writes as two
    "\u095b\u092e\u0940\u0928 \u092c\u095c\u0940 \u0939\u0948\u0964",
    "T\u00f4i \u0111i h\u1ecdc \u1edf Vi\u1ec7t Nam.",
    "\ub098\ub294 \ud559\uad50\uc5d0 \uac14\ub2e4.",
]


@pytest.mark.parametrize("line", COMPOSED)
@pytest.mark.parametrize("trained", ["NFC", "NFD"])
@pytest.mark.parametrize("typed", ["NFC", "NFD"])
def test_composed_and_decomposed_letters_are_the_same(
    line: str, trained: Literal["NFC", "NFD"], typed: Literal["NFC", "NFD"]
) -> None:
    for form in (line, unicodedata.normalize(trained, line)):
        profile = describe_source([form] * 120, ENGLISH)
        for written in (line, unicodedata.normalize(typed, line)):
            prepared = line_of(written)
            apply(steps_of(StepContext(profile, Characters())), prepared)  # type: ignore[abstract]
            (part,) = prepared.parts
            assert part.text == unicodedata.normalize("NFC", line)
            assert prepared.notes == []


def test_ethiopic_word_spaces_are_spaces_where_the_text_has_these() -> None:
    amharic = ["\u12f5\u1218\u1277 \u1325\u1241\u122d \u1293\u1275\u1362"] * 120
    with_marks = [line.replace(" ", "\u1361") for line in amharic]
    assert describe_source(amharic, ENGLISH).ordinary(with_marks[0]) == amharic[0]
    assert describe_source(with_marks, ENGLISH).ordinary(with_marks[0]) == with_marks[0]


def test_uncased_letters_lose_marks_that_a_text_lacks() -> None:
    profile = describe_source(ARABIC, ENGLISH)
    assert (
        profile.ordinary("\u0623\u0644\u0628\u064e\u064a\u0640\u062a")
        == "\u0627\u0644\u0628\u064a\u062a"
    )
    vowelled = [line.replace("\u0628", "\u0628\u064e\u0623\u0640") for line in ARABIC]
    text = "\u0623\u0644\u0628\u064e\u064a\u0640\u062a"
    assert describe_source(vowelled, ENGLISH).ordinary(text) == text


@pytest.mark.parametrize("lines", [ARABIC, ENGLISH])
@pytest.mark.parametrize("script", ["DEVANAGARI", "THAI", "HEBREW", "ARABIC", "MYANMAR"])
def test_a_word_in_a_script_that_a_text_lacks_keeps_its_marks(
    lines: list[str], script: str
) -> None:
    """It is a name or a quotation: it is copied, or at least shown."""
    characters = [
        c for c in map(chr, range(0x590, 0x1100)) if unicodedata.name(c, "?").startswith(script)
    ]
    letters = [
        c for c in characters if unicodedata.category(c) == "Lo" and c not in "".join(ARABIC)
    ]
    marks = [c for c in characters if unicodedata.category(c) == "Mn"]
    profile = describe_source(lines, ENGLISH)
    for mark in marks:
        word = unicodedata.normalize("NFC", f"{letters[-1]}{mark}{letters[-2]}")
        assert profile.ordinary(f"The {word} cat") == f"The {word} cat"


@pytest.mark.parametrize(
    ("lines", "text", "body", "tail"),
    [
        (
            JAPANESE,
            "\u732b\u306f\u8d77\u304d\u305f\uff1f\uff1f",
            "\u732b\u306f\u8d77\u304d\u305f\uff1f",
            "",
        ),
        (
            JAPANESE,
            "\u732b\u306f\u8d77\u304d\u305f\uff01\uff1f",
            "\u732b\u306f\u8d77\u304d\u305f\uff1f",
            "",
        ),
        (
            JAPANESE,
            "\u732b\u306f\u8d77\u304d\u305f\u3002\u3002\u3002",
            "\u732b\u306f\u8d77\u304d\u305f\u3002",
            "",
        ),
        (ENGLISH, "The cat is here!!!", "The cat is here!", "!!"),
        (ENGLISH, "The cat is here?\uff1f \U0001f600", "The cat is here?", " \U0001f600"),
    ],
)
def test_marks_in_a_row_that_translations_lack_are_one(
    lines: list[str], text: str, body: str, tail: str
) -> None:
    assert describe_source(lines, ENGLISH).affixes(text) == ("", body, tail)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("\u0967. \u092f\u0939 \u0918\u0930", "\u0967. "),
        ("\uff11\uff0e\u4eca\u65e5\u306f", "\uff11\uff0e"),
        ("\u2460\u4eca\u65e5\u306f", "\u2460"),
        ("\u2460 \u4eca\u65e5\u306f", "\u2460 "),
        ("\u2474The cat", "\u2474"),
        ("\uff08\uff13\uff09\u4eca\u65e5\u306f", "\uff08\uff13\uff09"),
        ("\u30fb\u4eca\u65e5\u306f", "\u30fb"),
        ("\u2022 The cat", "\u2022 "),
        ("\u0431. \u041a\u043e\u0442", "\u0431. "),
        ("\u042f: \u041a\u043e\u0442", "\u042f: "),
        ("\u0410. \u041f\u0443\u0448\u043a\u0438\u043d", ""),
        ("\uff11\uff12\u6642\u306b", ""),
        ("12 cats", ""),
        ("\u00bfQu\u00e9?", ""),
    ],
)
def test_labels_of_any_script(text: str, head: str) -> None:
    assert split_affixes(text) == (head, text.removeprefix(head), "")


class Characters(Tokenizer):
    """A tokenizer of characters."""

    def encode(self, texts: list[str]) -> list[list[int]]:  # type: ignore[override]
        return [list(map(ord, text)) for text in texts]


@pytest.mark.parametrize(
    ("lines", "line", "translation"),
    [
        (HINDI, "\u0967. \u092f\u0939 \u0918\u0930 \u0939\u0948\u0964", "1. The house."),
        (JAPANESE, "\uff11\uff0e\u732b\u306f\u8d77\u304d\u305f\u3002", "1. The house."),
        (JAPANESE, "\u2460\u732b\u306f\u8d77\u304d\u305f\u3002", "1 The house."),
    ],
)
def test_labels_are_written_as_translations_are(
    lines: list[str], line: str, translation: str
) -> None:
    profile = describe_source(lines, [f"{text} 0123456789" for text in ENGLISH[: len(lines)]] * 2)
    steps = steps_of(StepContext(profile, Characters()))  # type: ignore[abstract]
    prepared = line_of(line)
    apply(steps, prepared)
    (part,) = prepared.parts
    assert undo(steps, part, "The house.") == translation


def test_what_is_set_aside_keeps_its_symbols() -> None:
    profile = describe_source(JAPANESE, ENGLISH * 2)
    assert profile.tail_in_target("\u00b9\u2122 \U0001f600 *") == "\u00b9\u2122 \U0001f600 *"
    assert profile.label_in_target("\uff08\uff11\uff09") == "(1)"
    assert SourceProfile().label_in_target("\uff08\uff11\uff09") == "\uff08\uff11\uff09"


@given(st.text(max_size=30))
def test_a_written_text_is_written_again_as_it_is(text: str) -> None:
    for lines in (ENGLISH, JAPANESE, ARABIC, HINDI):
        profile = describe_source(lines, lines)
        written = profile.ordinary(text)
        assert profile.ordinary(written) == written
        assert {*profile.lacking(written)} <= {*profile.lacking(text), " "}


def test_lines_of_a_training_text_stay_as_they_are() -> None:
    for lines in (ENGLISH, JAPANESE, ARABIC, HINDI):
        profile = describe_source(lines, ENGLISH * 2)
        assert [profile.ordinary(line) for line in lines] == lines
        assert all(profile.affixes(line) == ("", line, "") for line in lines)


def test_kinds_of_marks() -> None:
    assert {kind_of_mark(mark) for mark in "?\uff1f\u061f\u1367\u055e\u203d"} == {"question"}
    assert {kind_of_mark(mark) for mark in "!\uff01\u07f9"} == {"exclamation"}
    assert {kind_of_mark(mark) for mark in ".\u3002\u0964\u0589\u17d4"} == {"statement"}
    assert {kind_of_mark(mark) for mark in ",\u00bf\u00a1a"} == {""}


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("1. ", "1. "),
        ("\u0967. ", "1. "),
        ("\uff11\uff0e", "1."),
        ("\u2460", "1"),
        ("\u0967\u0964 ", "1. "),
        ("\uff11\u3002", "1."),
        ("1\u3001", "1."),
        ("\u30fb", "\u2022"),
        ("\u30a2\uff0e", "\u30a2."),
        ("(\u0915) ", "(\u0915) "),
    ],
)
def test_a_label_is_written_as_translations_write_it(label: str, written: str) -> None:
    """Its full stop is no final mark, which Hindi has of its own."""
    assert describe_source(HINDI, ENGLISH[:100]).label_in_target(label) == written
    assert describe_source(ENGLISH[:100], HINDI).label_in_target("1. ") == "1. "


PERSIAN = [
    f"\u0627\u06cc\u0646 \u06a9\u062a\u0627\u0628 {number} \u0627\u0633\u062a{mark}"
    for number in "\u06f1\u06f2\u06f3\u06f4\u06f5\u06f6\u06f7\u06f8\u06f9\u06f0"
    for mark in ".\u061f"
    for _ in range(8)
]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "\u0627\u064a\u0646 \u0643\u062a\u0627\u0628",
            "\u0627\u06cc\u0646 \u06a9\u062a\u0627\u0628",
        ),
        ("\u0627\u06cc\u0640\u0640\u0640\u0646", "\u0627\u06cc\u0646"),
        ("\u06a9\u0650\u062a\u0627\u0628 \u0665", "\u06a9\u062a\u0627\u0628 \u06f5"),
        ("\u06a9\u062a\u0627\u0628?", "\u06a9\u062a\u0627\u0628\u061f"),
    ],
)
def test_a_persian_text_is_read_in_its_letters(text: str, written: str) -> None:
    assert describe_source(PERSIAN, PERSIAN).ordinary(text) == written
    arabic = describe_source(ARABIC, ARABIC)
    assert arabic.ordinary("\u0627\u0644\u0628\u06cc\u062a") == "\u0627\u0644\u0628\u064a\u062a"


def test_a_semicolon_is_a_question_mark_only_where_the_text_ends_lines_in_it() -> None:
    greek = [
        f"\u03a0\u03bf\u03cd \u03b5\u03af\u03bd\u03b1\u03b9 \u03b7 {word};"
        for word in ("\u03b3\u03ac\u03c4\u03b1", "\u03c0\u03cc\u03bb\u03b7")
    ] * 60
    text = "\u03a0\u03bf\u03cd \u03b5\u03af\u03bd\u03b1\u03b9?"
    assert describe_source(greek, greek).ordinary(text) == text.replace("?", ";")
    for line in ("I came; I saw.", "Hi ;)", "Fish &amp; chips."):
        assert describe_source(ENGLISH, ENGLISH).ordinary(line) == line


@pytest.mark.parametrize("line", ["3.5 \u500d", "www.x.com", "a.b@c.jp", "a?b=c"])
def test_marks_within_numbers_and_addresses_stay(line: str) -> None:
    profile = describe_source(JAPANESE, JAPANESE)
    marks = [c for c in line if not c.isalnum() and c != " "]
    written = profile.ordinary(line).replace(" ", "")
    assert [c for c in written if not c.isalnum()] == marks


def test_an_exponent_stays() -> None:
    profile = describe_source(ENGLISH, ENGLISH)
    assert profile.ordinary("10\u00b2 is here") == "10\u00b2 is here"
    assert profile.ordinary("H\u2082O") == "H2O"


@pytest.mark.parametrize(
    "line", ["http://x.com is here", "tom@x.com is here", "readme.txt is here"]
)
def test_an_address_gets_no_capital(line: str) -> None:
    profile = describe_source(ENGLISH, ENGLISH)
    assert profile.with_capital(line) == line
    assert profile.with_capital("e.g. the cat") == "E.g. the cat"


HALF_WIDTH = ["\u732b\u306f10\u6642\u306b\u8d77\u304d\u305f\u3002"] * 2


@pytest.mark.parametrize(
    ("number", "written"),
    [
        ("10", "10"),
        ("300", "\uff13\uff10\uff10"),
        ("3.10", "\uff13.\uff11\uff10"),
        ("1,003", "\uff11,\uff10\uff10\uff13"),
        ("\u0967\u0966", "\uff11\uff10"),
        ("$300", "$\uff13\uff10\uff10"),
    ],
)
def test_the_digits_of_a_number_are_of_one_kind(number: str, written: str) -> None:
    profile = describe_source([*JAPANESE, *HALF_WIDTH], ENGLISH)
    line = "\u732b\u306f{}\u6642\u3002"
    assert profile.ordinary(line.format(number)) == line.format(written)


def test_a_number_has_no_digits_of_two_scripts_where_the_text_has_few() -> None:
    few = [f"The cat is {number} here." for number in (1, 2, 12)] * 40
    profile = describe_source(few, few)
    assert profile.ordinary("The cat is \u0967\u096d here.") == "The cat is 17 here."
    assert profile.label_in_target("\u0967\u096d. ") == "17. "


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ma\u0219in\u0103 \u021bar\u0103", "ma\u015fin\u0103 \u0163ar\u0103"),
        ("\u0218i \u021aara", "\u015ei \u0162ara"),
        ("\u015fi\u015fe", "\u0219i\u0219e"),
    ],
)
def test_a_cedilla_and_a_comma_below_are_one_mark(text: str, line: str) -> None:
    """Romanian has commas, which older keyboards write as the cedillas of Turkish."""
    profile = describe_source([f"{text}."] * 120, ENGLISH)
    assert unicodedata.normalize("NFC", profile.ordinary(f"{line}.")) == f"{text}."
    both = describe_source([f"{text} {line}."] * 120, ENGLISH)
    assert both.ordinary(f"{line}.") == f"{line}."
