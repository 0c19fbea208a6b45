"""Labels and symbols around sentences."""

import pytest

from seq2seq.text.affixes import split_affixes, split_brackets
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.line_properties import has_letters
from seq2seq.text.sentences import NUMBER, split_sentences


@pytest.mark.parametrize(
    "label",
    [
        "1. ",
        "12.3. ",
        "(4) ",
        "II. ",
        "a) ",
        "Q: ",
        "#cats ",
        "@ann ",
        "• ",
        "- ",
        "→ ",
        "😀 ",
        "❶ ",
        "፩. ",
        "1\ufe0f\u20e3 ",
    ],
)
def test_labels_and_symbols_before_a_sentence_are_set_aside(label: str) -> None:
    assert split_affixes(f"{label}The red car is old.") == (label, "The red car is old.", "")


@pytest.mark.parametrize("tail", [" 😀", "¹", "*", " [1]", "™", " 🎉 🎉", " <3", " ~", " 5%", " ☎"])
@pytest.mark.parametrize("mark", [".", "!", '."', "?)"])
def test_symbols_and_numbers_after_a_mark_are_set_aside(tail: str, mark: str) -> None:
    body = f"The red car is old{mark}"
    assert split_affixes(body + tail) == ("", body, tail)


@pytest.mark.parametrize(
    "text",
    [
        "The red car is old.",
        "He is 5.",
        "It costs $5.00.",
        "pi is 3.14",
        "in (1992).",
        'He said "stop."',
        "Wait...",
        "A. K. Sen walked.",
        "I have 2 cats",
        "«Bonjour.»",
        "¿Qué?",
        "12345",
        "*** [1]",
        "old :-)",
        "यह पुराना है।",
    ],
)
def test_a_text_without_affixes_is_left_alone(text: str) -> None:
    assert split_affixes(text) == ("", text, "")


@pytest.mark.parametrize(
    ("body", "tail"),
    [
        ("old!", "!!"),
        ("old?", "!"),
        ("old.", "…"),
        ("old...", "!"),
        ("old.”", "."),
        ("old?", "??)"),
    ],
)
def test_further_end_marks_are_set_aside(body: str, tail: str) -> None:
    assert split_affixes(f"The car is {body}{tail}") == ("", f"The car is {body}", tail)


def test_emoji_after_a_text_without_a_mark_are_set_aside() -> None:
    assert split_affixes("The car is old 😀👍🏽") == ("", "The car is old", " 😀👍🏽")


def test_letters() -> None:
    assert all(map(has_letters, ("a1", "न", "\ufdd0")))
    assert not any(map(has_letters, ("", " 12", "***", "😀", "$5.00", "10:30", "♪")))


@pytest.mark.parametrize(
    "label",
    [
        "\u30fb",
        "\u2460",
        "\uff11\uff0e",
        "1.",
        "1\u3001",
        "\uff11\u3001",
        "1\u3002",
        "[1]",
        "(1)",
        "\uff08\uff11\uff09",
        "\uff0d",
        "\u2014",
        "\u203b",
        "\u30a2\uff0e",
        "\u2163.",
    ],
)
def test_no_space_follows_a_label_before_letters_that_have_none(label: str) -> None:
    text = "\u732b\u306f\u9ed2\u3044\u3002"
    assert split_affixes(label + text) == (label, text, "")
    assert split_sentences(label + text) == [label + text]


def test_the_numbers_of_a_list_have_the_marks_of_its_script() -> None:
    for label in ("\u09eb\u0964 ", "5\u0964 ", "\u0665\u06d4 ", "\u1041\u104b ", "\u17e1\u17d4 "):
        text = "\u0995\u09be\u09b2\u09cb\u0964"
        assert split_affixes(label + text) == (label, text, "")
        assert split_sentences(label + text) == [label + text]
    for text in (
        "1\u30012\u30013\u3068\u6570\u3048\u308b\u3002",
        "\u136d \u1218\u133d\u1210\u134d",
    ):
        assert split_affixes(text).head == ""


def test_ideographs_are_no_labels_and_latin_words_have_a_space_before_them() -> None:
    for text in ("(\u6728)\u732b\u306f\u9ed2\u3044\u3002", "1.car is here.", "(a)car."):
        assert split_affixes(text).head == ""


def test_the_full_stop_of_an_abbreviation_before_another_mark_begins_no_tail() -> None:
    for line in ("Cats, dogs etc.?", "He left the U.S.!", "in the U.S.?!"):
        body, mark = line[:-1].rstrip("?!"), line.rpartition(".")[2]
        assert split_affixes(line) == ("", body + mark[:1], mark[1:])
    assert split_affixes("It is old.?") == ("", "It is old.", "?")


GERMAN = [
    *["Am 3. Oktober ist es da.", "Das ist der 1. Stock."] * 20,
    *["Der Oktober ist alt.", "Das ist ein Haus."] * 40,
]


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ("3. Oktober ist da.", ""),
        ("1. Stock, das Haus.", ""),
        ("1. Das ist alt.", "1. "),
        ("2. FC ist da.", "2. "),
        ("3) Oktober ist da.", "3) "),
        ("(3) Oktober ist da.", "(3) "),
    ],
)
def test_a_number_is_an_ordinal_before_words_that_follow_ordinals(line: str, head: str) -> None:
    """As the training text shows, which writes ordinals so; elsewhere it is a label."""
    profile = describe_source(GERMAN, GERMAN)
    assert profile.ordinal_words == ["Oktober", "Stock"]
    assert profile.affixes(line).head == head
    plain = [line.replace("3. ", "").replace("1. ", "") for line in GERMAN]
    assert describe_source(plain, plain).affixes("3. Oktober ist da.").head == "3. "


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("(It is so.)", ("(", "It is so.", ")")),
        ("(It is so).", ("(", "It is so", ").")),
        ("\uff08\u732b\u3002\uff09", ("\uff08", "\u732b\u3002", "\uff09")),
        ("[It is so]", ("[", "It is so", "]")),
        ("(It) is (so)", None),
        ("(It (or he) is so)", None),
        ("(5)", None),
        ("(It is so) he", None),
        ("(It is so", None),
        ("It is so)", None),
        (":)", None),
        ("“It is so.”", None),
    ],
)
def test_brackets_around_a_text_are_set_aside(
    line: str, parts: tuple[str, str, str] | None
) -> None:
    assert split_brackets(line) == (parts or ("", line, ""))
    plain = describe_source(["It is so."] * 200, ["x"] * 200)
    bracketed = describe_source(["(It is so.)", "It is (so)."] * 100, ["x"] * 200)
    assert not plain.brackets
    assert bracketed.brackets
    assert parts is None or plain.affixes(line) == parts
    assert parts is None or bracketed.affixes(line).head == ""


FEW = [*GERMAN[:2], *["Am 3. Oktober ist es da."] * 2, *["Es sind 20 Tage."] * 900]


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("Es ist der 3. Oktober 1990.", 1),
        ("3. Oktober ist da.", 1),
        ("Es sind 20. Oktober kommt.", 1),
        ("Es sind 20. Der Oktober kommt.", 2),
        ("Es ist da. Oktober kommt.", 2),
    ],
)
def test_few_ordinals_show_their_words(line: str, sentences: int) -> None:
    """Here numbers seldom are ordinals, but October follows one."""
    profile = describe_source(FEW, FEW)
    assert NUMBER not in profile.abbreviations
    assert profile.ordinal_words == ["Oktober"]
    assert len(profile.parts(line)) == sentences
    assert profile.affixes(line).head == ""
