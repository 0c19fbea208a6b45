"""Minimum Bayes risk: the candidate that resembles all candidates most."""

from collections.abc import Sequence
from typing import Literal

from seq2seq.runtime.cancellation import check_cancelled

Metric = Literal["chrf", "bleu"]
METRICS = ("chrf", "bleu")


def expected_utilities(
    texts: Sequence[str], weights: Sequence[float], metric: Metric
) -> list[float]:
    """Return the expected utility of each text against all texts, weighted (Kumar & Byrne 2004).

    `U(h) = sum over r of p(r) u(h, r)`, where `u` is sacrebleu's sentence chrF, or BLEU with
    effective order. Equal texts are scored once.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    scorer: BLEU | CHRF = CHRF() if metric == "chrf" else BLEU(effective_order=True)
    share: dict[str, float] = {}
    for text, weight in zip(texts, weights, strict=True):
        share[text] = share.get(text, 0.0) + weight
    total = sum(share.values())
    utility = {}
    for text in share:
        check_cancelled()
        scores = (
            weight * float(scorer.sentence_score(text, [reference]).score)
            for reference, weight in share.items()
        )
        utility[text] = sum(scores) / total
    return [utility[text] for text in texts]
