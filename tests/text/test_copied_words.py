"""Copied words: learn from a training text which words a translation copies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.copied_words import MIN_FORM, CopyHabits, copy_habits, form_of

NAMES = ["Aki", "Bodil", "Chidi", "Dewi", "Eero", "Farah"]
DISHES = ["Kuchen", "Braten", "Suppe", "Brot", "Torte", "Salat"]
PAIRS = [
    *((f"{name} sleeps.", f"{name} schläft.") for name in NAMES),
    *((f"I ate {n},500 nuts.", f"Ich aß {n}.500 Nüsse.") for n in range(2, 9)),
    *((f"We saw {n} cats.", f"Wir sahen {n} Katzen.") for n in range(11, 19)),
    *((f"They like {word.lower()}s.", f"Sie mögen {word}.") for word in DISHES),
    ("The cats sleep.", "Die Katzen schlafen."),
    ("Munich is old.", "München ist alt."),
    ("Tom's nuts, Tom!", "Toms Nüsse, Tom!"),
    ("We saw Tom.", "Wir sahen ihn."),
]


@pytest.fixture(scope="module")
def habits() -> CopyHabits:
    return copy_habits([src for src, _ in PAIRS], [tgt for _, tgt in PAIRS])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Rahul sleeps.", ["Rahul"]),
        ("We saw Rahul, Farah and Munich.", ["Rahul", "Farah"]),
        ("Priya's cats: Rahul, Rahul!", ["Priya", "Rahul"]),
        ("Cats sleep. Nuts sleep.", []),  # lowercase words that start a sentence
        ("We saw Cats.", ["Cats"]),
        ("We saw Tom.", []),  # copied in two pairs of three
        ("I ate 77 cats, 9,500 nuts and some figs.", ["77"]),
        ("They like b.c@d-e.org, www.f.net/g or LH4711.", ["b.c@d-e.org", "www.f.net/g", "LH4711"]),
        ("RAHUL SLEEPS.", []),
        ("an unheard-of thing, isn't it", []),
        ("", []),
    ],
)
def test_words_are_copied_as_in_the_training_text(
    habits: CopyHabits, line: str, words: list[str]
) -> None:
    assert habits.copied_in(line) == words


def test_a_word_form_is_copied_if_its_rare_words_are(habits: CopyHabits) -> None:
    assert [*habits.copied_forms] == ["0", "Xx"]
    assert [*habits.translated_forms] == ["0,0", "x"]


def test_a_word_form_needs_enough_words() -> None:
    src = ["Aki sleeps."] * 3
    tgt = ["Aki schläft."] * 3
    assert copy_habits(src, tgt) == CopyHabits(["sleeps"], [], [])
    names = NAMES[: MIN_FORM - 1]
    assert copy_habits(names, names).copied_forms == []
    assert copy_habits(NAMES, NAMES).copied_forms == ["Xx"]


def test_nothing_is_copied_without_a_training_text() -> None:
    assert CopyHabits().copied_in("Rahul has 4711.") == []


@pytest.mark.parametrize(
    ("word", "form"),
    [("Ōe", "Xx"), ("NASA", "X"), ("LH4711", "X0"), ("O'Neil", "X'Xx"), ("1,299.50", "0,0.0")],
)
def test_a_word_form_consists_of_case_digits_and_punctuation(word: str, form: str) -> None:
    assert form_of(word) == form


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=8), st.text())
def test_copied_words_are_parts_of_their_line(pairs: list[tuple[str, str]], line: str) -> None:
    learned_habits = copy_habits([src for src, _ in pairs], [tgt for _, tgt in pairs])
    assert all(word in line for word in learned_habits.copied_in(line))
