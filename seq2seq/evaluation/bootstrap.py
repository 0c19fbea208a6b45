"""Bootstrap resampling over sentences: intervals of scores and tests of differences."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.runtime.errors import UserError

RESAMPLES = 1000  # sacrebleu's default
MIN_SENTENCES = 20  # fewest sentences for an interval, and fewest that differ for a p-value
CONFIDENCE = (0.025, 0.975)  # quantiles that bound a 95% interval
_SEED = "12345"  # sacrebleu's default
_DRAWS = 20  # of seeds for each resample of the sentences: t has heavy tails
_ROUNDING = 1e-9  # rounding error of the mean of equal differences

Counts = NDArray[np.float64]  # [N, S]: statistics of N sentences, whose sums determine a score
Scores = NDArray[np.float64]  # [RESAMPLES]: the score of each resample


class Difference(NamedTuple):
    """Difference in the mean score over seeds between a system and a baseline.

    `deviation` is the sample standard deviation of the difference over seeds, paired because equal
    seeds see the same batches; None for a single seed. `ci` is the 95% interval of the difference
    over resampled sentences and `p_value` that of `two_sided_p_value`: both hold for these models.
    `seeds_ci` and `seeds_p_value` hold for models of other seeds, too, see `deviations_over_seeds`;
    None for a single seed. All are None for fewer than MIN_SENTENCES sentences, and the p-values
    also for too few that differ.
    """

    mean: float
    deviation: float | None
    ci: tuple[float, float] | None
    p_value: float | None
    seeds_ci: tuple[float, float] | None
    seeds_p_value: float | None


class SystemScores(NamedTuple):
    """Scores of a system, trained with one seed or several, by one metric."""

    scores: list[float]  # of each seed
    counts: list[Counts]
    resampled: NDArray[np.float64] | None  # [seeds, RESAMPLES]; None for too few sentences

    @property
    def mean(self) -> float:
        """Return the mean over seeds."""
        return float(np.mean(self.scores))

    @property
    def deviation(self) -> float | None:
        """Return the sample standard deviation over seeds; None for a single one."""
        return deviation(self.scores)

    @property
    def ci(self) -> tuple[float, float] | None:
        """Return the 95% interval of the mean over resampled sentences."""
        return None if self.resampled is None else interval(self.resampled.mean(axis=0))


class Resamples:
    """Bootstrap resamples of a test set, the same for every system scored with this object.

    The seed is sacrebleu's: 12345, or the environment's SACREBLEU_SEED; `none` draws a seed once.
    The resamples are those that sacrebleu draws with that seed.
    """

    def __init__(self, sentences: int, count: int | None = None) -> None:
        """Define `count` resamples (default: RESAMPLES) of that number of sentences."""
        self.sentences = sentences
        self.count = RESAMPLES if count is None else count
        seed = seed_name()
        entropy = np.random.SeedSequence().generate_state(1)
        self._seed = int(entropy[0]) if seed == "none" else int(seed)

    @property
    def suffice(self) -> bool:
        """Return whether intervals and p-values can be given."""
        return self.count > 1 and self.sentences >= MIN_SENTENCES

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """Yield the sentence indices [N] of each resample."""
        generator = np.random.default_rng(self._seed)
        for _ in range(self.count):
            yield generator.choice(self.sentences, size=self.sentences, replace=True)

    def scores(self, counts: Counts, score: Callable[[Counts], float]) -> Scores:
        """Return the score of each resample, by a function of the statistics of its sentences."""
        return np.array([score(counts[rows]) for rows in self])

    def of_system(self, counts: Sequence[Counts], score: Callable[[Counts], float]) -> SystemScores:
        """Return the scores of a system, given the statistics of its sentences by each seed."""
        resampled = None
        if self.suffice:
            resampled = np.array([self.scores(sentences, score) for sentences in counts])
        return SystemScores([score(sentences) for sentences in counts], list(counts), resampled)

    def draws_of_t(self, freedom: int) -> NDArray[np.float64]:
        """Draw some values [D, RESAMPLES] of Student's t distribution for each resample."""
        generator = np.random.default_rng([self._seed, freedom])
        return generator.standard_t(freedom, (_DRAWS, self.count))


def seed_name() -> str:
    """Return the seed of all resamples, or `none`; raises UserError if it cannot be parsed."""
    seed = os.environ.get("SACREBLEU_SEED", _SEED).lower()
    if seed != "none" and not re.fullmatch("[0-9]+", seed):
        raise UserError(f"SACREBLEU_SEED={seed}: must be a non-negative integer or none")
    return seed


