"""IBM model 1 of the alignment check, compared with its definition by dictionaries."""

import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from seq2seq.tools.analysis.check.alignment import ITERATIONS, Floats, _table

SRC_TYPES, TGT_TYPES = 12, 15  # type 0 is the null word of the source, and padding
Pairs = list[tuple[list[int], list[int]]]


def random_pairs(count: int, seed: int) -> Pairs:
    generator = random.Random(seed)
    return [
        (
            generator.sample(range(1, SRC_TYPES), k=generator.randint(1, 6)),
            generator.sample(range(1, TGT_TYPES), k=generator.randint(1, 7)),
        )
        for _ in range(count)
    ]


def by_definition(pairs: Pairs) -> dict[tuple[int, int], float]:
    """Return t(target | source) / t(target), with one more count for each source."""
    words = Counter(word for _, tgt in pairs for word in tgt)
    prior = {word: count / words.total() for word, count in words.items()}
    probs: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(ITERATIONS):
        counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for src, tgt in pairs:
            sources = [0, *src]
            for target in tgt:
                total = sum(probs[source, target] for source in sources)
                for source in sources:
                    counts[source][target] += probs[source, target] / total
        probs = defaultdict(float)
        for source in range(SRC_TYPES):
            total = sum(counts[source].values())
            for target, share in prior.items():
                probs[source, target] = (counts[source][target] + share) / (total + 1)
    return {(source, target): prob / prior[target] for (source, target), prob in probs.items()}


def trained(pairs: Pairs) -> Floats:
    src, tgt = (np.zeros((len(pairs), width), np.int32) for width in (6, 7))
    for row, (sources, targets) in enumerate(pairs):
        src[row, : len(sources)] = sources
        tgt[row, : len(targets)] = targets
    return _table(src, tgt, (SRC_TYPES - 1, TGT_TYPES - 1))


def test_ratios_equal_those_of_the_definition() -> None:
    pairs = random_pairs(60, seed=1)
    table = trained(pairs)
    expected = by_definition(pairs)
    assert {target for _, target in expected} == set(range(1, TGT_TYPES))
    for (source, target), ratio in expected.items():
        assert table[source, target] == pytest.approx(ratio, rel=1e-4)


def test_a_translation_is_learned_from_co_occurrence() -> None:
    pairs: Pairs = [([4, 5], [11, 12]), ([4, 6], [11, 13]), ([5, 6], [12, 13])] * 5
    table = trained(pairs)
    assert [int(table[source].argmax()) for source in (4, 5, 6)] == [11, 12, 13]
