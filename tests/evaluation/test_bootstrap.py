"""BLEU from counts: equal to sacrebleu's for any part of a text; significance tests over seeds."""

import random
from typing import NamedTuple

import numpy as np
import pytest
from cases.tiers import one_quick
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import _bootstrap_resample

from seq2seq.evaluation import bootstrap, metrics
from seq2seq.evaluation.bootstrap import Counts, Resamples, SystemScores

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
    counts = metrics.counts_by("bleu", SYSTEMS[0], REFERENCES, lowercase)
    for rows in (range(60), range(5, 31), [7], [3, 3, 40]):
        hypotheses, references = ([side[row] for row in rows] for side in (SYSTEMS[0], REFERENCES))
        expected = BLEU(lowercase=lowercase).corpus_score(hypotheses, [references]).score
        assert metrics.score_of("bleu", counts[list(rows)]) == pytest.approx(expected)


def bleu_counts(hypotheses: list[str], references: list[str]) -> Counts:
    return metrics.counts_by("bleu", hypotheses, references)


def bleu_of(counts: Counts) -> float:
    return metrics.score_of("bleu", counts)


def resampled(counts: Counts, count: int | None = None) -> np.ndarray:
    return Resamples(len(counts), count).scores(counts, bleu_of)


def test_the_resamples_equal_those_of_sacrebleu() -> None:
    counts = bleu_counts(SYSTEMS[0], REFERENCES)
    metric = BLEU(references=[REFERENCES])
    statistics = metric._extract_corpus_statistics(SYSTEMS[0], None)
    _, expected_scores = _bootstrap_resample(statistics, metric, bootstrap.RESAMPLES)
    np.testing.assert_allclose(
        resampled(counts), [score.score for score in expected_scores], rtol=1e-5
    )


def test_all_resamples_use_the_seed_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = bleu_counts(SYSTEMS[0], REFERENCES)
    default = resampled(counts, 30)
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    np.testing.assert_array_equal(resampled(counts, 30), default)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert (resampled(counts, 30) != default).any()
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    drawn_once = Resamples(60, 30)
    first, second = (drawn_once.scores(counts, bleu_of) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (resampled(counts, 30) != resampled(counts, 30)).any()


def test_the_test_of_a_difference_is_two_sided() -> None:
    resamples = Resamples(60)
    worse, better, between = (
        resamples.of_system([bleu_counts(lines, REFERENCES)], bleu_of) for lines in SYSTEMS
    )
    up = bootstrap.difference(worse, better, resamples)
    down = bootstrap.difference(better, worse, resamples)
    assert up.mean == -down.mean > 5
    assert up.p_value == down.p_value is not None
    assert up.p_value < 0.01
    assert up.ci is not None
    assert down.ci is not None
    assert up.ci[0] > 0 > down.ci[1]
    same = bootstrap.difference(between, between, resamples)
    assert (same.mean, same.p_value, same.ci, same.deviation) == (0, 1, (0, 0), None)
    assert (same.seeds_ci, same.seeds_p_value) == (None, None)


def test_evaluate_and_compare_agree() -> None:
    resamples = Resamples(60)
    systems = [resamples.of_system([bleu_counts(lines, REFERENCES)], bleu_of) for lines in SYSTEMS]
    for first, second in ((0, 1), (1, 2), (2, 2)):
        pair = metrics.compare(SYSTEMS[first], SYSTEMS[second], [REFERENCES])["bleu"]
        tested = bootstrap.difference(systems[first], systems[second], resamples)
        assert tested.p_value == pair.p_value
        assert pair.system.score - pair.baseline.score == pytest.approx(tested.mean)


def test_both_tails_are_counted() -> None:
    """Resamples need not be centred on the difference."""
    differences = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) + 7
    assert bootstrap.two_sided_p_value(1.5, differences) == (2 + 1) / (5 + 1)


def null_p_values(sentence_count: int, tests: int) -> np.ndarray:
    """Return p-values of pairs of systems that differ only by chance."""
    p_values = []
    for _ in range(tests):
        references = sentences(sentence_count)
        counts = [bleu_counts(noisy(references, 0.3), references) for _ in range(2)]
        first, second = (resampled(system_counts, 100) for system_counts in counts)
        difference = bleu_of(counts[1]) - bleu_of(counts[0])
        p_values.append(bootstrap.two_sided_p_value(difference, second - first))
    return np.array(p_values)


@pytest.mark.thorough
def test_the_rate_of_false_positives_equals_the_level() -> None:
    """At 200 tests the share of p below 0.05 has a standard error of 1.5 points."""
    p_values = null_p_values(100, 200)
    assert 0.01 < np.mean(p_values < 0.05) < 0.095
    assert 0.4 < np.mean(p_values < 0.5) < 0.6
    assert p_values.max() > 0.95


