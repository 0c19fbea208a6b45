"""Charts and figures by matplotlib, which only the functions import.

Fonts serve every script; files are equal for equal figures, with notes on their legibility.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.runtime.console import counted
from seq2seq.runtime.errors import is_installed, not_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

# Colours of Okabe and Ito, distinct for the colour-blind; repeated with other line styles.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
LINE_STYLES = ("-", "--", ":", "-.")
GREY = "#5c636e"
SMALL = 5.2, 3.1  # width and height of a chart in a grid; inches, as all lengths here
LINE = 0.2  # height of a line of a legend
MARKED = 40  # points in a line, up to which all have marks
DPI = 150
MAX_PIXELS = 60_000_000  # PNG size; needs 240 MB while drawn
MAX_SIDE = 30_000  # pixels
READABLE_DPI = 60
INSTEAD = "use .html or .svg instead"
# matplotlib takes each glyph from the first family that has it. Japanese fonts come before others
# for Han characters, which serve Chinese better than the reverse.
FAMILIES = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Arabic"),
    *("Noto Sans Hebrew", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Telugu"),
    *("Noto Sans Gujarati", "Noto Sans Gurmukhi", "Noto Sans Kannada", "Noto Sans Malayalam"),
    *("Noto Sans Thai", "Noto Sans Khmer", "Noto Sans Georgian", "Noto Sans Armenian"),
    *("Noto Sans Ethiopic", "Lohit Devanagari", "FreeSans", "Droid Sans Fallback"),
    *("WenQuanYi Zen Hei", "IPAGothic", "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo"),
    *("Kohinoor Devanagari", "Arial Unicode MS", "Unifont"),
)
# Keep text as text, which browsers shape and search; make element ids reproducible; let no hinting
# make text wider than `widest` has measured.
OPTIONS: dict[Any, Any] = dict.fromkeys(("svg.fonttype", "text.hinting"), "none")
OPTIONS |= {"svg.hashsalt": "seq2seq", "pdf.fonttype": 42}  # TrueType, which journals ask for


class Curve(NamedTuple):
    """A figure over the steps of training."""

    name: str
    points: list[tuple[float, float]]  # step, value
    appearance: tuple[int, int] | None = None  # numbers of colour and line style


class Band(NamedTuple):
    """Values of several seeds at the same places: their mean, its spread, and each seed."""

    name: str
    places: list[float]
    means: list[float]
    spreads: list[float]
    seeds: list[list[float]]


class Axes(NamedTuple):
    """Title of a chart, names of its axes, and labels of places 0, 1, ... if these are no steps."""

    title: str
    x_label: str
    y_label: str
    ticks: Sequence[str] = ()


def matplotlib_note() -> str | None:
    """Return how to install matplotlib if it is missing."""
    if is_installed("matplotlib"):
        return None
    return str(not_installed("figures need matplotlib", "plot"))


def installed_families() -> list[str]:
    """Return the families that matplotlib finds on this machine."""
    from matplotlib.font_manager import fontManager

    names = {entry.name for entry in fontManager.ttflist}
    return [family for family in FAMILIES if family in names]


def save(figure: "Figure", suffix: str) -> tuple[bytes, list[str]]:
    """Return the content of a PNG, SVG or PDF file, equal for equal figures, and notes on it."""
    import matplotlib

    buffer = BytesIO()
    notes = list[str]()
    dpi = float(DPI)
    with matplotlib.rc_context(OPTIONS), _missing_glyphs() as missing_glyphs:
        if suffix == ".png":
            width, height = figure.get_size_inches()  # matplotlib fails at 65,536 pixels
            dpi = min(DPI, MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))
            figure.savefig(buffer, format="png", dpi=dpi)
        else:
            date = {".svg": "Date", ".pdf": "CreationDate"}[suffix]
            figure.savefig(buffer, format=suffix[1:], metadata={date: None})
    if dpi < READABLE_DPI:
        notes.append(f"at {dpi:.0f} dpi the PNG is hard to read; {INSTEAD}")
    if missing_glyphs and suffix != ".svg":  # its viewer has fonts of its own
        characters = counted(len(missing_glyphs), "character")
        text = f"no font of matplotlib's contains {characters}, shown as boxes in the {suffix}"
        notes.append(f"{text}; {INSTEAD}")
    return buffer.getvalue(), notes


def widest(texts: Iterable[str], font: "FontProperties") -> float:
    """Return the width of the widest text in inches."""
    from matplotlib.textpath import text_to_path

    with _missing_glyphs():
        widths = (text_to_path.get_text_width_height_descent(t, font, False)[0] for t in texts)
        return max(widths, default=0.0) / 72


@contextmanager
def _missing_glyphs() -> Iterator[set[str]]:
    """Collect matplotlib's warnings of glyphs that no font has, and let others pass."""
    messages: set[str] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    for warning in caught:
        text = str(warning.message)
        if " missing from " in text:
            messages.add(text.partition(" missing from ")[0])
        elif "does not support" not in text:
            place = warning.filename, warning.lineno
            warnings.warn_explicit(warning.message, warning.category, *place)


