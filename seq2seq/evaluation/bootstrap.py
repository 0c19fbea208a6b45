"""Bootstrap resampling of BLEU from sentence counts: subsets and means over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from seq2seq.evaluation.metrics import RESAMPLES, quiet_sacrebleu

Counts = NDArray[np.int64]  # [N, 10]: lengths, n-gram matches and totals of N sentences
_METRIC = BLEU()
_SEED = 12345  # sacrebleu's default


class Difference(NamedTuple):
    """Difference in mean BLEU over seeds between a system and a baseline.

    `deviation` is the sample standard deviation of the difference over seeds, paired because equal
    seeds see the same batches; None for a single seed. `ci` is the 95 % interval of the difference
    over resampled sentences, and `p_value` the two-sided share of resamples that deviate from their
    mean at least as much as the difference deviates from 0. Both vary the sentences for these
    models; only `deviation` accounts for other seeds.
    """

    mean: float
    deviation: float | None
    ci: tuple[float, float]
    p_value: float


@quiet_sacrebleu()
def bleu_counts(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool, tokenize: str = "13a"
) -> Counts:
    """Return the statistics of each sentence, with one reference, whose sums determine BLEU."""
    metric = BLEU(lowercase=lowercase, tokenize=tokenize)
    counted = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(counted, dtype=np.int64)


def bleu(counts: Counts) -> float:
    """Return the corpus BLEU of counted sentences."""
    return float(_METRIC._compute_score_from_stats(counts.sum(axis=0).tolist()).score)


def resample(systems: Sequence[Sequence[Counts]]) -> NDArray[np.float64]:
    """Return the mean BLEU over seeds of each system and resample [systems, RESAMPLES].

    A system has the counts of each of its seeds. All systems share the resamples, which are those
    of sacrebleu's paired test.
    """
    sentences = len(systems[0][0])
    draws = np.random.default_rng(_SEED).choice(
        sentences, size=(RESAMPLES, sentences), replace=True
    )
    return np.array(
        [
            np.mean([[bleu(counts[draw]) for draw in draws] for counts in seeds], 0)
            for seeds in systems
        ]
    )


def difference(
    baseline: Sequence[float],
    system: Sequence[float],
    baseline_resampled: NDArray[np.float64],
    system_resampled: NDArray[np.float64],
) -> Difference:
    """Test a system against a baseline, given the BLEU of each seed and the resampled means."""
    by_seed = np.subtract(system, baseline)
    mean, drawn = float(by_seed.mean()), system_resampled - baseline_resampled
    low, high = np.quantile(drawn, (0.025, 0.975))
    extreme = np.abs(drawn - drawn.mean()) >= abs(mean) - 1e-9  # ties of equal systems, rounded
    p_value = (int(extreme.sum()) + 1) / (len(drawn) + 1)
    return Difference(mean, deviation(by_seed.tolist()), (float(low), float(high)), p_value)


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
