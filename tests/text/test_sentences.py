"""Sentence ends and abbreviations."""

import pytest
from cases.growth import LINEAR, growth

from seq2seq.text.affixes import split_affixes
from seq2seq.text.learned_sentences import count_words, find_abbreviations, words_after_ordinals
from seq2seq.text.sentences import NUMBER, SentenceHabits, split_sentences


def abbreviations_of(lines: list[str]) -> list[str]:
    return find_abbreviations(lines, count_words(lines))


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
        "II. The red car is old.",
        "iv. The red car is old.",
        "\u1369. The red car is old.",
        "It is -5.-The",
        "It is old...the",
        "...The car is old ",
        "\u4eca\u65e5\u306f\u2026\u660e\u65e5\u306f",
        "\u53bb\u5b66\u6821...\u4f60",
        "See ca.\U0001f600 the car",
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
        ".\U0001f600 ",
        ".\U0001f44d\U0001f3fd ",
        ".\u2764\ufe0f",
        ".\U0001f600",
        ".[3] ",
        ".[12]",
        ".(1) ",
        ". \u2461 ",
        ". 1\ufe0f\u20e3 ",
        ".- ",
        ".\u2014",
        ".\u2013 ",
        ".\u200f ",
        ".\u200b",
        ".(",
        ".\u00bf",
        "...",
        "\u2026",
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
    assert abbreviations_of(lines) == ["Prof"]
    ordinals = ["Am 15. August.", "Am 3. Mai kam er.", "Es sind 20 Tage."]
    assert abbreviations_of(ordinals) == [NUMBER]


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
    assert growth(lambda size: abbreviations_of(lines[size]), 20_000) < LINEAR


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
    assert abbreviations_of(lines) == [NUMBER]
    several = [
        *["I saw the cat and it was old. The cat and the old dog saw me."] * 20,
        *["It is 30. She left the old cat."] * 3,
        *["There are 20 cats here."] * 90,
    ]
    assert NUMBER not in abbreviations_of(several)


@pytest.mark.parametrize(
    "sentences",
    [
        [
            "\u300c\u305d\u3046\u3060\u3002\u884c\u3053\u3046\u3002\u300d\u3068\u8a00\u3063\u305f\u3002",
            "\u6b21\u3002",
        ],
        [
            "\u5f7c\u306f\u300e\u884c\u3053\u3046\uff01\u597d\u3002\u300f\u3068\u300c\u597d\u3002\u884c\u3002\u300d\u3068\u3002",
            "\u597d\u3002",
        ],
        ["\u597d\uff08\u597d\u3002\u884c\uff01\uff09\u597d\u3002", "\u884c\u3002"],
        ['"\u597d\u3002"', '"\u884c\uff01"', "\u597d\u3002"],
        ["He said (it is. So it is.) and left.", "Bye."],
        ["He said “Stop. Go on,” and left.", "I do."],
        ["The car [it is red. It is fast.], a new one, left.", "Bye."],
        ["Un « Oui. Non. », dit-il.", "Bon."],
        ["((It is. So.) so. It is.) so.", "It is."],
    ],
)
def test_no_sentence_ends_in_brackets_after_which_one_continues(sentences: list[str]) -> None:
    space = "" if sentences[0][-1] == "\u3002" else " "
    assert split_sentences(space.join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["(It is red.", "It is fast.)", "Tom left."],
        ["“Stop.", "Go on.”", "Tom left."],
        ["He said :( It is.", "So (a."],
        ["a) One is old.", "B) Two is."],
    ],
)
def test_sentences_end_in_other_brackets(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_quotation_mark_apart_closes_or_opens(quote: str) -> None:
    """As a tokenizer writes them: it closes a quotation that the sentence has begun."""
    first = f"He said , {quote} It is so . {quote}"
    second = f"{quote} Tom left . {quote}"
    assert split_sentences(f"{first} Then he left .") == [first, "Then he left ."]
    assert split_sentences(f"{first} {second}") == [first, second]
    assert split_sentences(f"It is so . {second}") == ["It is so .", second]
    assert split_sentences(f"{quote} Is it ? {quote} Tom said .") == [
        f"{quote} Is it ? {quote} Tom said ."
    ]


@pytest.mark.parametrize(
    "line", ["etc . , etc . , so", "jr . , who", "A. \u3001 b", "x . \u00ab , aber"]
)
def test_no_sentence_begins_with_a_comma(line: str) -> None:
    assert split_sentences(line) == [line]


@pytest.mark.parametrize("dash", ["-", "--", "\u2014", "\u2013"])
def test_a_dash_before_lower_case_begins_no_sentence(dash: str) -> None:
    line = f"How should I say it? {dash} it is old. {dash} The cat"
    assert split_sentences(line) == [f"How should I say it? {dash} it is old.", f"{dash} The cat"]


KNOWN = SentenceHabits(before_lower=True, words=frozenset(("old", "is", "here", "he")))


@pytest.mark.parametrize(
    "line",
    [
        "It weighs ca. eighty kilos.",
        "He has a Ph.D. in physics.",
        "he has a ph.d. in physics.",
        "Fruit, nuts usw. are here.",
        "A B.Sc. from here.",
        "See pp. four and five.",
        "He is here ... he is old.",
        "He is\u2026 he is old.",
    ],
)
def test_an_unknown_word_with_a_full_stop_is_shortened_before_lower_case(line: str) -> None:
    assert split_sentences(line, KNOWN) == [line]


@pytest.mark.parametrize(
    "sentences",
    [
        ["He is old.", "he is here."],
        ["he is wise.", "he is here."],  # who writes no capitals writes none here
        ["It costs 15.", "he is here."],
        ["Is it wise?", "he is here."],
        ["It is wise.", "Here it is."],
    ],
)
def test_other_sentences_end_before_lower_case(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), KNOWN) == sentences


