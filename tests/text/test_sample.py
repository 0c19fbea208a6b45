"""Rows that represent a text."""

from collections import Counter
from itertools import pairwise

import pytest

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import UNK_ID
from seq2seq.text.sample import sample_of, sample_rows


@pytest.mark.parametrize(("count", "max_rows"), [(0, 5), (1, 5), (4, 5), (5, 5), (7, 7)])
def test_all_of_a_short_text_is_used(count: int, max_rows: int) -> None:
    items = [f"line {n}" for n in range(count)]
    assert list(sample_rows(count, max_rows)) == list(range(count))
    assert sample_of(items, max_rows) is items


@pytest.mark.parametrize(
    ("count", "max_rows"), [(6, 5), (10, 1), (1001, 1000), (5000, 1999), (30_000_000, 3000)]
)
def test_each_part_of_a_long_text_has_one_row(count: int, max_rows: int) -> None:
    rows = sample_rows(count, max_rows)
    assert len(rows) == max_rows
    for n, row in enumerate(rows):
        assert n * count // max_rows <= row < (n + 1) * count // max_rows


def test_items_are_those_of_the_rows() -> None:
    items = [str(n) for n in range(100)]
    assert sample_of(items, 30) == [items[row] for row in sample_rows(100, 30)]
    assert all(earlier_row < next_row for earlier_row, next_row in pairwise(sample_rows(100, 30)))


@pytest.mark.parametrize("period", [2, 3, 5, 8, 10, 12, 29])
@pytest.mark.parametrize("step", [2, 3, 8, 10, 29, 60, 100])
def test_a_text_whose_order_repeats_is_sampled_from_all_its_kinds(period: int, step: int) -> None:
    """With rows at equal distances, a step that the period divides has rows of one kind only."""
    kinds = Counter(row % period for row in sample_rows(2000 * step, 2000))
    shares = [kinds[kind] * period / 2000 for kind in range(period)]
    assert 0.6 < min(shares) <= max(shares) < 1.4


def test_a_repeated_corpus_is_sampled_from_all_its_lines() -> None:
    """30 million pairs that repeat 29,000 lines: every hundredth has 290 of the lines."""
    lines = {row % 29_000 for row in sample_rows(30_000_000, 300_000)}
    assert len(lines) > 28_900


def test_a_vocabulary_has_the_words_of_both_of_two_alternating_corpora(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seq2seq.data.vocabulary.training.MAX_TRAINING_PAIRS", 100)
    lines = ["the green house", "uma casa verde"] * 100
    vocabularies = train_vocabularies(VocabularyConfig(type="word", size=16), lines, lines)
    assert UNK_ID not in {token for ids in vocabularies.src.encode(lines[:2]) for token in ids}
