"""Line and bar charts as SVG, coloured by the style sheet of the page."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from seq2seq.analysis.report.facts import Curve

WIDTH, HEIGHT = 480, 220
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 12, 34  # margins around the plot
CHARACTER = 7.5  # width of one in a label, at most
MAX_POINTS = 400  # maximum points of a line; more are averaged
MARKED = 40  # a curve of at most as many points has a mark for each


class Axis(NamedTuple):
    """Linear scale from values to pixels."""

    low: float
    high: float
    start: float  # pixel of `low`
    end: float

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        span = self.high - self.low
        return self.start + (value - self.low) / span * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Return round values in the range, at most about `most`."""
        raw = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def line_chart(title: str, curves: Sequence[Curve]) -> str:
    """Draw curves over the steps of training, with a legend if there are several."""
    shown = [Curve(each.name, _thinned(each.points)) for each in curves]
    steps = [step for each in shown for step, _ in each.points]
    values = [value for each in shown for _, value in each.points]
    x = _axis(steps, LEFT, WIDTH - RIGHT)
    y = _axis(values, HEIGHT - BOTTOM, TOP)
    parts = [_grid(x, y), f'<text class="label" x="{WIDTH - RIGHT}" y="{HEIGHT - 4}">step</text>']
    for number, curve in enumerate(shown):
        places = [(x.place(step), y.place(value)) for step, value in curve.points]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
        parts.append(f'<polyline class="line c{number}" points="{path}"/>')
        if len(places) <= MARKED:
            for (left, top), (step, value) in zip(places, curve.points, strict=True):
                hint = escape(f"{curve.name}: {value:.4g} at step {step:,.0f}")
                parts.append(
                    f'<circle class="mark c{number}" cx="{left:.1f}" cy="{top:.1f}" r="3">'
                    f"<title>{hint}</title></circle>"
                )
        if len(shown) > 1:
            parts.append(_legend(number, curve.name))
    return _svg(title, parts)


def bar_chart(title: str, bars: Sequence[tuple[str, int, float]]) -> str:
    """Draw a bar for each label, count and value; the count is below the label.

    The chart is wider than others where the labels need it.
    """
    longest = max(len(text) for label, count, _ in bars for text in (label, f"{count:,}"))
    width = max((WIDTH - LEFT - RIGHT) / len(bars), CHARACTER * (longest + 1))
    right = LEFT + RIGHT + width * len(bars)
    y = Axis(0.0, max(1.0, *(value for _, _, value in bars)) * 1.12, HEIGHT - BOTTOM, TOP)
    parts = [_horizontal(y, right - RIGHT)]
    for number, (label, count, value) in enumerate(bars):
        middle, top = LEFT + (number + 0.5) * width, y.place(value)
        parts += [
            f'<rect class="bar" x="{middle - 0.35 * width:.1f}" y="{top:.1f}" '
            f'width="{0.7 * width:.1f}" height="{y.start - top:.1f}"/>',
            f'<text class="value" x="{middle:.1f}" y="{top - 4:.1f}">{value:.1f}</text>',
            f'<text class="value" x="{middle:.1f}" y="{HEIGHT - 20}">{escape(label)}</text>',
            f'<text class="count" x="{middle:.1f}" y="{HEIGHT - 5}">{count:,}</text>',
        ]
    return _svg(title, parts, right)


def _svg(title: str, parts: Sequence[str], width: float = WIDTH) -> str:
    name = escape(title)
    # A wide chart scrolls, with text of the same size.
    size = f' style="width:{36 * width / WIDTH:.1f}rem;max-width:none"' if width > WIDTH else ""
    return (
        f'<svg viewBox="0 0 {width:.0f} {HEIGHT}"{size} role="img" aria-label="{name}">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = min(values), max(values)
    if low == high:
        low, high = low - max(0.5, abs(low) / 2), high + max(0.5, abs(high) / 2)
    return Axis(low, high, start, end)


def _grid(x: Axis, y: Axis) -> str:
    places = ((x.place(value), value) for value in x.ticks())
    return _horizontal(y) + "".join(
        f'<text class="tick x" x="{left:.1f}" y="{HEIGHT - BOTTOM + 15}">{value:,.6g}</text>'
        for left, value in places
    )


def _horizontal(y: Axis, right: float = WIDTH - RIGHT) -> str:
    places = ((y.place(value), value) for value in y.ticks())
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{right:.0f}" y1="{top:.1f}" y2="{top:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{top + 4:.1f}">{value:.4g}</text>'
        for top, value in places
    )


def _legend(number: int, name: str) -> str:
    top = TOP + 10 + 16 * number
    left = WIDTH - RIGHT - 100
    return (
        f'<line class="line c{number}" x1="{left}" x2="{left + 18}" y1="{top}" y2="{top}"/>'
        f'<text class="name" x="{left + 24}" y="{top + 4}">{escape(name)}</text>'
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average neighbouring points where there are more than MAX_POINTS."""
    size = -(-len(points) // MAX_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        (sum(step for step, _ in each) / len(each), sum(value for _, value in each) / len(each))
        for each in groups
    ]
