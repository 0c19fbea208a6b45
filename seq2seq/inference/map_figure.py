"""Attention maps as a matplotlib figure: panels in a grid, with one colour bar."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.inference.attention_map import (
    BLUE,
    AttentionMap,
    is_split,
    is_upright,
    labels_of,
    word_spans,
)
from seq2seq.runtime.figures import installed_families, save, widest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

CELL = 0.26  # inches, as all lengths here
MARGIN = 0.15
GAP = 0.35  # between panels
LABEL_GAP = 0.12  # between labels and cells: room for the word bars
TITLE_GAP = 0.14  # between the title and the longest label
LINE = 0.19  # height of a line of a title
UPRIGHT_LINE = 0.16  # height of a character in an upright label, such as a Chinese one
BAR = 0.5  # height of the colour bar with its labels
MIN_TITLE = 2.4  # least width of a title before it wraps
ASPECT = 2.0  # width to height of the grid of panels
INK, GREY = "black", "#5c636e"


class _Panel(NamedTuple):
    """A map with its wrapped title and its size."""

    attention: AttentionMap
    title: list[tuple[str, str]]  # lines with their colours
    left: float  # place of the cells in the panel, as below
    top: float
    width: float
    height: float


def map_figure(maps: Sequence[AttentionMap]) -> "Figure":
    """Draw maps in rows, each below its title: the source in black, then the translation."""
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=installed_families(), size=9)
    rows = _rows([_panel(attention, font) for attention in maps])
    heights = [max(panel.height for panel in row) for row in rows]
    width = max(sum(panel.width + GAP for panel in row) - GAP for row in rows) + 2 * MARGIN
    height = sum(heights) + GAP * (len(rows) - 1) + BAR + 2 * MARGIN
    figure = _shown_figure(Figure)(figsize=(width, height))
    y = MARGIN
    for row, row_height in zip(rows, heights, strict=True):
        x = MARGIN
        for panel in row:
            _draw_panel(figure, panel, (x, y), font)
            x += panel.width + GAP
        y += row_height + GAP
    _draw_bar(figure, y - GAP + MARGIN, font)
    return figure


def _shown_figure(figure_type: "type[Figure]") -> "type[Figure]":
    """Return a figure that a notebook shows, also where pyplot is not in use."""

    class ShownFigure(figure_type):  # type: ignore[valid-type, misc]
        def _repr_png_(self) -> bytes:
            return save(self, ".png")[0]

    return ShownFigure


def _panel(attention: AttentionMap, font: "FontProperties") -> _Panel:
    columns, rows = len(attention.src_tokens), len(attention.tgt_tokens)
    left = widest(labels_of(attention.tgt_tokens), font) + LABEL_GAP
    width = left + CELL * columns
    room = max(width, MIN_TITLE)
    colours = (INK, GREY, GREY)  # source, translation, head
    title = [
        (line, colour)
        for text, colour in zip(attention.headings(), colours, strict=False)
        for line in _wrapped(text, room, font)
    ]
    room = max(room, widest([text for text, _ in title], font))
    top = LINE * len(title) + TITLE_GAP + _label_height(attention.src_tokens, font) + LABEL_GAP
    return _Panel(attention, title, left, top, room, top + CELL * rows)


def _label_height(tokens: Sequence[str], font: "FontProperties") -> float:
    labels = labels_of(tokens)
    upright = max((len(label) for label in labels if is_upright(label)), default=0)
    turned = widest([label for label in labels if not is_upright(label)], font)
    return max(turned, UPRIGHT_LINE * upright)


def _wrapped(text: str, room: float, font: "FontProperties") -> list[str]:
    """Wrap a text to lines of about a width in inches."""
    width = widest([text], font)
    return [text] if width <= room else textwrap.wrap(text, max(1, int(len(text) * room / width)))


def _rows(panels: Sequence[_Panel]) -> list[list[_Panel]]:
    """Put panels into rows, in order, whose width suits a page."""
    area = sum((panel.width + GAP) * (panel.height + GAP) for panel in panels)
    room = max(*(panel.width for panel in panels), 0, (ASPECT * area) ** 0.5)
    rows: list[list[_Panel]] = [[]]
    for panel in panels:
        if rows[-1] and sum(other.width + GAP for other in rows[-1]) + panel.width > room:
            rows.append([])
        rows[-1].append(panel)
    return rows


def _draw_panel(
    figure: "Figure", panel: _Panel, corner: tuple[float, float], font: "FontProperties"
) -> None:
    (x, y), (width, height) = corner, figure.get_size_inches()
    for number, (text, colour) in enumerate(panel.title):
        place = x / width, 1 - (y + number * LINE) / height
        style: dict[str, Any] = {"fontproperties": font, "va": "top", "parse_math": False}
        figure.text(*place, text, color=colour, **style)
    attention = panel.attention
    columns, rows = len(attention.src_tokens), len(attention.tgt_tokens)
    box = x + panel.left, y + panel.top, columns * CELL, rows * CELL
    axes = figure.add_axes(_fractions(figure, box))
    axes.pcolormesh(attention.weights, edgecolors="#e2e4e9", linewidth=0.5, **_colours())
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=72 * LABEL_GAP, top=True, labeltop=True, labelbottom=False)
    axes.set_xticks([i + 0.5 for i in range(columns)], labels_of(attention.src_tokens), rotation=90)
    axes.set_yticks([i + 0.5 for i in range(rows)], labels_of(attention.tgt_tokens))
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontproperties=font, parse_math=False)  # a token may be "$"
    for label in axes.get_xticklabels():
        if is_upright(label.get_text()):
            label.set(text="\n".join(label.get_text()), rotation=0, linespacing=1)
    _draw_word_bars(axes, attention)


def _colours() -> dict[str, Any]:
    from matplotlib.colors import LinearSegmentedColormap

    blue = [value / 255 for value in BLUE]
    return {
        "cmap": LinearSegmentedColormap.from_list("attention", [(1.0, 1.0, 1.0), blue]),
        "vmin": 0,
        "vmax": 1,
    }


def _draw_bar(figure: "Figure", y: float, font: "FontProperties") -> None:
    """Draw the colour bar of all panels: `attention weight 0 ... 1`."""
    axes = figure.add_axes(_fractions(figure, (MARGIN, y + LINE, 1.3, 0.1)))
    axes.pcolormesh([[step / 63 for step in range(64)]], **_colours())
    axes.spines[:].set_visible(False)
    axes.set_yticks([])
    axes.set_xticks([0, 64], ["0", "1"], fontproperties=font)
    axes.tick_params(length=0, pad=2)
    axes.set_title("attention weight", fontproperties=font, loc="left", pad=3)


def _draw_word_bars(axes: "Axes", attention: AttentionMap) -> None:
    """Join the labels of each word's tokens by a bar beside the cells."""
    beside = -0.5 * LABEL_GAP / CELL
    style: dict[str, Any] = {"color": "#9aa0a8", "linewidth": 1.2, "clip_on": False}
    if is_split(attention.src_tokens):
        for word in word_spans(attention.src_tokens):
            axes.plot((word.start + 0.15, word.stop - 0.15), (beside, beside), **style)
    if is_split(attention.tgt_tokens):
        for word in word_spans(attention.tgt_tokens):
            axes.plot((beside, beside), (word.start + 0.15, word.stop - 0.15), **style)


def _fractions(
    figure: "Figure", box: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """Convert inches from the upper left corner to fractions from the lower left."""
    (x, y, width, height), (across, down) = box, figure.get_size_inches()
    return x / across, 1 - (y + height) / down, width / across, height / down