def test_false_positives_are_rare() -> None:
    p_values = null_p_values(40, 40)
    assert np.mean(p_values < 0.05) < 0.25
    assert 0.25 < np.mean(p_values < 0.5) < 0.75
    assert p_values.max() > 0.6  # sacrebleu's rule never exceeds one half


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
    assert note is None or note.startswith("no p-value of BLEU, chrF2 and TER: the systems ")
    if differing == 0:
        assert comparison["bleu"].p_value == 1


def test_sentences_that_differ_in_any_seed_are_counted() -> None:
    first = np.zeros((5, 3))
    second = np.zeros((5, 3))
    second[1, 2] = second[3, 0] = 1
    third = np.zeros((5, 3))
    third[3] = 2
    assert bootstrap.differing_sentences([first], [first]) == 0
    assert bootstrap.differing_sentences([first], [second]) == 2
    assert bootstrap.differing_sentences([first, first], [second, third]) == 2
    assert bootstrap.differing_sentences([first, first], [first, third]) == 1


@pytest.mark.parametrize("lines", [1, 2, bootstrap.MIN_SENTENCES - 1])
def test_few_sentences_have_no_interval_and_no_p_value(lines: int) -> None:
    first, second, references = (
        lines_of_system[:lines] for lines_of_system in (*SYSTEMS[:2], REFERENCES)
    )
    for score in metrics.score(first, [references]).values():
        assert score.ci is None
        assert "bs:" not in score.signature
    for pair in metrics.compare(first, second, [references]).values():
        assert (pair.p_value, pair.system.ci, pair.baseline.mean) == (None, None, None)
    assert f"(here: {lines})" in (metrics.few_lines_note(lines) or "")
    assert metrics.few_lines_note(bootstrap.MIN_SENTENCES) is None
    resamples = Resamples(lines)
    systems = [
        resamples.of_system([bleu_counts(side, references)], bleu_of) for side in (first, second)
    ]
    assert bootstrap.difference(*systems, resamples)[2:] == (None, None, None, None)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97, 1.0])
def test_intervals_stay_within_the_range_of_the_score(share: float) -> None:
    for lines in (20, 40):
        for _ in range(4):
            references = sentences(lines)
            scores = metrics.score(noisy(references, share), [references], bootstrap=200)
            bleu, chrf, ter = scores.values()
            for score in (bleu, chrf, ter):
                assert score.ci is not None
                assert 0 <= score.ci[0] <= score.ci[1]
            assert bleu.ci is not None
            assert chrf.ci is not None
            assert max(bleu.ci[1], chrf.ci[1]) <= 100 + 1e-9
            if share == 0:
                assert bleu.ci == pytest.approx((100, 100))
                assert ter.ci == (0, 0)


def test_seeds_are_paired() -> None:
    nothing = [np.ones((30, 1))] * 3
    resampled = np.zeros((3, 1000))
    baseline = bootstrap.SystemScores([10, 20, 30], nothing, resampled)
    system = bootstrap.SystemScores([11, 22, 33], nothing, resampled)
    tested = bootstrap.difference(baseline, system, Resamples(30))
    assert tested.mean == 2
    assert tested.deviation == pytest.approx(1)


def test_the_interval_has_95_percent_of_the_resamples() -> None:
    assert bootstrap.interval(np.arange(1001.0)) == (25.0, 975.0)


# --------------------------------------------------------------------- tests that include the seeds

SENTENCES = 100


class SimulatedSystems(NamedTuple):
    """Two systems whose scores are means over sentences, and how much chance is in them.

    The true difference is what another sample of seeds and sentences has in the mean.
    """

    difference: float
    of_seeds: float  # standard deviation of what a seed adds to a system
    of_sentences: float  # of what a sentence adds to one of the systems, by any seed
    of_both: float  # of what is particular to a translation

    def draw(self, seeds: int, generator: np.random.Generator) -> np.ndarray:
        """Return the scores [2, seeds, SENTENCES, 1] of the sentences."""
        values = self.of_both * generator.standard_normal((2, seeds, SENTENCES, 1))
        values += self.of_seeds * generator.standard_normal((2, seeds, 1, 1))
        values += self.of_sentences * generator.standard_normal((2, 1, SENTENCES, 1))
        values[1] += self.difference
        return values

    def p_values(self, seeds: int, tests: int) -> np.ndarray:
        """Return the p-values [tests, 2] for these models, and with the seeds."""
        generator = np.random.default_rng(17)
        resamples = Resamples(SENTENCES, 100)
        rows = np.array(list(resamples))
        pairs = []
        for _ in range(tests):
            systems = [mean_scores(system, rows) for system in self.draw(seeds, generator)]
            tested = bootstrap.difference(*systems, resamples)
            pairs.append((tested.p_value, tested.seeds_p_value))
        return np.array(pairs, dtype=float)


