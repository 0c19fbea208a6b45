"""IBM model 1 compared with its definition, implemented with dictionaries."""

import random
from collections import defaultdict

import numpy as np
import pytest
from seq2seq.analysis.check.ibm1 import ITERATIONS, links_of, train_ibm1

from seq2seq.analysis.check import ibm1
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids

SRC_SIZE, TGT_SIZE = 19, 23
Pairs = list[tuple[Ids, Ids]]


def random_pairs(count: int, seed: int) -> Pairs:
    generator = random.Random(seed)
    return [
        (
            generator.choices(range(4, SRC_SIZE - 1), k=generator.randint(1, 6)),
            generator.choices(range(4, TGT_SIZE), k=generator.randint(1, 7)),
        )
        for _ in range(count)
    ]


def by_definition(pairs: Pairs) -> dict[int, dict[int, float]]:
    """Return t(target | source) after the iterations, from uniform probabilities."""
    probs: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(ITERATIONS):
        counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for src, tgt in pairs:
            sources = {*src, EOS_ID}
            for target in tgt:
                total = sum(probs[source, target] for source in sources)
                for source in sources:
                    counts[source][target] += probs[source, target] / total
        probs = defaultdict(float)
        for source, row in counts.items():
            for target, count in row.items():
                probs[source, target] = count / sum(row.values())
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for (source, target), prob in probs.items():
        if prob:
            found[source][target] = prob
    return found


def trained(pairs: Pairs) -> dict[int, dict[int, float]]:
    arrays = ((np.unique([*src, EOS_ID]), np.array(tgt)) for src, tgt in pairs)
    links = links_of(arrays, TGT_SIZE)
    probs, totals = train_ibm1(links, SRC_SIZE)
    assert len(totals) == SRC_SIZE
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for source, target, prob in zip(links.sources, links.targets, probs, strict=True):
        found[int(source)][int(target)] = float(prob)
    return found


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_probabilities_equal_those_of_the_definition(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ibm1, "BLOCK_LINKS", block)
    pairs = random_pairs(60, seed=1)
    found, expected = trained(pairs), by_definition(pairs)
    assert found.keys() == expected.keys()
    assert EOS_ID in found  # NULL word
    assert SRC_SIZE - 1 not in found  # occurs in no pair
    for source, row in expected.items():
        assert found[source] == pytest.approx(row, rel=1e-5)


def test_a_translation_is_learned_from_co_occurrence() -> None:
    pairs: Pairs = [([4, 5], [14, 15]), ([4, 6], [14, 16]), ([5, 6], [15, 16])] * 5
    found = trained(pairs)
    assert [max(found[source], key=found[source].__getitem__) for source in (4, 5, 6)] == [
        14,
        15,
        16,
    ]
