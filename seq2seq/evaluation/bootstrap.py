"""BLEU from counts by sentence: of any part of a text, and tested between variants over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from seq2seq.evaluation.metrics import quiet_sacrebleu

Counts = NDArray[np.int64]  # [N, 10] lengths, matches and totals of N sentences, as BLEU adds them
RESAMPLES, SEED = 1000, 12345  # sacrebleu's own


class Difference(NamedTuple):
    """What the mean BLEU over seeds of one variant has beyond another's.

    `deviation` is the sample standard deviation of the difference over seeds, which are paired, as
    equal seeds see the same batches; None of a single seed. `ci` holds 95 % of the differences that
    resampled sentences give. `p_value` says how often they lie at least as far from their own mean,
    on either side, as the difference found lies from nought: whether other sentences of this kind
    might turn it round, for these very models. It knows nothing of other seeds: `deviation` does.
    """

    mean: float
    deviation: float | None
    ci: tuple[float, float]
    p_value: float


def count(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool, tokenize: str = "13a"
) -> Counts:
    """What BLEU adds up over sentences, with one reference each."""
    with quiet_sacrebleu():
        metric = BLEU(lowercase=lowercase, tokenize=tokenize)
        counted = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(counted, dtype=np.int64)


def bleu(counts: Counts) -> float:
    """Corpus BLEU of the sentences counted."""
    return _bleu(counts.sum(axis=0))


def resampled(systems: Sequence[Sequence[Counts]]) -> NDArray[np.float64]:
    """The mean BLEU over seeds of each system under the same resamples [systems, RESAMPLES].

    A system has the counts of each of its seeds, all of the same sentences. The resamples are those
    of sacrebleu's paired test.
    """
    sentences = len(systems[0][0])
    draws = np.random.default_rng(SEED).choice(sentences, size=(RESAMPLES, sentences), replace=True)
    return np.array(
        [
            np.mean([[_bleu(counts[draw].sum(axis=0)) for draw in draws] for counts in seeds], 0)
            for seeds in systems
        ]
    )


def difference(
    baseline: Sequence[float],
    system: Sequence[float],
    baseline_resampled: NDArray[np.float64],
    system_resampled: NDArray[np.float64],
) -> Difference:
    """Compare two variants, given the BLEU of each seed and the resampled means."""
    by_seed = np.subtract(system, baseline)
    mean, drawn = float(by_seed.mean()), system_resampled - baseline_resampled
    low, high = np.quantile(drawn, (0.025, 0.975))
    # Rounding must not tell apart what is equal, as it is where two systems are the same.
    as_far = np.abs(drawn - drawn.mean()) >= abs(mean) - 1e-9
    p_value = (int(as_far.sum()) + 1) / (len(drawn) + 1)
    return Difference(mean, deviation(by_seed.tolist()), (float(low), float(high)), p_value)


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None of fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def _bleu(sums: Counts) -> float:
    return float(_METRIC._compute_score_from_stats(sums.tolist()).score)


_METRIC = BLEU()
