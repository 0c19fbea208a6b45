"""Attention maps as a figure of matplotlib: panels in a grid, with one colour bar."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2seq.inference.attention_map import (
    AttentionMap,
    is_split,
    is_upright,
    labels_of,
    word_spans,
)
from seq2seq.inference.attention_table import BLUE
from seq2seq.runtime.figures import installed_families, save, widest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

CELL = 0.26  # inches, as all lengths here
LABEL_GAP = 0.12  # between labels and cells: room for the word bars
LINE = 0.19  # height of a line of a title
UPRIGHT_LINE = 0.16  # height of a character in an upright label, such as a Chinese one
BAR = 0.6  # height of the colour bar with its labels
EDGE = 0.25  # height above all titles, which the layout may place up to 0.2 too high
MIN_CELLS = 10  # least width of a panel, to whose cells the title wraps


def map_figure(maps: Sequence[AttentionMap], columns: int | None = None) -> "Figure":
    """Draw maps in a grid, nearly square by default, each below its title: its headings."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=installed_families(), size=9)
    columns = columns or math.ceil(math.sqrt(len(maps)))
    rows = -(-len(maps) // columns)
    across = max(MIN_CELLS, *(len(attention.src_tokens) for attention in maps))
    down = max(len(attention.tgt_tokens) for attention in maps)
    titles = [_title(attention, CELL * across, font) for attention in maps]
    left, top = _room(maps, titles, font)
    size = columns * (left + CELL * across), rows * (top + CELL * down) + BAR + EDGE
    figure = Figure(figsize=size)
    figure._repr_png_ = lambda: save(figure, ".png")[0]  # type: ignore[attr-defined]  # for a notebook
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - EDGE / size[1]))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    blue = [value / 255 for value in BLUE]
    colours = LinearSegmentedColormap.from_list("attention", [(1.0, 1.0, 1.0), blue])
    for axes, attention, title in zip(panels, maps, titles, strict=False):
        axes.set_title(title, loc="left", fontproperties=font, pad=8, parse_math=False)
        style: dict[str, Any] = {"edgecolors": "#e2e4e9", "linewidth": 0.5}
        mesh = axes.pcolormesh(attention.weights, cmap=colours, vmin=0, vmax=1, **style)
        axes.set(xlim=(0, across), ylim=(down, 0), aspect="equal", anchor="NW")
        _draw_labels(axes, attention, font)
    for axes in panels[len(maps) :]:
        axes.remove()
    place: dict[str, Any] = {"location": "bottom", "anchor": (0.0, 0.0), "aspect": 13}
    shrink = min(1.0, 1.3 / size[0])
    bar = figure.colorbar(mesh, ax=list(panels[: len(maps)]), ticks=[0, 1], shrink=shrink, **place)
    bar.set_label("attention weight", fontproperties=font)
    return figure


def _title(attention: AttentionMap, room: float, font: "FontProperties") -> str:
    """Return the headings of a map, wrapped to lines of about a width in inches."""
    lines: list[str] = []
    for text in attention.headings():
        share = room / max(room, widest([text], font))
        lines += textwrap.wrap(text, max(1, int(0.9 * share * len(text)))) if share < 1 else [text]
    return "\n".join(lines)


def _room(
    maps: Sequence[AttentionMap], titles: Sequence[str], font: "FontProperties"
) -> tuple[float, float]:
    """Return the width of the labels beside the cells, and the height of all that is above."""
    labels = [label for attention in maps for label in labels_of(attention.src_tokens)]
    upright = max((len(label) for label in labels if is_upright(label)), default=0)
    turned = widest([label for label in labels if not is_upright(label)], font)
    lines = max(title.count("\n") + 1 for title in titles)
    tgt_labels = [label for attention in maps for label in labels_of(attention.tgt_tokens)]
    beside = widest(tgt_labels, font)
    top = LINE * lines + max(turned, UPRIGHT_LINE * upright)
    return beside + 3 * LABEL_GAP, top + 3 * LABEL_GAP


def _draw_labels(axes: "Axes", attention: AttentionMap, font: "FontProperties") -> None:
    columns, rows = map(labels_of, (attention.src_tokens, attention.tgt_tokens))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=72 * LABEL_GAP, top=True, labeltop=True, labelbottom=False)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontproperties=font, parse_math=False)  # a token may be "$"
    for label in axes.get_xticklabels():
        if is_upright(label.get_text()):
            label.set(text="\n".join(label.get_text()), rotation=0, linespacing=1)
    _draw_word_bars(axes, attention)


def _draw_word_bars(axes: "Axes", attention: AttentionMap) -> None:
    """Join the labels of each word's tokens by a bar beside the cells."""
    beside = -0.5 * LABEL_GAP / CELL
    style: dict[str, Any] = {"color": "#9aa0a8", "linewidth": 1.2, "clip_on": False}
    for tokens, step in ((attention.src_tokens, 1), (attention.tgt_tokens, -1)):
        for word in word_spans(tokens) if is_split(tokens) else ():
            ends = (word.start + 0.15, word.stop - 0.15), (beside, beside)
            axes.plot(*ends[::step], **style)
