"""The figure of quality and speed has a labelled mark for each model."""

import pytest

pytest.importorskip("matplotlib")

from plot_trade_off import draw

MODELS = [
    {"name": "small", "width": 320, "megabytes": 5.25, "bleu": 41.0, "tokens": 3000},
    {"name": "large", "width": 512, "megabytes": 9.0, "bleu": 41.8, "tokens": 1000},
    {"name": "other", "width": None, "megabytes": None, "bleu": 40.5, "tokens": 2000},
]


def test_every_model_is_a_labelled_mark_within_the_axes() -> None:
    (axes,) = draw(MODELS).axes
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
    assert marks == [(model["tokens"], model["bleu"]) for model in MODELS]
    assert [label.get_text() for label in axes.texts] == [
        "small\n320 units, 5.2 MB",
        "large\n512 units, 9.0 MB",
        "other",
    ]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert all(left < x < right and bottom < y < top for x, y in marks)
    assert [line.get_marker() for line in axes.lines] == ["o", "o", "D"]
