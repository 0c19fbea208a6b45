"""IBM model 1 compared with its definition, implemented with dictionaries."""

import math
import random
from collections import defaultdict

import pytest

from seq2seq.data import lexical_table
from seq2seq.data.lexical_table import ITERATIONS, train_lexical_table
from seq2seq.data.spread import spread_rows
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


def rows(pairs: Pairs, most: int = 99) -> dict[int, dict[int, float]]:
    src, tgt = zip(*pairs, strict=True)
    table = train_lexical_table(src, tgt, SRC_SIZE, TGT_SIZE, most)
    assert len(table.ends) == SRC_SIZE
    found = {}
    for source in range(SRC_SIZE):
        tokens, probs = table.row(source)
        assert probs.tolist() == sorted(probs.tolist(), reverse=True)
        if len(tokens):
            found[source] = dict(zip(tokens.tolist(), probs.tolist(), strict=True))
    return found


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
def test_probabilities_equal_those_of_the_definition(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical_table, "BLOCK_LINKS", block)
    pairs = random_pairs(60, seed=1)
    found, expected = rows(pairs), by_definition(pairs)
    assert found.keys() == expected.keys()
    assert EOS_ID in found  # NULL word
    assert SRC_SIZE - 1 not in found  # occurs in no pair
    for source, row in expected.items():
        assert found[source] == pytest.approx(row, rel=1e-5)


def test_the_most_probable_tokens_are_kept() -> None:
    pairs = random_pairs(60, seed=2)
    full = rows(pairs)
    for source, row in rows(pairs, most=5).items():
        assert list(row.items()) == list(full[source].items())[:5]
    assert max(map(len, full.values())) > 5


def test_a_part_of_a_large_corpus_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs(60, seed=3)
    links = sum((1 + len(src)) * len(tgt) for src, tgt in pairs)
    expected = rows([pairs[row] for row in spread_rows(60, 20)])
    monkeypatch.setattr(lexical_table, "MAX_LINKS", math.ceil(links / 3))
    assert rows(pairs) == expected


def test_a_translation_is_learned_from_co_occurrence() -> None:
    pairs: Pairs = [([4, 5], [14, 15]), ([4, 6], [14, 16]), ([5, 6], [15, 16])] * 5
    found = rows(pairs)
    assert [next(iter(found[source])) for source in (4, 5, 6)] == [14, 15, 16]
