"""The figure of quality and speed has each model once in each panel, with its label."""

import pytest

pytest.importorskip("matplotlib")

from plot_trade_off import SEARCHES, draw

MODELS = [
    {"name": "small", "width": 320, "megabytes": 5.25, "bleu": 41.0, "greedy": 9e3, "beam": 3e3},
    {"name": "large", "width": 512, "megabytes": 9.0, "bleu": 41.8, "greedy": 4e3, "beam": 1e3},
    {"name": "other", "width": None, "megabytes": None, "bleu": 40.5, "greedy": 8e3, "beam": 2e3},
]


def test_every_model_is_a_labelled_mark_within_each_panel() -> None:
    panels = draw(MODELS).axes
    assert [axes.get_title() for axes in panels] == list(SEARCHES.values())
    for axes, key in zip(panels, SEARCHES, strict=True):
        marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
        assert marks == [(model[key], model["bleu"]) for model in MODELS]
        assert [label.get_text() for label in axes.texts] == [
            "small\n320 units, 5.2 MB",
            "large\n512 units, 9.0 MB",
            "other",
        ]
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert all(left < x < right and bottom < y < top for x, y in marks)
        markers = [line.get_marker() for line in axes.lines]
        assert markers == ["o", "o", "D"]