def _new_axes(labels: Axes) -> "tuple[Figure, Plot]":
    """Return a figure with one chart, wide enough for the labels of its places."""
    ticks = labels.ticks
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.family": installed_families(), "font.size": 9}):
        figure = Figure((max(SMALL[0], 0.7 * len(ticks)), SMALL[1]), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(labels.title, loc="left", fontsize=10)
        axes.set_xlabel(labels.x_label, color=GREY)
        axes.set_ylabel(labels.y_label, color=GREY)
    if ticks:
        axes.set_xticks(range(len(ticks)), ticks)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#dfe2e7", linewidth=0.7)
    axes.tick_params(colors=GREY, labelsize=8)
    return figure, axes


def line_chart(title: str, curves: Sequence[Curve]) -> "Figure":
    """Draw curves over the steps of training; see `_add_legend_below`."""
    figure, axes = _new_axes(Axes(title, "step", ""))
    for index, curve in enumerate(curves):
        steps, values = zip(*curve.points, strict=True)
        colour, style = curve.appearance or (index % len(COLOURS), index // len(COLOURS))
        (line,) = axes.plot(steps, values, label=curve.name, markersize=3)
        line.set(color=COLOURS[colour], marker="o" if len(steps) <= MARKED else "")
        line.set(linestyle=LINE_STYLES[style % len(LINE_STYLES)])
    axes.locator_params(axis="y", nbins=8)
    _add_legend_below(figure, len(curves))
    return figure


def seed_chart(labels: Axes, bands: Sequence[Band]) -> "Figure":
    """Draw the mean of each band as a line, its spread as an area, and seeds as thin lines.

    No value is negative, as scores are.
    """
    figure, axes = _new_axes(labels)
    if not labels.ticks:
        axes.locator_params(axis="x", integer=True)
    for index, band in enumerate(bands):
        colour = COLOURS[index % len(COLOURS)]
        style = LINE_STYLES[index // len(COLOURS) % len(LINE_STYLES)]
        low = [
            max(0.0, mean - spread) for mean, spread in zip(band.means, band.spreads, strict=True)
        ]
        high = [mean + spread for mean, spread in zip(band.means, band.spreads, strict=True)]
        mark = "o" if len(band.places) <= MARKED else ""
        (line,) = axes.plot(band.places, band.means, label=band.name, markersize=3)
        line.set(color=colour, linestyle=style, marker=mark)
        if len(band.seeds) > 1:
            axes.fill_between(band.places, low, high, color=colour, alpha=0.15, linewidth=0)
            for seed in band.seeds:
                axes.plot(band.places, seed, color=colour, alpha=0.45, linewidth=0.6)
    axes.locator_params(axis="y", nbins=8)
    _add_legend_below(figure, len(bands))
    return figure


def bar_chart(
    title: str, x_label: str, groups: Sequence[tuple[str, int]], bars: Mapping[str, Sequence[float]]
) -> "Figure":
    """Draw a group of bars for each label, its count below, with a bar for each name."""
    ticks = [f"{label}\n{count:,}" for label, count in groups]
    figure, axes = _new_axes(Axes(title, x_label, "", ticks))
    axes.grid(False)  # the bars have their values
    width = 0.7 / len(bars)
    places = range(len(groups))
    for index, (name, values) in enumerate(bars.items()):
        shift = (index - (len(bars) - 1) / 2) * width
        lefts = [place + shift for place in places]
        bar_container = axes.bar(lefts, values, width, color=COLOURS[index], label=name)
        axes.bar_label(bar_container, fmt="%.1f", padding=2, fontsize=8 if len(bars) == 1 else 6)
    axes.margins(y=0.1)
    _add_legend_below(figure, len(bars))
    return figure


def _add_legend_below(figure: "Figure", names: int) -> None:
    """Name the lines or bars, if there are several; the figure grows by the names."""
    import matplotlib

    if names > 1:
        figure.set_figheight(figure.get_figheight() + LINE * (-(-names // 2) - 1))
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
