"""Buckets of source lengths: every sentence is in one, and each has enough sentences."""

import random

import pytest

from seq2seq.tools.analysis.scored_text import MIN_SENTENCES, length_buckets, length_unit


@pytest.mark.parametrize("longest", [0, 4, 13, 20, 60])
@pytest.mark.parametrize("count", [0, 1, 19, 20, 45, 600])
def test_every_sentence_is_in_one_bucket(count: int, longest: int) -> None:
    generator = random.Random(count)
    lengths = [min(60, int(generator.expovariate(0.1))) for _ in range(count)]
    buckets = length_buckets(["word " * words for words in lengths], longest)
    rows = [row for bucket in buckets for row in bucket.rows]
    assert sorted(rows) == [row for row, words in enumerate(lengths) if words]
    for beyond in (False, True):
        part = [bucket for bucket in buckets if bucket.beyond is beyond]
        enough = [len(bucket.rows) >= MIN_SENTENCES for bucket in part]
        assert all(enough) or len(part) == 1
    spans = [(bucket.first, bucket.last) for bucket in buckets]
    assert spans == sorted(spans)
    for bucket in buckets:
        lengths_in_bucket = [lengths[row] for row in bucket.rows]
        assert bucket.first <= min(lengths_in_bucket) <= max(lengths_in_bucket) <= bucket.last
        assert (bucket.first > longest) is bucket.beyond
        assert (bucket.last > longest) is bucket.beyond


def test_buckets_end_at_multiples_of_five_if_they_have_enough_sentences() -> None:
    sources = ["w " * words for words in range(3, 18) for _ in range(20)]
    assert [(bucket.first, bucket.last) for bucket in length_buckets(sources, 12)] == [
        (3, 5),
        (6, 10),
        (11, 12),
        (13, 15),
        (16, 17),
    ]


def test_sources_without_spaces_between_words_are_measured_in_characters() -> None:
    sentence = "我喜歡學習新的語言。"  # 10 characters
    sources = [sentence * count for count in range(1, 10) for _ in range(25)]
    unit = length_unit(sources)
    assert unit.name == "characters"
    buckets = length_buckets(sources, 60, unit)
    assert [(bucket.first, bucket.last) for bucket in buckets] == [
        (first, first + 9) if first > 10 else (10, 10) for first in range(1, 90, 10)
    ]
    assert [bucket.beyond for bucket in buckets] == [False] * 6 + [True] * 3
    spaced = [" ".join(line) for line in sources]  # spaces between characters are no length
    assert length_buckets(spaced, 60, length_unit(spaced)) == buckets


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ein kurzer Satz", "words"),
        ("एक छोटा वाक्य", "words"),
        ("문장 하나", "words"),
        ("ประโยคสั้น", "characters"),
        ("短い文です", "characters"),
        ("", "words"),
    ],
)
def test_the_script_chooses_the_unit_of_length(line: str, name: str) -> None:
    assert length_unit([line]).name == name