def mean_scores(values: np.ndarray, rows: np.ndarray) -> SystemScores:
    """Return means over sentences of values [seeds, SENTENCES, 1], all resamples at once."""
    resampled = values[:, rows, 0].mean(axis=-1)
    return SystemScores(values.mean(axis=(1, 2)).tolist(), list(values), resampled)


def test_mean_scores_are_those_of_the_resamples() -> None:
    resamples = Resamples(SENTENCES, 100)
    values = np.random.default_rng(17).standard_normal((3, SENTENCES, 1))
    computed = mean_scores(values, np.array(list(resamples)))
    expected = resamples.of_system(list(values), np.mean)
    assert computed.scores == pytest.approx(expected.scores, abs=1e-12)
    assert expected.resampled is not None
    np.testing.assert_allclose(computed.resampled, expected.resampled, rtol=0, atol=1e-12)


def randomised_p_value(values: np.ndarray, generator: np.random.Generator) -> float:
    """Return the share of exchanges of translations that leave as large a difference."""
    differences = (values[1] - values[0]).ravel()
    signs = generator.choice([-1, 1], (200, len(differences)))
    return float(np.mean(np.abs(signs @ differences) >= abs(differences.sum())))


CHANCES = {
    "mostly seeds": SimulatedSystems(0, 1.0, 3.0, 3.0),
    "seeds and sentences": SimulatedSystems(0, 0.5, 4.0, 5.0),
    "mostly sentences": SimulatedSystems(0, 0.0, 8.0, 4.0),
    "single translations": SimulatedSystems(0, 0.0, 0.0, 8.0),
}


@pytest.mark.approximate
@one_quick("chance", list(CHANCES))
@one_quick("seeds", [3, 2, 5])
def test_p_with_seeds_is_uniform_between_equal_systems(chance: str, seeds: int) -> None:
    """At 100 tests the share of p below 0.05 has a standard error of 2.2 points, 0.5 one of 5."""
    p_values = CHANCES[chance].p_values(seeds, 100)[:, 1]
    assert np.mean(p_values < 0.05) < 0.05 + 3 * 0.022
    assert 0.5 - 3 * 0.05 < np.mean(p_values < 0.5) < 0.5 + 3 * 0.05
    assert p_values.max() > 0.9


@pytest.mark.approximate
def test_p_of_the_sentences_alone_takes_chance_of_seeds_for_a_difference() -> None:
    """Otherwise a test that includes the seeds would not be needed."""
    assert np.mean(CHANCES["mostly seeds"].p_values(3, 60)[:, 0] < 0.05) > 0.3


@pytest.mark.approximate
def test_approximate_randomisation_takes_chance_of_seeds_for_a_difference() -> None:
    generator = np.random.default_rng(3)
    systems = (CHANCES["mostly seeds"].draw(3, generator) for _ in range(100))
    p_values = np.array([randomised_p_value(values, generator) for values in systems])
    assert np.mean(p_values < 0.05) > 0.3


@pytest.mark.approximate
@one_quick(("seeds", "power"), [(5, 0.7), (3, 0.25)])
def test_p_with_seeds_is_small_for_a_difference(seeds: int, power: float) -> None:
    """The true difference is 4 times its standard deviation with five seeds, 3.6 with three."""
    p_values = CHANCES["seeds and sentences"]._replace(difference=2.9).p_values(seeds, 60)[:, 1]
    assert np.mean(p_values < 0.05) > power


def test_the_interval_with_seeds_agrees_with_its_p_value() -> None:
    generator = np.random.default_rng(5)
    resamples = Resamples(SENTENCES, 100)
    baseline = generator.normal(0, 1, (3, SENTENCES, 1))
    p_values = []
    for gain in (0.0, 0.1, 0.3, 1.0, 3.0):
        values = baseline + gain + generator.normal(0, 0.3, (3, 1, 1))
        systems = [resamples.of_system(list(system), np.mean) for system in (baseline, values)]
        tested = bootstrap.difference(*systems, resamples)
        assert tested.seeds_ci is not None
        assert tested.seeds_p_value is not None
        low, high = tested.seeds_ci
        assert low < tested.mean < high
        assert (low <= 0 <= high) == (tested.seeds_p_value > 0.05)
        p_values.append(tested.seeds_p_value)
    assert min(p_values) < 0.05 < max(p_values)


@pytest.mark.thorough
def test_equal_systems_of_several_seeds_have_p_1() -> None:
    resamples = Resamples(60)
    system = resamples.of_system([bleu_counts(lines, REFERENCES) for lines in SYSTEMS], bleu_of)
    assert bootstrap.difference(system, system, resamples)[:2] == (0, 0)
    assert bootstrap.difference(system, system, resamples).seeds_p_value == 1
