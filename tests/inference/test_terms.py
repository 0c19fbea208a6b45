"""Places of glossary terms in translations, by attention."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases.toy_text import toy_pairs

from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.terms import _words, placed
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary, Term
from seq2seq.text.line import Part
from seq2seq.text.names.names import Masked

LINES, REFERENCES = toy_pairs(24, seed=8)


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(tiny_runs["luong"], device="cpu")


def words_of(tokens: list[str]) -> list[int]:
    """Return the word of each token."""
    return [sum(token.startswith("▁") for token in tokens[: n + 1]) - 1 for n in range(len(tokens))]


def attending(
    translator: Translator, source: str, target: str, links: dict[int, int]
) -> tuple[Part, Hypothesis]:
    """Return a part and a hypothesis whose words attend to source words by the links."""
    src, tgt, _ = translator.vocabularies
    (src_ids,), (tgt_ids,) = src.encode([source]), tgt.encode([target])
    src_words = words_of(src.tokens(src_ids))
    tgt_words = words_of(tgt.tokens(tgt_ids))
    weights = np.full((len(tgt_ids) + 1, len(src_ids) + 1), 0.01, np.float32)
    for row, word in enumerate(tgt_words):
        columns = [n for n, src_word in enumerate(src_words) if src_word == links.get(word)]
        weights[row, columns or [-1]] = 0.9 / max(1, len(columns))
    return Part(Masked(source, {})), Hypothesis([*tgt_ids, 3], -1.0, weights)


def with_terms(
    translator: Translator, part: Part, hypothesis: Hypothesis, terms: Sequence[Term]
) -> Ids | None:
    (source,) = translator.vocabularies.src.encode([part.text])
    return placed(replace(part, terms=terms), source, hypothesis, translator.vocabularies)


def spelled(translator: Translator, ids: Ids | None) -> str:
    assert ids is not None
    assert ids[-1] == 3
    return translator.vocabularies.tgt.decode(ids)


def test_a_term_replaces_the_words_that_attend_to_its_phrase(translator: Translator) -> None:
    source = "buda ki modu"
    target = "nelo ruse kemo"
    part, hypothesis = attending(translator, source, target, {0: 2, 1: 0, 2: 1})
    for phrase, expected in (
        ("buda", "nelo zu kemo"),
        ("ki", "nelo ruse zu"),
        ("modu", "zu ruse kemo"),
    ):
        term = Glossary({phrase: "zu"}).occurrences(source)
        with_term = with_terms(translator, part, hypothesis, term)
        assert spelled(translator, with_term) == expected


def test_words_of_one_phrase_are_replaced_together(translator: Translator) -> None:
    source = "buda ki modu"
    target = "nelo ruse kemo"
    part, hypothesis = attending(translator, source, target, {0: 0, 1: 0, 2: 2})
    terms = [Term(0, 4, "zu ka")]
    with_term = with_terms(translator, part, hypothesis, terms)
    assert spelled(translator, with_term) == "zu ka kemo"


def test_a_mark_is_no_place_of_a_term(translator: Translator) -> None:
    """It may attend to a phrase, and still ends the translation."""
    part, hypothesis = attending(translator, "buda ki modu.", "zu no be.", {})
    weights = np.full_like(hypothesis.attention_weights, 0.01)
    src = translator.vocabularies.src
    (source,) = src.encode([part.text])
    mark = len(hypothesis.ids) - 2
    weights[mark, : len(source) - 1] = 0.5
    assert translator.vocabularies.tgt.tokens([hypothesis.ids[mark]]) == ["."]
    term = Term(0, len("buda"), "no")
    attending_mark = hypothesis._replace(attention_weights=weights)
    assert with_terms(translator, part, attending_mark, [term]) is None


def test_several_terms_have_places_of_their_own(translator: Translator) -> None:
    source = "buda ki buda"
    target = "nelo ruse kemo"
    part, hypothesis = attending(translator, source, target, {0: 2, 1: 1, 2: 0})
    terms = Glossary({"buda": "zu", "ki": "ka"}).occurrences(source)
    assert [term.target for term in terms] == ["zu", "ka", "zu"]
    hypothesis_with_terms = with_terms(translator, part, hypothesis, terms)
    assert spelled(translator, hypothesis_with_terms) == "zu ka zu"


def test_faint_attention_is_enough_unless_another_word_has_more(translator: Translator) -> None:
    source = "buda ki modu"
    target = "nelo ruse kemo"
    part, hypothesis = attending(translator, source, target, {0: 0, 1: 1, 2: 2})
    assert hypothesis.attention_weights is not None
    faint = hypothesis._replace(attention_weights=hypothesis.attention_weights / 3)
    terms = [Term(5, 7, "zu")]
    assert spelled(translator, with_terms(translator, part, faint, terms)) == "nelo zu kemo"
    weights = faint.attention_weights.copy()
    (source_ids,) = translator.vocabularies.src.encode([source])
    first = words_of(translator.vocabularies.src.tokens(source_ids)).index(2)
    rows = [n for n, word in enumerate(words_of(translator.vocabularies.tgt.tokens(faint.ids[:-1])))
            if word == 1]  # fmt: skip
    weights[rows, first] = 0.9
    rival = faint._replace(attention_weights=weights)
    assert with_terms(translator, part, rival, terms) is None


def test_a_term_without_a_place_is_noted(tiny_runs: dict[str, Path]) -> None:
    """As in a model without attention."""
    translator = Translator.load(tiny_runs["none"], device="cpu")
    word = LINES[0].split()[0]
    settings = SearchSettings(glossary=Glossary({word: "zu"}))
    (note,) = translator.translate(LINES[0], 3, settings=settings).notes
    assert note == "terms of the glossary that replace no word, but are required: zu"


def test_a_term_without_a_place_is_required(translator: Translator) -> None:
    part, hypothesis = attending(translator, "buda ki", "nelo ruse", {0: 1, 1: 1})
    terms = [Term(0, 4, "zu")]
    assert with_terms(translator, part, hypothesis, terms) is None
    without_attention = hypothesis._replace(attention_weights=None)
    assert with_terms(translator, part, without_attention, terms) is None


@pytest.mark.parametrize("n_best", [1, 3])
def test_translations_have_their_terms(translator: Translator, n_best: int) -> None:
    words = sorted({word for line in LINES for word in re.findall(r"\w+", line)})[:12]
    glossary = Glossary(dict.fromkeys(words, "zu"))
    translations = translator.translate(
        LINES, 3, n_best, settings=SearchSettings(glossary=glossary)
    )
    single_translations = translator.translate(LINES, 3, settings=SearchSettings(glossary=glossary))
    for line, translation, single in zip(LINES, translations, single_translations, strict=True):
        assert translation.text == single.text
        for entry in translation.n_best:
            assert "zu" in entry.text or not glossary.targets(line)


def test_a_word_is_what_is_written_between_spaces() -> None:
    """A French article with an apostrophe belongs to its word, and a mark around one does not."""
    tokens = ["\u2581(", "L", "'", "ho", "mme", ",", "\u2581Pays", "-", "Bas", ".", "\u2581\u2014"]
    words = ["".join(tokens[n] for n in word) for word in _words(tokens)]
    assert words == ["\u2581(", "L'homme", ",", "\u2581Pays-Bas", ".", "\u2581\u2014"]
    tokens = ["\u2581\u732b\u306f", "\u5bb6", "\u3002"]
    assert ["".join(tokens[n] for n in word) for word in _words(tokens)] == tokens


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["\u2581te", "\u2581", "ra", "conte", "."], ["\u2581te", "\u2581raconte", "."]),
        (["\u2581", "L", "'", "eau", "\u2581", "?"], ["\u2581L'eau", "\u2581?"]),
        (["\u2581", "(", "il", ")"], ["\u2581(", "il", ")"]),
        (["\u2581", "\u2581il", "\u2581"], ["\u2581", "\u2581il", "\u2581"]),
        ([], []),
    ],
)
def test_a_space_that_is_a_token_belongs_to_the_next_one(
    tokens: list[str], words: list[str]
) -> None:
    """A term in its place alone would join the word after it."""
    assert ["".join(tokens[n] for n in word) for word in _words(tokens)] == words


@pytest.mark.parametrize("beam_size", [3, 5])
def test_an_n_best_list_has_the_terms_in_different_translations(
    translator: Translator, beam_size: int
) -> None:
    """The first one is that of a single search; where there are too few, the last is repeated."""
    lists = 0
    for line in LINES:
        settings = SearchSettings(glossary=Glossary({line.split()[0]: "zu"}))
        translation = translator.translate(line, beam_size, beam_size, settings=settings)
        assert translation.text == translator.translate(line, beam_size, settings=settings).text
        scores = [entry.score for entry in translation.n_best]
        assert scores == sorted(scores, reverse=True)
        if any(note.startswith("terms of the glossary") for note in translation.notes):
            continue
        texts = [entry.text for entry in translation.n_best]
        different = list(dict.fromkeys(texts))
        assert texts == [*different, *different[-1:] * (beam_size - len(different))]
        lists += len(different) == beam_size
    assert lists > 3