def test_a_full_stop_apart_may_be_that_of_an_abbreviation() -> None:
    """The line is one of tokens, and the training text joins its full stops."""
    line = "Apples , nuts usw . are here . Mr . Rao left ."
    joins_stops = SentenceHabits({"usw"}, before_lower=True, joins_stops=True)
    first = "Apples , nuts usw . are here ."
    assert split_sentences(line, joins_stops) == [first, "Mr . Rao left ."]
    assert len(split_sentences(line, joins_stops._replace(joins_stops=False))) == 4


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("Is it so ?Yes it is", 2),
        ("He is here .He is old", 2),
        ("He is here !He is old", 2),
        ("the .Net code", 1),
        ("the !Kung people", 1),
        ("a .txt file", 1),
        ("hi :D ok", 1),
        ("see a.b/c ?x=Yes", 1),
        ("\u0647\u0644 \u0647\u0648 \u061f\u0646\u0639\u0645", 2),
    ],
)
def test_a_space_may_be_on_the_wrong_side_of_a_mark(line: str, count: int) -> None:
    assert len(split_sentences(line, KNOWN)) == count


@pytest.mark.parametrize(
    "unit", ["(a. B", "(a. B) c", '. " A', "((A.", "\u300c\u3002", ".A ", " ?Ab"]
)
def test_the_time_of_brackets_and_quotations_grows_with_the_length_of_a_line(unit: str) -> None:
    texts = {size: unit * (size // len(unit)) for size in (6_000, 12_000)}
    assert growth(lambda size: split_sentences(texts[size], KNOWN), 6_000) < LINEAR


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("it is old . & lt ; em & gt ;", 1),
        ("It is old. & it is new.", 1),
        ("It is old. & He left.", 2),
        ("It is old. & 5 cars.", 2),
        ("It is old. #cats", 2),
    ],
)
def test_a_sign_before_lower_case_begins_no_sentence(line: str, count: int) -> None:
    assert len(split_sentences(line)) == count


def test_the_words_after_ordinals_are_found() -> None:
    lines = [
        *["Am 3. Oktober kam er.", "Bis zum 15. Mai."] * 2,
        *["Er ist 30. Sie ist 20."] * 3,
        *["Sie kam."] * 200,
    ]
    assert words_after_ordinals(lines, count_words(lines)) == ["Mai", "Oktober"]
