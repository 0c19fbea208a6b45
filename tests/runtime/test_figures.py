"""Charts of reports: lines through their points, bars as high as their values, SVG for a page."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from seq2seq.runtime.figures import Curve, as_svg, bar_chart, line_chart

pytest.importorskip("matplotlib")
TEXT = "{http://www.w3.org/2000/svg}text"


def test_a_line_goes_through_its_points_and_has_its_name() -> None:
    points = [(0.0, 3.0), (10.0, 1.0), (40.0, 2.0)]
    figure = line_chart("loss", [Curve("a", points), Curve("b", points[1:])])
    (axes,) = figure.axes
    assert (
        [line.get_xydata().tolist() for line in axes.lines]
        == [  # type: ignore[union-attr]
            [list(point) for point in curve] for curve in (points, points[1:])
        ]
    )
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


@pytest.mark.parametrize("points", [[(5.0, 0.0)], [(1.0, 2.0), (2.0, 2.0)], [(0.0, -1e-9)]])
def test_few_and_equal_points_are_drawn_as_svg(points: list[tuple[float, float]]) -> None:
    svg = ElementTree.fromstring(as_svg(line_chart("<&>", [Curve("x<y", points)])))
    assert "<&>" in [element.text for element in svg.iter(TEXT)]


def test_bars_are_as_high_as_their_values() -> None:
    groups = [("1-5", 30), ("6-9*", 20), ("x", 5)]
    values = {"a": [40.0, 10.0, 0.0], "b": [30.0, 20.0, 1.0]}
    figure = bar_chart("BLEU", "words", groups, values)
    (axes,) = figure.axes
    heights = [bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == [*values["a"], *values["b"]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1-5\n30", "6-9*\n20", "x\n5"]


@pytest.mark.parametrize(("count", "label"), [(4, "1-5"), (16, "76-80"), (40, "101-105*")])
def test_labels_of_bars_do_not_overlap(count: int, label: str) -> None:
    figure = bar_chart("BLEU", "words", [(label, 12_345)] * count, {"a": [30.0] * count})
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