def interval(scores: Scores) -> tuple[float, float]:
    """Return the 95% percentile interval, which lies within the range of the score."""
    low, high = np.quantile(scores, CONFIDENCE)
    return float(low), float(high)


def two_sided_p_value(difference: float, resampled: Scores) -> float:
    """Return the p-value of a difference between two systems, given its paired resamples.

    It is `(k + 1) / (n + 1)`, where in k of the n resamples the difference deviates from its mean
    over resamples, in either direction, at least as much as the observed one deviates from 0: the
    paired bootstrap of Koehn (2004), two-sided, with the distribution shifted to the null
    hypothesis (Efron and Tibshirani 1993, section 16.4). It is 1 for equal systems.
    """
    extreme = np.abs(resampled - resampled.mean()) >= abs(difference) - _ROUNDING
    return (int(extreme.sum()) + 1) / (len(resampled) + 1)


def differing_sentences(baseline: Sequence[Counts], system: Sequence[Counts]) -> int:
    """Return the number of sentences whose statistics differ between two systems, in any seed."""
    pairs = zip(baseline, system, strict=True)
    return int(np.any([(first != second).any(axis=1) for first, second in pairs], axis=0).sum())


def deviations_over_seeds(
    by_seed: Sequence[float], resampled: NDArray[np.float64], draws_of_t: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Draw how far the mean of differences over seeds is off, by chance of seeds and sentences.

    `by_seed` has the difference of each of n seeds, and `resampled` [n, R] those of R resamples,
    the same for all. With s, the standard deviation over seeds, and c, the mean covariance of the
    resampled differences of two seeds (at least 0), draw r is

        sqrt(c / v) (m_r - mean(m)) + s / sqrt(n) t_r

    m_r is the mean over seeds of resample r, v the variance of m, and t_r a draw from Student's t
    distribution with n - 1 degrees of freedom (of `draws_of_t`, [D, R]).

    The variance is that of crossed random effects (Clark 1973): c is what the choice of sentences
    does to all seeds alike; s / sqrt(n) has the seeds, and what is particular to each translation,
    which v has, too, and which must not count twice. The sum of a t variable and another one has
    the distribution of Behrens and Fisher (Robinson 1976). A bootstrap that also draws the seeds
    understates their variance by 1 / n, and has no t for the few of them.
    """
    count = len(by_seed)
    covariance = np.cov(resampled)
    variance = float(covariance.mean())  # of the mean over seeds
    mean_covariance = float(covariance.sum() - covariance.trace()) / (count * (count - 1))
    means = resampled.mean(axis=0)
    scale = np.sqrt(max(0.0, mean_covariance) / variance) if variance > 0 else 0.0
    seeds = np.std(by_seed, ddof=1) / np.sqrt(count)
    deviations: NDArray[np.float64] = scale * (means - means.mean()) + seeds * draws_of_t
    return deviations


def difference(baseline: SystemScores, system: SystemScores, resamples: Resamples) -> Difference:
    """Test a system against a baseline with the same seeds and resamples."""
    by_seed = np.subtract(system.scores, baseline.scores)
    mean = float(by_seed.mean())
    spread = deviation(by_seed.tolist())
    if baseline.resampled is None or system.resampled is None:
        return Difference(mean, spread, None, None, None, None)
    # Resamples of fewer differences understate their spread: if each of four is in favour of one
    # system, a permutation test has p = 0.125, the bootstrap 0.035.
    differing = differing_sentences(baseline.counts, system.counts)
    testable = differing == 0 or differing >= MIN_SENTENCES
    differences = system.resampled - baseline.resampled
    means = differences.mean(axis=0)
    p_value = two_sided_p_value(mean, means) if testable else None
    if len(by_seed) == 1:
        return Difference(mean, spread, interval(means), p_value, None, None)
    draws = resamples.draws_of_t(len(by_seed) - 1)
    distances = np.abs(deviations_over_seeds(by_seed.tolist(), differences, draws))
    extreme = int((distances >= abs(mean) - _ROUNDING).sum())
    seeds_p_value = (extreme + 1) / (distances.size + 1) if testable else None
    margin = float(np.quantile(distances, CONFIDENCE[1] - CONFIDENCE[0]))
    seeds_ci = mean - margin, mean + margin
    return Difference(mean, spread, interval(means), p_value, seeds_ci, seeds_p_value)


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
