"""Transliteration by a noisy channel, compared with its definition."""

import itertools
import math
import unicodedata

import pytest

from seq2seq.text.names.native_speller import ALTERNATIVES, NativeSpeller, letters_of, may_follow
from seq2seq.text.names.sounds import units_of

# Hindi and Marathi words that share parts with names.
WORDS = [
    *("कविता", "कमल", "राजा", "राम", "नाम", "सुख", "सुर", "देश", "गणेश", "विजय", "जय", "लता"),
    *("तारा", "गीत", "नदी", "दीप", "रवि", "अनिल", "अमर", "निल", "सुनील", "आशा", "भारत", "मुंबई"),
]


@pytest.fixture(scope="module")
def speller() -> NativeSpeller:
    return NativeSpeller(WORDS)


def probability(spelling: str, name: str) -> float:
    """Return the probability of a name given its spelling, summed over all segmentations."""
    units = units_of(spelling)
    total = 0.0
    for cuts in itertools.combinations(range(1, len(name)), len(units) - 1):
        chunks = [name[a:b] for a, b in itertools.pairwise((0, *cuts, len(name)))]
        prob = 1.0
        for n, (unit, chunk) in enumerate(zip(units, chunks, strict=True)):
            following = units[n + 1] if n + 1 < len(units) else None
            prob *= letters_of(unit, following).get(chunk, 0.0)
        total += prob
    return total


@pytest.mark.parametrize("name", ["amita", "sunita", "ramesh", "lata", "dinesh", "mumbai", "jay"])
def test_spellings_are_romanized_as_the_name(speller: NativeSpeller, name: str) -> None:
    spellings = speller.spellings(name)
    assert len(spellings) > 1
    assert all(probability(text, name) > 0 for text in spellings)
    assert list(spellings.values()) == sorted(spellings.values(), reverse=True)
    assert math.fsum(spellings.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", ["jita", "sula", "rame", "lata"])
def test_every_possible_spelling_of_two_or_three_units_is_scored(
    speller: NativeSpeller, name: str
) -> None:
    units = sorted({unit for word in WORDS for unit in units_of(word)})
    possible = {
        "".join(combination)
        for size in (2, 3)
        for combination in itertools.product(units, repeat=size)
        if all(may_follow(combination[:n], unit) for n, unit in enumerate((*combination, None)))
        and probability("".join(combination), name) > 0
    }
    spellings = speller.spellings(name)
    short_spellings = {text for text in spellings if len(units_of(text)) < 4}
    assert short_spellings
    assert short_spellings <= possible
    assert short_spellings == possible or len(spellings) == ALTERNATIVES
    assert any(len(speller.spellings(short_name)) < ALTERNATIVES for short_name in ("rame", "sula"))


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("lata", "लता"),  # a final inherent vowel is not written: the last vowel is long
        ("kamal", "कमल"),
        ("vijay", "विजय"),
        ("ram", "राम"),
        ("deepa", "दीपा"),
        ("amar", "अमर"),
    ],
)
def test_names_are_spelled_like_parts_of_words(
    speller: NativeSpeller, name: str, spelling: str
) -> None:
    assert next(iter(speller.spellings(name))) == spelling


def test_no_spelling_breaks_the_rules_of_the_script(speller: NativeSpeller) -> None:
    for name in ("anita", "aishwarya", "kshitij", "om", "indu", "gauri", "umesh"):
        for text in speller.spellings(name):
            names = [unicodedata.name(character) for character in text]
            assert "SIGN" not in names[0]
            assert not names[-1].endswith("VIRAMA")
            for left, right in itertools.pairwise(names):
                assert not (left.endswith("VIRAMA") and "VOWEL" in right)
                assert not ("VOWEL SIGN" in left and "VOWEL SIGN" in right)


def test_other_scripts_have_no_channel() -> None:
    speller = NativeSpeller(["слово", "word", "言葉"])
    assert not speller
    assert speller.spellings("lata") == {}


def test_unknown_letters_have_no_spelling(speller: NativeSpeller) -> None:
    assert speller.spellings("željko") == {}
    assert speller.spellings("") == {}


def test_other_indic_scripts_are_supported() -> None:
    """Gujarati letters have the same Unicode names."""
    table = {
        ord(character): unicodedata.lookup(
            unicodedata.name(character).replace("DEVANAGARI", "GUJARATI")
        )
        for character in sorted(set("".join(WORDS)))
    }
    gujarati = NativeSpeller([word.translate(table) for word in WORDS])
    for name in ("lata", "ramesh", "sunita"):
        expected = NativeSpeller(WORDS).spellings(name)
        spellings = gujarati.spellings(name)
        best = next(iter(expected))
        assert next(iter(spellings)) == best.translate(table)
        assert spellings[best.translate(table)] == pytest.approx(expected[best])
