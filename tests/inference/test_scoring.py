"""Scores of given translations: equal to those of search; blank lines, ensembles, long lines."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from cases.respelled_vocabulary import Respelled
from cases.toy_text import toy_pairs

from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.inference.scoring import ScoredLine, score_lines
from seq2seq.inference.translator import Translator

LINES, OTHERS = toy_pairs(24, seed=5)


@pytest.fixture
def translator(tiny_run: Path) -> Translator:
    return Translator.load(tiny_run, device="cpu")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_translation_has_the_score_of_search(translator: Translator, beam_size: int) -> None:
    translations = translator.translate(LINES, beam_size)
    texts = [translation.text for translation in translations]
    plain = translator.vocabularies
    translator.loaded.vocabularies = Vocabularies(plain.src, Respelled(plain.tgt, translations))
    for scored, translation in zip(
        score_lines(translator.loaded, LINES, texts), translations, strict=True
    ):
        assert (scored.src_tokens, scored.tokens) == (translation.src_tokens, translation.tokens)
        assert scored.score == pytest.approx(translation.score, rel=1e-5)
        if beam_size == 1:
            assert scored.score == translation.score  # bitwise


def test_the_parts_of_a_score_agree(translator: Translator) -> None:
    translator.loaded.decoding = replace(translator.decoding, length_penalty=0.6)
    for line, scored in zip(LINES, score_lines(translator.loaded, LINES, OTHERS), strict=True):
        assert scored.log_prob == pytest.approx(sum(scored.log_probs))
        assert max(scored.log_probs) <= 0
        assert len(scored.log_probs) == len(scored.tokens)
        assert scored.score == pytest.approx(scored.log_prob / len(scored.tokens) ** 0.6)
        mean = scored.log_prob / len(scored.tokens)
        assert scored.perplexity == pytest.approx(math.exp(-mean))
        assert scored.src_tokens[-1] == scored.tokens[-1] == "</s>"
        assert "".join(scored.src_tokens[:-1]).replace("▁", " ").strip() == line


def test_a_blank_line_has_only_a_blank_translation(translator: Translator) -> None:
    lines = ["", LINES[0], " \t", LINES[1], "\u3000"]
    targets = ["", "", OTHERS[0], OTHERS[1], "▁"]
    scored_lines = score_lines(translator.loaded, lines, targets)
    assert [scored_line.score for scored_line in scored_lines[:3]] == [0.0, -math.inf, -math.inf]
    assert scored_lines[0] == scored_lines[4] == ScoredLine()
    assert [scored_line.possible for scored_line in scored_lines] == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert scored_lines[0].perplexity == 1
    assert scored_lines[3:4] == score_lines(translator.loaded, LINES[1:2], OTHERS[1:2])
    assert score_lines(translator.loaded, [], []) == []


def test_scores_do_not_depend_on_the_batch(translator: Translator) -> None:
    expected = score_lines(translator.loaded, LINES, OTHERS)
    assert score_lines(translator.loaded, LINES[::-1], OTHERS[::-1]) == expected[::-1]
    for i in (0, 7, 23):
        assert score_lines(translator.loaded, [LINES[i]], [OTHERS[i]]) == [expected[i]]


def test_a_line_longer_than_any_in_training_is_not_split(translator: Translator) -> None:
    longest = translator.max_length
    line = " ".join(LINES)
    target = " ".join(OTHERS)
    (scored,) = score_lines(translator.loaded, [line], [target])
    assert min(len(scored.src_tokens), len(scored.tokens)) > 2 * longest
    assert scored.src_tokens.count("</s>") == scored.tokens.count("</s>") == 1
    assert translator.translate([line])[0].parts > 1


def test_an_ensemble_gives_the_mean_probability(tiny_runs: dict[str, Path]) -> None:
    scores_by_model = [
        score_lines(Translator.load(run, device="cpu").loaded, LINES[:5], OTHERS[:5])
        for run in tiny_runs.values()
    ]
    ensemble = Translator.load(*tiny_runs.values(), device="cpu")
    for n, scored in enumerate(score_lines(ensemble.loaded, LINES[:5], OTHERS[:5])):
        expected = [
            math.log(sum(math.exp(value) for value in values) / len(scores_by_model))
            for values in zip(
                *(scored_lines[n].log_probs for scored_lines in scores_by_model), strict=True
            )
        ]
        assert scored.log_probs == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_scores_have_no_coverage_penalty(tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    plain = score_lines(translator.loaded, LINES[:3], OTHERS[:3])
    translator.loaded.decoding = replace(translator.decoding, coverage_penalty=0.9)
    assert score_lines(translator.loaded, LINES[:3], OTHERS[:3]) == plain
