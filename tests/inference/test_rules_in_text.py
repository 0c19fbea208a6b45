"""Rules of search as sets of texts: a translation obeys each of them, or a note names it."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary

LINES, REFERENCES = toy_pairs(60, seed=8)
WORDS = sorted({word for line in REFERENCES for word in re.findall(r"\w+", line)})
SOURCE_WORDS = sorted({word for line in LINES for word in re.findall(r"\w+", line)})
GAVE_WAY = "no translation obeys all rules of its search; left out: "


@pytest.fixture(scope="module", params=["luong", "none"])
def translator(request: pytest.FixtureRequest, tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(tiny_runs[request.param], device="cpu")


def has_words(text: str, phrase: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])", text) is not None


def gave_way(translation: Translation, name: str) -> bool:
    left_out = [note.removeprefix(GAVE_WAY) for note in translation.notes if GAVE_WAY in note]
    return any(name in names.split(", ") for names in left_out)


def prefix_of(line: str, words: int, ends_in_space: bool) -> str:
    return " ".join(line.split()[:words]) + " " * (ends_in_space and words > 0)


@one_quick("beam_size", [1, 2, 5], quick=1)
@one_quick("ends_in_space", [False, True], quick=1)
def test_prefixes_phrases_and_forbidden_words_hold_together(
    translator: Translator, beam_size: int, ends_in_space: bool
) -> None:
    """The prefix is a part or all of a translation; a forbidden word may occur within it alone."""
    draw = random.Random(f"{beam_size} {ends_in_space}")
    unconstrained = [translation.text for translation in translator.translate(LINES, beam_size)]
    prefixes = [prefix_of(text, draw.randint(0, 12), ends_in_space) for text in unconstrained]
    phrases = [draw.sample(WORDS, draw.randint(0, 2)) for _ in LINES]
    forbidden = draw.sample(sorted(set(WORDS) - {word for words in phrases for word in words}), 5)
    translations = translator.translate(
        LINES,
        beam_size,
        prefixes=prefixes,
        constraints=phrases,
        settings=SearchSettings(forbidden=tuple(forbidden)),
    )
    for translation, prefix, required in zip(translations, prefixes, phrases, strict=True):
        start = " ".join(prefix.split())
        assert translation.text.startswith(start)
        assert gave_way(translation, "required phrases") or all(
            has_words(translation.text, phrase) for phrase in required
        )
        text_after_prefix = translation.text[len(start) :]
        assert not any(has_words(text_after_prefix, word) for word in forbidden)


@one_quick("beam_size", [1, 2, 5], quick=1)
@one_quick("n_best", [1, 2], quick=0)
def test_a_glossary_changes_no_prefix_and_no_phrase(
    translator: Translator, beam_size: int, n_best: int
) -> None:
    if n_best > beam_size:
        pytest.skip("an n-best list needs a beam")
    draw = random.Random(f"{beam_size} {n_best}")
    terms = Glossary({word: draw.choice(WORDS) for word in draw.sample(SOURCE_WORDS, 25)})
    unconstrained = [translation.text for translation in translator.translate(LINES, beam_size)]
    prefixes = [prefix_of(text, draw.randint(0, 4), draw.random() < 0.5) for text in unconstrained]
    phrases = [draw.sample(WORDS, draw.randint(0, 1)) for _ in LINES]
    translations = translator.translate(
        LINES,
        beam_size,
        n_best,
        prefixes=prefixes,
        constraints=phrases,
        settings=SearchSettings(glossary=terms),
    )
    targets = [[term.target for term in terms.occurrences(line)] for line in LINES]
    for number, translation in enumerate(translations):
        check_terms(translation, prefixes[number], phrases[number], targets[number])


def check_terms(
    translation: Translation, prefix: str, phrases: Sequence[str], targets: Sequence[str]
) -> None:
    assert translation.text.startswith(" ".join(prefix.split()))
    if not gave_way(translation, "required phrases"):
        assert all(has_words(translation.text, phrase) for phrase in phrases)
    if not gave_way(translation, "the glossary"):
        assert all(target in translation.text for target in targets)


def test_a_phrase_within_a_longer_word_of_the_prefix_does_not_count(translator: Translator) -> None:
    """Its tokens occur there, but it is no word."""
    for line, text in zip(LINES[:20], REFERENCES, strict=False):
        word = next(iter(re.findall(r"\w{3,}", text)))
        phrase = word[:2]
        prefix = f"{word} "
        for beam_size in (1, 3):
            translation = translator.translate(
                line, beam_size, prefixes=prefix, constraints=[phrase]
            )
            assert has_words(translation.text, phrase) or gave_way(translation, "required phrases")
