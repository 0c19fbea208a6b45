"""Alignment check: misaligned stretches of the demo corpora are found; correct text passes."""

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.data.corpus import ParallelText
from seq2seq.data.public_corpora import _members
from seq2seq.tools.analysis.check.alignment import (
    MIN_PAIRS,
    Alignment,
    Evidence,
    alignment_findings,
    folds_of,
    measure_alignment,
    scores,
    tokens_of,
    train_tables,
    types_of,
    words_of,
)
from seq2seq.tools.analysis.check.findings import Finding, Split

Pairs = tuple[list[str], list[str]]
CORPORA = ("demo/{}.fr", "demo-lengths/{}.fr", "demo-en-mr/{}.mr")
SPLITS = ("train", "valid", "test")


@cache
def files() -> dict[str, list[str]]:
    return {str(name): content.decode().splitlines() for name, content in _members()}


def corpus(name: str, split: str) -> Pairs:
    tgt = name.format(split)
    return list(files()[f"{tgt.partition('/')[0]}/{split}.en"]), list(files()[tgt])


@cache
def trained(name: str) -> tuple[Alignment, Evidence | None]:
    return measure_alignment(ParallelText(*corpus(name, "train")))


def evidence(name: str) -> Evidence:
    alignment = trained(name)[1]
    assert alignment is not None
    return alignment


def measured(pairs: Pairs, train: Evidence | None = None) -> Alignment:
    return measure_alignment(ParallelText(*pairs), train)[0]


def measured_with(
    name: str, split: str, arrange: Callable[[Pairs], Pairs] = lambda pairs: pairs
) -> Alignment:
    """Measure a split, with the evidence of the training text if it is another."""
    return measured(arrange(corpus(name, split)), None if split == "train" else evidence(name))


def findings(alignment: Alignment, name: str = "train") -> list[Finding]:
    split = Split(name, f"{name}.src", f"{name}.tgt", None)  # type: ignore[arg-type]
    return list(alignment_findings(split, alignment))


def part_of(name: str) -> Pairs:
    """Return the start of a training text, of as many folds as all of it."""
    src, tgt = corpus(name, "train")
    count = 5200 if len(src) > 5200 else 1700
    return src[:count], tgt[:count]


def rotated(lines: list[str], first: int, count: int) -> list[str]:
    """Shift `count` lines up by one and move the first of them to their end."""
    block = lines[first : first + count]
    return [*lines[:first], *block[1:], *block[:1], *lines[first + count :]]


def by_length(pairs: Pairs) -> Pairs:
    src, tgt = zip(*sorted(zip(*pairs, strict=True), key=lambda pair: len(pair[0])), strict=True)
    return list(src), list(tgt)


@one_quick("name", CORPORA)
@pytest.mark.parametrize("split", SPLITS)
def test_a_correct_text_shows_no_sign_of_misalignment(name: str, split: str) -> None:
    check_correct(trained(name)[0] if split == "train" else measured_with(name, split))


@one_quick(("name", "split"), zip(CORPORA, ("valid", "test", "train"), strict=True))
def test_a_correct_text_sorted_by_length_shows_no_sign_of_misalignment(
    name: str, split: str
) -> None:
    check_correct(measured_with(name, split, by_length))


def check_correct(alignment: Alignment) -> None:
    assert alignment.stretches == []
    assert alignment.agreement is not None
    assert alignment.agreement > 0.95
    (finding,) = findings(alignment)
    assert (finding.warning, finding.done) == (False, True)
    assert "no sign of misalignment" in finding.text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "arrange", "offset"),
    [
        (CORPORA[0], by_length, 1),
        (CORPORA[1], lambda pairs: pairs, -1),
        (CORPORA[2], by_length, -1),
    ],
)
def test_a_text_shifted_by_one_line_is_found_even_if_sorted_by_length(
    name: str, arrange: Callable[[Pairs], Pairs], offset: int
) -> None:
    src, tgt = arrange(part_of(name))
    alignment = measured((src[:-1], tgt[1:]) if offset < 0 else (src[1:], tgt[:-1]))
    (stretch,) = alignment.stretches
    assert stretch.offset == offset
    assert stretch.last - stretch.first > 0.9 * len(src)
    (finding,) = findings(alignment)
    assert finding.warning
    assert f"line n of train.src fits line n{offset:+d} of train.tgt" in finding.text


