"""BLEU from counts: sacrebleu's own of any part of a text, tested between variants over seeds."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from seq2seq.evaluation import bootstrap
from seq2seq.evaluation import metrics as evaluation

GENERATOR = random.Random(3)
WORDS = "The a dog cat runs sleeps on in under big old red house tree , today"


def sentences(count: int) -> list[str]:
    return [
        " ".join(GENERATOR.choices(WORDS.split(), k=GENERATOR.randint(4, 12))) for _ in range(count)
    ]


def noisy(lines: list[str], share: float) -> list[str]:
    """The lines with a share of the words replaced."""

    def drawn(word: str) -> str:
        return GENERATOR.choice(WORDS.split()) if GENERATOR.random() < share else word

    return [" ".join(map(drawn, line.split())) for line in lines]


REFERENCES = sentences(60)
SYSTEMS = [noisy(REFERENCES, share) for share in (0.4, 0.2, 0.3)]


@pytest.mark.parametrize("lowercase", [False, True])
def test_any_part_has_the_bleu_that_sacrebleu_gives_it(lowercase: bool) -> None:
    counts = bootstrap.bleu_counts(SYSTEMS[0], REFERENCES, lowercase)
    for rows in (range(60), range(5, 31), [7], [3, 3, 40]):
        hypotheses, references = ([side[row] for row in rows] for side in (SYSTEMS[0], REFERENCES))
        wanted = BLEU(lowercase=lowercase).corpus_score(hypotheses, [references]).score
        assert bootstrap.bleu(counts[list(rows)]) == pytest.approx(wanted)


def test_the_resamples_are_those_of_sacrebleus_paired_test() -> None:
    first, second = (bootstrap.bleu_counts(each, REFERENCES, False) for each in SYSTEMS[:2])
    drawn = bootstrap.resample([[first], [second]])
    pair = evaluation.compare(SYSTEMS[0], SYSTEMS[1], [REFERENCES]).bleu
    for own, theirs in zip(drawn, (pair.baseline, pair.system), strict=True):
        ordered = np.sort(own)
        assert own.mean() == pytest.approx(theirs.mean, rel=1e-5)
        half = (ordered[-26] - ordered[25]) / 2
        assert half == pytest.approx((theirs.ci[1] - theirs.ci[0]) / 2, rel=1e-4)


def test_several_seeds_are_resampled_together() -> None:
    counts = [bootstrap.bleu_counts(each, REFERENCES, False) for each in SYSTEMS]
    together = bootstrap.resample([counts])[0]
    apart = bootstrap.resample([[each] for each in counts])
    np.testing.assert_allclose(together, apart.mean(axis=0))


def test_a_difference_is_tested_on_both_sides() -> None:
    counts = [bootstrap.bleu_counts(each, REFERENCES, False) for each in SYSTEMS]
    worse, better, between = (
        ([bootstrap.bleu(each)], bootstrap.resample([[each]])[0]) for each in counts
    )
    up = bootstrap.difference(worse[0], better[0], worse[1], better[1])
    down = bootstrap.difference(better[0], worse[0], better[1], worse[1])
    assert up.mean == -down.mean > 5
    assert up.p_value == down.p_value < 0.01
    assert up.ci[0] > 0 > down.ci[1]
    near = bootstrap.difference(between[0], between[0], between[1], between[1])
    assert (near.mean, near.p_value, near.ci, near.deviation) == (0, 1, (0, 0), None)


def test_both_tails_are_counted() -> None:
    drawn = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) + 7  # resamples may lie beside what was found
    found = bootstrap.difference([10], [11.5], np.zeros(5), drawn)
    assert found.p_value == (2 + 1) / (5 + 1)


def test_chance_alone_is_seldom_found_significant() -> None:
    """Of pairs of systems of one kind about a twentieth has p below 0.05."""
    found = []
    for _ in range(60):
        references = sentences(40)
        drawn = [bootstrap.bleu_counts(noisy(references, 0.3), references, False) for _ in range(2)]
        means = np.stack(
            [[bootstrap.bleu(each[rows]) for rows in draws(40, 150)] for each in drawn]
        )
        scores = [[bootstrap.bleu(each)] for each in drawn]
        found.append(bootstrap.difference(*scores, *means).p_value)
    assert np.mean(np.array(found) < 0.05) < 0.2
    assert np.mean(np.array(found) < 0.5) > 0.2


def draws(sentences: int, times: int) -> np.ndarray:
    return np.random.default_rng(1).integers(sentences, size=(times, sentences))


def test_seeds_are_paired() -> None:
    nothing = np.zeros(9)
    found = bootstrap.difference([10, 20, 30], [11, 22, 33], nothing, nothing)
    assert found.mean == 2
    assert found.deviation == pytest.approx(1)
