"""Buckets of source lengths: every sentence is in one, and each has enough sentences."""

import random

import pytest

from seq2seq.analysis.compare.scoring import MIN_SENTENCES, length_buckets


@pytest.mark.parametrize("longest", [0, 4, 13, 20, 60])
@pytest.mark.parametrize("count", [0, 1, 19, 20, 45, 600])
def test_every_sentence_is_in_one_bucket(count: int, longest: int) -> None:
    generator = random.Random(count)
    lengths = [min(60, int(generator.expovariate(0.1))) for _ in range(count)]
    found = length_buckets(["word " * words for words in lengths], longest)
    placed = [row for bucket in found for row in bucket.rows]
    assert sorted(placed) == [row for row, words in enumerate(lengths) if words]
    for beyond in (False, True):
        part = [bucket for bucket in found if bucket.beyond is beyond]
        enough = [len(bucket.rows) >= MIN_SENTENCES for bucket in part]
        assert all(enough) or len(part) == 1
    spans = [(bucket.first, bucket.last) for bucket in found]
    assert spans == sorted(spans)
    for bucket in found:
        within = [lengths[row] for row in bucket.rows]
        assert bucket.first <= min(within) <= max(within) <= bucket.last
        assert (bucket.first > longest) is bucket.beyond
        assert (bucket.last > longest) is bucket.beyond


def test_buckets_end_at_multiples_of_five_if_they_have_enough_sentences() -> None:
    sources = ["w " * words for words in range(3, 18) for _ in range(20)]
    assert [(each.first, each.last) for each in length_buckets(sources, 12)] == [
        (3, 5),
        (6, 10),
        (11, 12),
        (13, 15),
        (16, 17),
    ]