@pytest.mark.parametrize("name", CORPORA)
def test_a_shift_of_the_second_half_of_400_pairs_is_found(name: str) -> None:
    src, tgt = (side[1000:1401] for side in corpus(name, "train"))
    (stretch,) = measured((src[:-1], tgt[:200] + tgt[201:])).stretches
    assert stretch.offset == -1
    assert abs(stretch.first - 201) <= 10
    assert stretch.last >= 390


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "arrange"), [(CORPORA[0], by_length), (CORPORA[1], lambda pairs: pairs)]
)
def test_360_consecutive_shifted_lines_are_found(
    name: str, arrange: Callable[[Pairs], Pairs]
) -> None:
    src, tgt = arrange(part_of(name))
    alignment = measured((src, rotated(tgt, 4000, 360)))
    (stretch,) = alignment.stretches
    assert abs(stretch.first - 4001) <= 10
    assert abs(stretch.last - 4360) <= 10
    (finding,) = findings(alignment)
    assert f"from about line {stretch.first} to {stretch.last}" in finding.text


@pytest.mark.thorough
@pytest.mark.parametrize("name", CORPORA)
def test_a_shuffled_side_is_found(name: str) -> None:
    src, tgt = part_of(name)
    alignment = measured((src, random.Random(2).sample(tgt, len(tgt))))
    (stretch,) = alignment.stretches
    assert stretch.offset is None
    assert alignment.agreement == pytest.approx(0.5, abs=0.03)
    (finding,) = findings(alignment)
    assert "no sign that line n of train.tgt translates line n of train.src" in finding.text


@one_quick("name", CORPORA)
def test_validation_text_is_measured_by_evidence_of_the_training_text(name: str) -> None:
    src, tgt = corpus(name, "valid")
    (stretch,) = measured((src[:-1], tgt[1:]), evidence(name)).stretches
    assert stretch.offset == -1


@pytest.mark.thorough
def test_blank_lines_do_not_change_line_numbers() -> None:
    src, tgt = part_of(CORPORA[0])
    tgt = rotated(tgt, 4000, 360)
    alignment = measured(
        (["", *src[:3000], " ", *src[3000:]], ["x", *tgt[:3000], "y", *tgt[3000:]])
    )
    (stretch,) = alignment.stretches
    assert abs(stretch.first - 4003) <= 10
    assert alignment.pairs == len(src)


@pytest.mark.parametrize("count", [0, 1, MIN_PAIRS - 1])
def test_too_few_pairs_are_never_passed(count: int) -> None:
    src, tgt = corpus(CORPORA[0], "valid")
    alignment = measured((src[:count], tgt[:count]))
    assert alignment.agreement is None
    (finding,) = findings(alignment)
    assert (finding.warning, finding.done) == (False, False)
    assert "not measured" in finding.text


def test_text_without_any_correlated_feature_is_not_passed() -> None:
    generator = random.Random(3)
    src, tgt = ([f"{generator.getrandbits(40):x}" for _ in range(100)] for _ in range(2))
    (finding,) = findings(measured((src, tgt)))
    assert not finding.done
    assert "alignment not established" in finding.text


@pytest.mark.thorough
def test_shifts_are_found_despite_equal_lengths() -> None:
    pairs = zip(*corpus(CORPORA[0], "train"), strict=True)
    short = [pair for pair in pairs if max(map(len, pair)) <= 100][:1200]
    padded = [src.ljust(100, ".") for src, _ in short], [tgt.ljust(100, ".") for _, tgt in short]
    (correct,) = findings(measured(padded))
    assert correct.done
    assert not correct.warning
    assert measured((padded[0][:-1], padded[1][1:])).stretches


def test_tokens_depend_on_the_script() -> None:
    assert tokens_of("Tom's 3.5 km?") == ["Tom", "'", "s", "3", ".", "5", "km", "?"]
    assert tokens_of("मुलगा बागेत।") == ["मुलगा", "बागेत", "।"]
    assert tokens_of("男の子。") == ["男の", "子", "。"]


def test_a_pair_does_not_confirm_itself() -> None:
    """Words that occur together only in one fold are unknown to the table that scores that fold."""
    src, tgt = toy_pairs(80, seed=1)
    rows = np.flatnonzero(folds_of(80) == 0)
    for row in rows:
        src[row], tgt[row] = "aaaaaaa eeeeeee", "ooooooo uuuuuuu"
    src_types = types_of(src)
    tgt_types = types_of(tgt)
    sides = words_of(src, src_types), words_of(tgt, tgt_types)
    tables = train_tables(sides)
    assert tables[0][src_types["aaaaaa"], tgt_types["oooooo"]] <= 1
    assert tables[1][src_types["aaaaaa"], tgt_types["oooooo"]] > 2
    assert scores(sides, tables, rows, rows, folds_of(80)).shape == rows.shape
