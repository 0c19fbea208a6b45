"""A toy language pair with names, which the target spells by their sounds in Devanagari."""

import random
from typing import NamedTuple

CONSONANTS = {
    "k": "क",
    "g": "ग",
    "t": "त",
    "n": "न",
    "p": "प",
    "b": "ब",
    "m": "म",
    "r": "र",
    "l": "ल",
}
VOWELS = {"a": "ा", "i": "ि", "u": "ु", "o": "ो", "e": "े"}
ENDINGS = ("", "", "ला", "ने", "चा")
# Ordinary words, whose translations sound unlike them.
WORDS = {
    "see": "घठछ",
    "house": "झडढ",
    "water": "फठ",
    "tree": "शछढ",
    "big": "थघ",
    "walks": "षडझ",
    "sleeps": "ढघफ",
    "today": "ठथ",
}


class Pair(NamedTuple):
    """A sentence pair and the names in it, by their spellings in the target."""

    src: str
    tgt: str
    names: dict[str, str]


def spelled(name: str) -> str:
    """Return the spelling of a name of open syllables."""
    letters = name.lower()
    return "".join(
        CONSONANTS[c] + VOWELS[v] for c, v in zip(letters[::2], letters[1::2], strict=True)
    )


def some_names(count: int, seed: int) -> list[str]:
    """Return different names of two or three open syllables."""
    generator = random.Random(seed)
    names = dict[str, None]()
    while len(names) < count:
        syllables = generator.choice((2, 3))
        letters = (
            generator.choice([*CONSONANTS]) + generator.choice([*VOWELS]) for _ in range(syllables)
        )
        names["".join(letters).capitalize()] = None
    return list(names)


def name_pairs(names: list[str], count: int, seed: int) -> list[Pair]:
    """Return sentences with one of the names, with two, or with none."""
    generator = random.Random(seed)
    pairs = []
    for _ in range(count):
        first, second = generator.sample(names, 2)
        first_in_tgt, second_in_tgt = (
            spelled(name) + generator.choice(ENDINGS) for name in (first, second)
        )
        does = generator.choice(("walks", "sleeps"))
        thing = generator.choice(("house", "water", "tree"))
        it = WORDS[thing]
        it_does = WORDS[does]
        src, tgt, names_of_pair = generator.choice(
            [
                (f"{first} {does} today.", f"{first_in_tgt} {WORDS['today']} {it_does}.", [first]),
                (
                    f"{first} and {second} see the {thing}.",
                    f"{first_in_tgt} {second_in_tgt} {it} {WORDS['see']}.",
                    [first, second],
                ),
                (f"The {thing} of {first} {does}.", f"{first_in_tgt} {it} {it_does}.", [first]),
                (f"{first}'s {thing} {does}.", f"{first_in_tgt} {it} {it_does}.", [first]),
                (f"{thing.capitalize()} {does} today.", f"{it} {WORDS['today']} {it_does}.", []),
                (f"The big {thing} {does}.", f"{WORDS['big']} {it} {it_does}.", []),
            ]
        )
        pairs.append(Pair(src, tgt, {name: spelled(name) for name in names_of_pair}))
    return pairs
