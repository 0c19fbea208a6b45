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
_ROUNDING = 1e-9  # rounding error of the mean of equal differences

Counts = NDArray[np.float64]  # [N, S]: statistics of N sentences, whose sums determine a score
Scores = NDArray[np.float64]  # [RESAMPLES]: the score of each resample


class Difference(NamedTuple):
    """Difference in mean BLEU over seeds between a system and a baseline.

    `deviation` is the sample standard deviation of the difference over seeds, paired because equal
    seeds see the same batches; None for a single seed. `ci` is the 95% interval of the difference
    over resampled sentences and `p_value` that of `two_sided_p_value`, both None for fewer than
    MIN_SENTENCES sentences, and the p-value also for too few that differ. Both
    vary the sentences for these models; only `deviation` accounts for other seeds.
    """

    mean: float
    deviation: float | None
    ci: tuple[float, float] | None
    p_value: float | None


class Resamples:
    """Bootstrap resamples of a test set, the same for every system scored with this object.

    The seed is sacrebleu's: 12345, or the environment's SACREBLEU_SEED; `none` draws a seed once.
    The resamples are those that sacrebleu draws with that seed.
    """

    def __init__(self, sentences: int, count: int | None = None) -> None:
        """Define `count` resamples (default: RESAMPLES) of that number of sentences."""
        self.sentences, self.count = sentences, RESAMPLES if count is None else count
        seed = seed_name()
        self._seed = np.random.SeedSequence().entropy if seed == "none" else int(seed)

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


def difference(
    baseline: Sequence[float],
    system: Sequence[float],
    baseline_resampled: Scores | None,
    system_resampled: Scores | None,
    differing: int,
) -> Difference:
    """Test a system against a baseline, given the BLEU of each seed and the resampled means.

    Those are None for too few sentences; `differing` counts the `differing_sentences`.
    """
    by_seed = np.subtract(system, baseline)
    mean, spread = float(by_seed.mean()), deviation(by_seed.tolist())
    if baseline_resampled is None or system_resampled is None:
        return Difference(mean, spread, None, None)
    drawn = system_resampled - baseline_resampled
    # Resamples of fewer differences understate their spread: if each of four is in favour of one
    # system, a permutation test has p = 0.125, the bootstrap 0.035.
    testable = differing == 0 or differing >= MIN_SENTENCES
    p_value = two_sided_p_value(mean, drawn) if testable else None
    return Difference(mean, spread, interval(drawn), p_value)


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
