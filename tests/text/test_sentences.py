"""Sentence ends and abbreviations."""

import pytest
from cases.growth import LINEAR, growth

from seq2seq.text.sentences import (
    NUMBER,
    SentenceHabits,
    find_abbreviations,
    split_affixes,
    split_sentences,
)


@pytest.mark.parametrize(
    "sentences",
    [
        ["Tom is here."],
        ["Stop!", "Thief!"],
        ["Where is he?", "I don't know.", "He left..."],
        ['"Do you like it?"', '"Yes."'],
        ["He said (again) yes.)", "Then he left."],
        ["¿Dónde está?", "¡Aquí!"],
        ["थांब!", "चोर!"],
        ["सगळं ठीक आहे।", "काळजी करू नका।"],
        ["هل أنت هنا؟", "نعم."],
        ["И она ушла.", "Он остался."],
        ["It cost 3.5 kg. of 1.2.3 and www.example.com today."],
        ['"Stop!" Tom said.'],
        ["Wait... what?"],
        ["J. Smith and Dr. Rao met Mrs. Rao in St. Petersburg."],
        ["The U.S. Army came."],
        ["No. 5 is alive."],
        ["One.", "Two ! ? ."],
        ["... ."],
        [""],
    ],
)
def test_a_line_is_split_after_its_sentences(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_chinese_and_japanese_sentences_need_no_space() -> None:
    line = ["私は学生です。", "「本当\uff1f」", "「はい\uff01」と彼は言った。", "そう\uff01"]
    assert split_sentences("".join(line)) == line
    assert split_sentences("好。 很好。") == ["好。", "很好。"]


def test_sentences_stay_together_in_groups() -> None:
    line = "Go on. I do.  Who? Me. Oh."
    assert split_sentences(line, together=2) == ["Go on. I do.", "Who? Me.", "Oh."]
    assert split_sentences(line, together=9) == [line]


def test_an_abbreviation_does_not_end_a_sentence() -> None:
    line = "See Pandit. Rao. He knows."
    assert split_sentences(line) == ["See Pandit.", "Rao.", "He knows."]
    assert split_sentences(line, SentenceHabits({"Pandit"})) == ["See Pandit. Rao.", "He knows."]


@pytest.mark.parametrize(
    "text",
    [
        "Prof. Alice is a doctor.",
        "I met Gen. Lee in Paris.",
        "Sat. The car is old.",
        "approx. Five cars",
        "1. The red car is old.",
        "Step 1. The car",
        "§ 3. The car",
        "No. 1. The car",
        "www.Example.com is old",
        "the red car is old. the cat is black.",
    ],
)
def test_labels_titles_and_addresses_end_no_sentence(text: str) -> None:
    assert split_sentences(text) == [text]


@pytest.mark.parametrize(
    "between",
    [
        " 😆 ",
        " - ",
        " • ",
        " → ",
        " ~ ",
        " / ",
        " & ",
        " # ",
        " $5 ",
        " € ",
        " { ",
        " * ",
        ".² ",
        ".™ ",
        " (1) ",
        " @name ",
        " ; ",
        " : ",
        "\u3000",
        "",
    ],
)
def test_an_end_is_an_end_whatever_follows(between: str) -> None:
    first = "The red car is old"
    second = "The cat is black."
    between = between if between.startswith(".") else f".{between}"
    parts = split_sentences(f"{first}{between}{second}")
    assert len(parts) == 2
    assert parts[0].startswith(first)
    assert parts[1].endswith(second)


QUOTATIONS = [
    "“{}”",
    "„{}“",
    "»{}«",
    "«{}»",
    "”{}”",
    "\u201a{}\u2018",
    "« {} »",
    '"{}"',
    "({})",
    "{{{}}}",
    "⟨{}⟩",
]


@pytest.mark.parametrize("quotation", QUOTATIONS)
@pytest.mark.parametrize("mark", [".", "…", "?!"])
def test_any_quotation_marks_close_a_sentence_and_open_the_next(quotation: str, mark: str) -> None:
    first, second = quotation.format(f"The car is old{mark}"), quotation.format("Tom left.")
    assert split_sentences(f"{first} {second}") == [first, second]
    assert split_sentences(f"It is so. {second} Then Ann left.")[0] == "It is so."
    if mark != "?!":  # a question may be followed by who asks
        assert split_sentences(f"{first} Then Tom left.") == [first, "Then Tom left."]


@pytest.mark.parametrize(
    "quotation", ["「{}」", "『{}』", "《{}》", "【{}】", "〈{}〉", "“{}”", "\uff08{}\uff09"]
)
def test_brackets_of_scripts_without_spaces_keep_their_sentence(quotation: str) -> None:
    quoted = quotation.format("走吧。")
    assert split_sentences(f"{quoted}他说。") == [f"{quoted}他说。"]
    assert split_sentences(f"好。{quoted}{quoted}") == ["好。", quoted, quoted]


def test_the_number_of_a_note_in_brackets_belongs_to_the_sentence_before_it() -> None:
    line = "The car is old.[1][12] The cat is black."
    assert split_sentences(line) == ["The car is old.[1][12]", "The cat is black."]


def test_sentences_that_begin_in_lower_case_are_cut_on_request() -> None:
    line = "The car is old. the cat is black. approx. five"
    assert split_sentences(line, SentenceHabits(before_lower=True)) == [
        "The car is old.",
        "the cat is black.",
        "approx. five",
    ]


def test_a_number_is_an_ordinal_where_numbers_are_abbreviations() -> None:
    line = "Er kam am 15. August an."
    assert split_sentences(line) == ["Er kam am 15.", "August an."]
    assert split_sentences(line, SentenceHabits({NUMBER})) == [line]


def test_abbreviations_are_words_with_a_full_stop_within_lines() -> None:
    lines = [
        *["Prof. Rao left.", "I saw Prof. Rao there."],
        *[
            "Stop it. Tom left.",
            "Tom did it. Tom stayed.",
            "I like it.",
            "It is it, and it was it.",
        ],
    ]
    assert find_abbreviations(lines) == ["Prof"]
    ordinals = ["Am 15. August.", "Am 3. Mai kam er.", "Es sind 20 Tage."]
    assert find_abbreviations(ordinals) == [NUMBER]


@pytest.mark.parametrize(
    "text", [".", "\u3002", '."', ".\u00b9", "? (", "a.B", "\u3002)", "1. ", "Dr. ", "ab.Ab"]
)
def test_lines_of_marks_take_linear_time(text: str) -> None:
    """In time that grows with the square of its length this line would take hours."""
    line = text * 30_000
    assert sum(map(len, split_sentences(line))) >= len(line) - line.count(" ")


@pytest.mark.parametrize("label", ["2)", "12]"])
def test_a_number_of_a_list_begins_a_sentence(label: str) -> None:
    assert split_sentences(f"One is old. {label} Two is new.") == [
        "One is old.",
        f"{label} Two is new.",
    ]
    assert split_sentences("In version No. 2 it is 3. 5 cars") == [
        "In version No. 2 it is 3. 5 cars"
    ]


@pytest.mark.parametrize(
    "line", [(" ", "Dr. X "), ("x", " Dr. X"), ("", "a.B"), ("", "1. ")], ids=str
)
def test_the_time_of_cutting_grows_with_the_length_of_a_line(line: tuple[str, str]) -> None:
    start, unit = line
    texts = {size: start * size + unit * (size // 4) + " car" for size in (3_000, 6_000)}
    assert growth(lambda size: split_sentences(texts[size]), 3_000) < LINEAR
    assert growth(lambda size: split_affixes(texts[size]), 3_000) < LINEAR


def test_the_time_of_finding_abbreviations_grows_with_the_length_of_a_word() -> None:
    lines = {size: ["a.b" + "x" * size] for size in (20_000, 40_000)}
    assert growth(lambda size: find_abbreviations(lines[size]), 20_000) < LINEAR


@pytest.mark.parametrize(
    "line",
    [
        "\u00ab Bonjour ! \u00bb, dit-il.",
        "Il a dit : \u00ab Bonjour ! \u00bb",
        "He is 30 (!) and happy.",
        "\u0e1e.\u0e28. \u0e52\u0e55\u0e56\u0e53",
        '\u4ed6\u8bf4"\u597d\u3002"\u7136\u540e',
    ],
)
def test_what_closes_or_abbreviates_ends_no_sentence(line: str) -> None:
    assert split_sentences(line) == [line]


def test_the_space_before_a_closing_quotation_mark_begins_no_tail() -> None:
    line = "Il a dit : \u00ab Bonjour ! \u00bb"
    assert split_affixes(line) == ("", line, "")


def test_the_full_stop_of_an_abbreviation_before_a_number_begins_no_tail() -> None:
    assert split_affixes("I was in room No. 5.", {"No"}) == ("", "I was in room No. 5.", "")


def test_ordinals_are_found_among_many_numbers() -> None:
    lines = ["Es sind 20 Tage bis dahin."] * 95 + ["Er kam am 15. August an."] * 5
    assert find_abbreviations(lines) == [NUMBER]
    several = [
        *["I saw the cat and it was old. The cat and the old dog saw me."] * 20,
        *["It is 30. She left the old cat."] * 3,
        *["There are 20 cats here."] * 90,
    ]
    assert NUMBER not in find_abbreviations(several)
