"""Charts of reports and comparisons, by matplotlib, which only the functions import."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.runtime.figures import installed_families, save, widest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito, distinct for the colour-blind; repeated with other line styles.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
LINE_STYLES = ("-", "--", ":", "-.")
GREY = "#5c636e"
WIDTH, HEIGHT = 7.5, 4.2  # inches, as all lengths here
SMALL = 5.2, 3.1  # width and height of a chart in a grid
PLOT, LINE = 6.0, 0.2  # width of a chart beside its legend, and height of a line of it
WRAPPED = 40  # characters of a line in the legend; a single name may be longer
MAX_POINTS = 400  # in a line; more are averaged
MARKED = 40  # points in a line, up to which all have marks


class Curve(NamedTuple):
    """A figure over the steps of training."""

    name: str
    points: list[tuple[float, float]]  # step, value


def new_axes(title: str, x_label: str) -> "tuple[Figure, Axes]":
    """Return a figure with one chart."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.family": installed_families(), "font.size": 9}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel(x_label, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#dfe2e7", linewidth=0.7)
    axes.tick_params(colors=GREY, labelsize=8)
    return figure, axes


def style_of(index: int) -> dict[str, Any]:
    """Return colour and line style of a line."""
    colours = len(COLOURS)
    line_style = LINE_STYLES[index // colours % len(LINE_STYLES)]
    return {"color": COLOURS[index % colours], "linestyle": line_style}


def add_legend(figure: "Figure") -> None:
    """Name the lines of a figure beside its chart, which grows where the names need room."""
    import matplotlib
    from matplotlib.font_manager import FontProperties

    (axes,), families = figure.axes, installed_families()
    handles, names = axes.get_legend_handles_labels()
    labels = [textwrap.fill(name, WRAPPED, break_long_words=False) for name in names]
    rows = [row for label in labels for row in label.splitlines()]
    width = widest(rows, FontProperties(family=families, size=9))
    figure.set_figwidth(max(figure.get_figwidth(), PLOT + width))
    figure.set_figheight(max(HEIGHT, LINE * len(rows) + 1))
    with matplotlib.rc_context({"font.family": families}):
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)


def line_chart(title: str, curves: Sequence[Curve]) -> "Figure":
    """Draw curves over the steps of training, with a legend below if there are several."""
    figure, axes = new_axes(title, "step")
    figure.set_size_inches(SMALL)
    for index, curve in enumerate(curves):
        steps, values = zip(*thinned(curve.points), strict=True)
        marker = "o" if len(steps) <= MARKED else ""
        axes.plot(steps, values, label=curve.name, marker=marker, markersize=3, **style_of(index))
    axes.locator_params(axis="y", nbins=8)
    _add_legend_below(figure, len(curves))
    return figure


def bar_chart(
    title: str, x_label: str, groups: Sequence[tuple[str, int]], bars: Mapping[str, Sequence[float]]
) -> "Figure":
    """Draw a group of bars for each label and count, a bar in it for each name; see `line_chart`.

    The count is below the label.
    """
    figure, axes = new_axes(title, x_label)
    axes.grid(False)  # the bars have their values
    width, places = 0.7 / len(bars), range(len(groups))
    for index, (name, values) in enumerate(bars.items()):
        shift = (index - (len(bars) - 1) / 2) * width
        lefts = [place + shift for place in places]
        drawn = axes.bar(lefts, values, width, color=COLOURS[index], label=name)
        axes.bar_label(drawn, fmt="%.1f", padding=2, fontsize=8 if len(bars) == 1 else 6)
    axes.margins(y=0.1)
    axes.set_xticks(places, [f"{label}\n{count:,}" for label, count in groups])
    figure.set_size_inches(max(SMALL[0], 0.7 * len(groups)), SMALL[1])
    _add_legend_below(figure, len(bars))
    return figure


def _add_legend_below(figure: "Figure", names: int) -> None:
    import matplotlib

    if names > 1:
        with matplotlib.rc_context({"font.family": installed_families()}):
            style: dict[str, Any] = {"frameon": False, "fontsize": 9, "ncols": min(names, 2)}
            figure.legend(loc="outside lower left", **style)


def as_svg(figure: "Figure") -> str:
    """Return a figure as an element of an HTML page, whose ground shows through."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    text = save(figure, ".svg")[0].decode()
    return text[text.index("<svg") :]


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Average neighbouring points where there are more than MAX_POINTS."""
    size = -(-len(points) // MAX_POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        (sum(step for step, _ in group) / len(group), sum(value for _, value in group) / len(group))
        for group in groups
    ]
