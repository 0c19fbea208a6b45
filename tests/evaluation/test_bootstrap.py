"""BLEU from counts: equal to sacrebleu's for any part of a text; significance tests over seeds."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import _bootstrap_resample

from seq2seq.evaluation import bootstrap, metrics
from seq2seq.evaluation.bootstrap import Counts, Resamples

GENERATOR = random.Random(3)
WORDS = "The a dog cat runs sleeps on in under big old red house tree , today"


def sentences(count: int) -> list[str]:
    return [
        " ".join(GENERATOR.choices(WORDS.split(), k=GENERATOR.randint(4, 12))) for _ in range(count)
    ]


def noisy(lines: list[str], share: float) -> list[str]:
    """Return the lines with a share of the words replaced."""

    def drawn(word: str) -> str:
        return GENERATOR.choice(WORDS.split()) if GENERATOR.random() < share else word

    return [" ".join(map(drawn, line.split())) for line in lines]


REFERENCES = sentences(60)
SYSTEMS = [noisy(REFERENCES, share) for share in (0.4, 0.2, 0.3)]


@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_of_any_part_equals_that_of_sacrebleu(lowercase: bool) -> None:
    counts = metrics.bleu_counts(SYSTEMS[0], REFERENCES, lowercase)
    for rows in (range(60), range(5, 31), [7], [3, 3, 40]):
        hypotheses, references = ([side[row] for row in rows] for side in (SYSTEMS[0], REFERENCES))
        wanted = BLEU(lowercase=lowercase).corpus_score(hypotheses, [references]).score
        assert metrics.bleu_of(counts[list(rows)]) == pytest.approx(wanted)


def resampled(counts: Counts, count: int | None = None) -> np.ndarray:
    return Resamples(len(counts), count).scores(counts, metrics.bleu_of)


def test_the_resamples_equal_those_of_sacrebleu() -> None:
    counts = metrics.bleu_counts(SYSTEMS[0], REFERENCES, False)
    metric = BLEU(references=[REFERENCES])
    statistics = metric._extract_corpus_statistics(SYSTEMS[0], None)
    _, wanted = _bootstrap_resample(statistics, metric, bootstrap.RESAMPLES)
    np.testing.assert_allclose(resampled(counts), [each.score for each in wanted], rtol=1e-5)


def test_all_resamples_use_the_seed_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = metrics.bleu_counts(SYSTEMS[0], REFERENCES, False)
    default = resampled(counts, 30)
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    np.testing.assert_array_equal(resampled(counts, 30), default)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert (resampled(counts, 30) != default).any()
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    drawn_once = Resamples(60, 30)
    first, second = (drawn_once.scores(counts, metrics.bleu_of) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (resampled(counts, 30) != resampled(counts, 30)).any()


def test_the_test_of_a_difference_is_two_sided() -> None:
    counts = [metrics.bleu_counts(each, REFERENCES, False) for each in SYSTEMS]
    worse, better, between = (([metrics.bleu_of(each)], resampled(each)) for each in counts)
    up = bootstrap.difference(worse[0], better[0], worse[1], better[1], 60)
    down = bootstrap.difference(better[0], worse[0], better[1], worse[1], 60)
    assert up.mean == -down.mean > 5
    assert up.p_value == down.p_value is not None
    assert up.p_value < 0.01
    assert up.ci is not None
    assert down.ci is not None
    assert up.ci[0] > 0 > down.ci[1]
    near = bootstrap.difference(between[0], between[0], between[1], between[1], 0)
    assert (near.mean, near.p_value, near.ci, near.deviation) == (0, 1, (0, 0), None)


def test_evaluate_and_compare_agree() -> None:
    counts = [metrics.bleu_counts(each, REFERENCES, False) for each in SYSTEMS]
    for first, second in ((0, 1), (1, 2), (2, 2)):
        pair = metrics.compare(SYSTEMS[first], SYSTEMS[second], [REFERENCES])["bleu"]
        found = bootstrap.difference(
            [metrics.bleu_of(counts[first])],
            [metrics.bleu_of(counts[second])],
            resampled(counts[first]),
            resampled(counts[second]),
            bootstrap.differing_sentences([counts[first]], [counts[second]]),
        )
        assert found.p_value == pair.p_value
        assert pair.system.score - pair.baseline.score == pytest.approx(found.mean)


def test_both_tails_are_counted() -> None:
    drawn = (
        np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) + 7
    )  # resamples need not be centred on the difference
    found = bootstrap.difference([10], [11.5], np.zeros(5), drawn, 20)
    assert found.p_value == (2 + 1) / (5 + 1)


def null_p_values(sentence_count: int, tests: int) -> np.ndarray:
    """Return p-values of pairs of systems that differ only by chance."""
    found = []
    for _ in range(tests):
        references = sentences(sentence_count)
        counts = [metrics.bleu_counts(noisy(references, 0.3), references, False) for _ in range(2)]
        first, second = (resampled(each, 100) for each in counts)
        difference = metrics.bleu_of(counts[1]) - metrics.bleu_of(counts[0])
        found.append(bootstrap.two_sided_p_value(difference, second - first))
    return np.array(found)


@pytest.mark.thorough
def test_the_rate_of_false_positives_equals_the_level() -> None:
    """At 200 tests the share of p below 0.05 has a standard error of 1.5 points."""
    found = null_p_values(100, 200)
    assert 0.01 < np.mean(found < 0.05) < 0.095
    assert 0.4 < np.mean(found < 0.5) < 0.6
    assert found.max() > 0.95


def test_false_positives_are_rare() -> None:
    found = null_p_values(40, 40)
    assert np.mean(found < 0.05) < 0.25
    assert 0.25 < np.mean(found < 0.5) < 0.75
    assert found.max() > 0.6  # sacrebleu's rule never exceeds one half


@pytest.mark.parametrize("differing", [0, 1, 4, 19, 20, 21])
def test_few_differences_have_no_p_value(differing: int) -> None:
    """The bootstrap gives p = 0.04 for four differences in one direction, a sign test 0.125."""
    system = [f"{line} word" for line in REFERENCES[:differing]] + REFERENCES[differing:]
    comparison = metrics.compare(REFERENCES, system, [REFERENCES])
    note = metrics.few_differences_note(comparison)
    for pair in comparison.values():
        assert pair.system.ci is not None
        assert (pair.p_value is None) == (0 < differing < bootstrap.MIN_SENTENCES)
    assert (note is None) == (comparison["bleu"].p_value is not None)
    assert note is None or note.startswith("no p-value of BLEU and chrF2 and TER: the systems ")
    if differing == 0:
        assert comparison["bleu"].p_value == 1


def test_sentences_that_differ_in_any_seed_are_counted() -> None:
    first, second = np.zeros((5, 3)), np.zeros((5, 3))
    second[1, 2] = second[3, 0] = 1
    third = np.zeros((5, 3))
    third[3] = 2
    assert bootstrap.differing_sentences([first], [first]) == 0
    assert bootstrap.differing_sentences([first], [second]) == 2
    assert bootstrap.differing_sentences([first, first], [second, third]) == 2
    assert bootstrap.differing_sentences([first, first], [first, third]) == 1


@pytest.mark.parametrize("lines", [1, 2, bootstrap.MIN_SENTENCES - 1])
def test_few_sentences_have_no_interval_and_no_p_value(lines: int) -> None:
    first, second, references = (each[:lines] for each in (*SYSTEMS[:2], REFERENCES))
    for score in metrics.score(first, [references]).values():
        assert score.ci is None
        assert "bs:" not in score.signature
    for pair in metrics.compare(first, second, [references]).values():
        assert (pair.p_value, pair.system.ci, pair.baseline.mean) == (None, None, None)
    assert f"(here: {lines})" in (metrics.few_lines_note(lines) or "")
    assert metrics.few_lines_note(bootstrap.MIN_SENTENCES) is None
    assert bootstrap.difference([1.0], [2.0], None, None, 1).p_value is None


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97, 1.0])
def test_intervals_stay_within_the_range_of_the_score(share: float) -> None:
    for lines in (20, 40):
        for _ in range(4):
            references = sentences(lines)
            scores = metrics.score(noisy(references, share), [references], bootstrap=200)
            bleu, chrf, ter = scores.values()
            for each in (bleu, chrf, ter):
                assert each.ci is not None
                assert 0 <= each.ci[0] <= each.ci[1]
            assert bleu.ci is not None
            assert chrf.ci is not None
            assert max(bleu.ci[1], chrf.ci[1]) <= 100 + 1e-9
            if share == 0:
                assert bleu.ci == pytest.approx((100, 100))
                assert ter.ci == (0, 0)


def test_seeds_are_paired() -> None:
    nothing = np.zeros(9)
    found = bootstrap.difference([10, 20, 30], [11, 22, 33], nothing, nothing, 20)
    assert found.mean == 2
    assert found.deviation == pytest.approx(1)


def test_the_interval_has_95_percent_of_the_resamples() -> None:
    assert bootstrap.interval(np.arange(1001.0)) == (25.0, 975.0)
