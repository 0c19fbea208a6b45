"""Batch invariance: search results do not depend on the batch or its order."""

import random
from collections.abc import Callable, Sequence

from seq2seq.inference.search.interface import Hypothesis


def check_batch_invariance(
    search: Callable[[Sequence[int]], Sequence[Sequence[Hypothesis]]], count: int, batch: int
) -> list[list[Hypothesis]]:
    """Search for all sentences at once and, shuffled, in batches; return the results of the first.

    `search(rows)` returns the hypotheses of these sentences, numbered from 0 to `count` - 1. Their
    ids, scores and log-probabilities must be bitwise equal.
    """
    in_one_batch = [list(hypothesis) for hypothesis in search(range(count))]
    order = list(range(count))
    random.Random(batch).shuffle(order)
    for start in range(0, count, batch):
        rows = order[start : start + batch]
        for row, hypotheses in zip(rows, search(rows), strict=True):
            without_weights = [
                hypothesis._replace(attention_weights=None) for hypothesis in hypotheses
            ]
            assert without_weights == [
                hypothesis._replace(attention_weights=None) for hypothesis in in_one_batch[row]
            ], row
    return in_one_batch
