"""Invented names: detection of names, and identical replacements on both sides."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.copied_words import (
    _MARKED_LETTERS,
    FORM_RATE,
    MARK_RATE,
    MIN_LETTERS,
    NameInventor,
    shared_names,
)
from seq2seq.text.sample import sample_rows

SRC = [
    "Tom met Mary in Boston.",
    "Mary's cat is in Boston, Tom.",
    "Was Tom in Rome?",
    "In Rome, Al met an old man.",
    "The computer is old.",
]
TGT = [
    "Tom traf Mary in Boston.",
    "Marys Katze ist in Boston, Tom.",
    "War Tom in Rom?",
    "In Rom traf Al einen alten Mann.",
    "Der Computer ist alt.",
]
NAMES = {"Tom", "Mary", "Boston"}


def inventor(rate: float = 0.999) -> NameInventor:
    return NameInventor(SRC, TGT, rate)


def test_names_are_capitalised_words_shared_by_both_sides() -> None:
    """ "In" also occurs in lower case, "Al" is too short, and "Rome" is not shared."""
    assert shared_names(SRC, TGT) == NAMES


def test_names_of_a_large_text_come_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = (["A dog.", *side, "A cat."] * 9 for side in (SRC, TGT))
    sampled_sides = [[side[row] for row in sample_rows(len(src), 3)] for side in (src, tgt)]
    expected = shared_names(*sampled_sides)
    assert expected < shared_names(src, tgt)
    monkeypatch.setattr("seq2seq.text.copied_words.MAX_PAIRS", 3)
    assert shared_names(src, tgt) == expected


def test_both_sides_have_the_same_invented_name() -> None:
    src, tgt = inventor().invent(["Is Tom here? Tom!"] * 40, ["Tom! Ist Tom da?"] * 40, 3)
    invented = set()
    for src_line, tgt_line in zip(src, tgt, strict=True):
        match = re.fullmatch(r"Is (.+) here\? (.+)!", src_line)
        assert match
        assert match[1] == match[2]
        assert tgt_line == f"{match[1]}! Ist {match[1]} da?"
        invented.add(match[1])
    assert len(invented) > 15


def test_a_genitive_ending_is_kept() -> None:
    src, tgt = inventor().invent(["Mary's cat"] * 20, ["Marys Katze"] * 20, 1)
    names = [line.removesuffix("'s cat") for line in src]
    assert len({*names}) > 5
    assert tgt == [f"{name}s Katze" for name in names]


@pytest.mark.parametrize(
    "pair",
    [
        ("Tom met Ann.", "Er traf Ann."),  # on one side only; not a name of the corpus
        ("Tom saw Tom.", "Tom sah sich."),  # different number of occurrences
        ("Tomatoes for Tom", "Tomaten"),
        ("Bostonians", "Bostoner"),
        ("1,299 dollars", "1.299 Dollar"),
        ("", ""),
    ],
)
def test_words_that_are_not_copied_are_kept(pair: tuple[str, str]) -> None:
    assert inventor().invent([pair[0]], [pair[1]], 5) == ([pair[0]], [pair[1]])


def test_codes_and_numbers_keep_their_form() -> None:
    text = "LH4711 at 17:45, B-217: a.b@c-d.org"
    src, tgt = inventor().invent([text] * 20, [text] * 20, 2)
    assert src == tgt
    assert len({*src}) == 20
    for code in src:
        form = r"[^\W\d_]{2}\d{4} at [1-9]\d:\d\d, [^\W\d_]-\d{3}: a\.b@c-d\.org"
        assert re.fullmatch(form, code)
        assert code[:2].isupper()


@pytest.mark.approximate
def test_some_names_have_diacritics_or_another_form() -> None:
    src, tgt = inventor().invent(["Tom sleeps."] * 2000, ["Tom schläft."] * 2000, 4)
    names = [line.removesuffix(" sleeps.") for line in src]
    assert tgt == [f"{name} schläft." for name in names]
    assert sum(map(str.isalpha, names)) == pytest.approx(2000 * (1 - FORM_RATE), abs=80)
    plain = [name for name in names if name.isalpha()]
    marked = sum(not name.isascii() for name in plain)
    assert marked == pytest.approx(len(plain) * MARK_RATE, abs=70)
    for form in (r"\w+-\w+", r"\w\w\d{3}", r"[1-9]\d:\d0", r"\w+\.\w+@\w+\.\w+", r"\w+ \w+"):
        assert any(re.fullmatch(form, name) for name in names)


def test_a_letter_with_a_diacritic_is_one_character_in_either_case() -> None:
    for letter in _MARKED_LETTERS:
        assert len(letter.upper()) == len(letter.lower()) == 1
        assert unicodedata.normalize("NFC", letter) == letter


@pytest.mark.approximate
def test_a_rate_of_one_half_replaces_half_of_the_names() -> None:
    src, _ = inventor(0.5).invent(["Tom sleeps."] * 2000, ["Tom schläft."] * 2000, 4)
    assert sum(line == "Tom sleeps." for line in src) == pytest.approx(1000, abs=120)


def test_without_names_single_letters_are_kept() -> None:
    assert NameInventor([], [], 0.999).invent(["x1 Tom"], ["x1 Tom"], 1)[0][0][0] == "x"


words = st.text("abTomMaryBoston19.'- ", max_size=30)


@given(st.lists(st.tuples(words, words), max_size=5), st.integers(0, 2**63))
def test_invented_names_depend_only_on_pairs_and_seed(
    pairs: list[tuple[str, str]], seed: int
) -> None:
    src = [src_line for src_line, _ in pairs]
    tgt = [tgt_line for _, tgt_line in pairs]
    invented = inventor(0.5).invent(src, tgt, seed)
    assert invented == inventor(0.5).invent(src, tgt, seed)
    assert [*map(len, invented)] == [len(pairs)] * 2
    assert all(len(name) >= MIN_LETTERS for name in shared_names(src, tgt))
