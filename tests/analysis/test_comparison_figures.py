"""Figures of `seq2seq compare`: titles, labels and files, drawn without any training."""

import pytest

from seq2seq.analysis.compare.figure import _curves_title

CURVE = [(2, 1.0), (4, 3.0)]
SHIFTED = [(3, 2.0), (5, 5.0)]


@pytest.mark.parametrize(
    ("seeds", "curves", "shown", "hidden"),
    [
        (2, [[CURVE, CURVE], [CURVE, CURVE]], ["mean of 2 seeds"], ["without", "interpolated"]),
        (2, [[CURVE, SHIFTED]], ["mean of 2 seeds", "interpolated"], ["without"]),
        (2, [[CURVE, CURVE], []], ["mean over seeds", "without a curve: 2 of 4"], ["interpol"]),
        (2, [[]], ["without a curve: 2 of 2"], ["interpolated", "mean of"]),
        (3, [[CURVE, SHIFTED]], ["without a curve: 1 of 3", "interpolated"], ["mean of"]),
        (1, [[CURVE], []], ["without a curve: 1 of 2"], ["seeds", "interpolated"]),
    ],
)
def test_the_title_describes_the_curves_that_are_drawn(
    seeds: int, curves: list[list[list[tuple[int, float]]]], shown: list[str], hidden: list[str]
) -> None:
    title = _curves_title(seeds, curves)
    assert all(text in title for text in shown)
    assert not any(text in title for text in hidden)
