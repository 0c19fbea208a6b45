"""Attention maps as a PNG, SVG or PDF figure; only the drawing functions import matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seq2seq.analysis.attention.maps import AttentionMap
from seq2seq.analysis.figures import installed_families, save, widest
from seq2seq.inference.token_labels import labels_of, word_spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

CELL = 0.28  # inches, like all lengths below
MARGIN = 0.15
LABEL_GAP = 0.12  # between labels and cells: room for the word bars
LINE = 0.19
GREY = "#5c636e"
SCALE = 0.7  # width of the colour scale with its labels


def draw(maps: Sequence[AttentionMap], suffix: str) -> tuple[bytes, list[str]]:
    """Draw maps one below the other; return the file's content and notes on its legibility."""
    return save(_figure(maps, installed_families()), suffix)


def _figure(maps: Sequence[AttentionMap], families: list[str]) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=families, size=9)
    left = MARGIN + widest([label for m in maps for label in labels_of(m.tgt_tokens)], font)
    left += LABEL_GAP
    tops = [
        MARGIN + LINE * len(m.headings()) + widest(labels_of(m.src_tokens), font) + LABEL_GAP
        for m in maps
    ]
    heights = [top + CELL * len(m.tgt_tokens) + MARGIN for m, top in zip(maps, tops, strict=True)]
    grid_width = CELL * max(len(m.src_tokens) for m in maps)
    heading_width = widest([text for m in maps for text in m.headings()], font)
    width = max(left + grid_width + SCALE, heading_width + 2 * MARGIN)

    figure = Figure(figsize=(width, sum(heights)))
    y = 0.0
    for attention, top, height in zip(maps, tops, heights, strict=True):
        _draw_headings(figure, attention, y + MARGIN, font)
        _draw_map(figure, attention, left, y + top, font)
        y += height
    return figure


def _draw_headings(
    figure: "Figure", attention: AttentionMap, y: float, font: "FontProperties"
) -> None:
    width, height = figure.get_size_inches()
    colours = (GREY, "black", GREY)  # source, translation, head
    for line, (text, colour) in enumerate(zip(attention.headings(), colours, strict=False)):
        figure.text(
            MARGIN / width,
            1 - (y + line * LINE) / height,
            text,
            color=colour,
            fontproperties=font,
            va="top",
            parse_math=False,
        )


def _draw_map(
    figure: "Figure", attention: AttentionMap, x: float, y: float, font: "FontProperties"
) -> None:
    """Draw the cells; (x, y) is their upper left corner in inches from the upper left."""
    columns, rows = len(attention.src_tokens), len(attention.tgt_tokens)
    axes = figure.add_axes(_box(figure, x, y, columns * CELL, rows * CELL))
    cells = axes.pcolormesh(
        attention.weights, vmin=0, vmax=1, cmap="Blues", edgecolors="#e6e8ec", linewidth=0.5
    )
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=72 * LABEL_GAP, top=True, labeltop=True, labelbottom=False)
    axes.set_xticks([i + 0.5 for i in range(columns)], labels_of(attention.src_tokens), rotation=90)
    axes.set_yticks([i + 0.5 for i in range(rows)], labels_of(attention.tgt_tokens))
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontproperties=font, parse_math=False)  # a token may be "$"
    _draw_word_bars(axes, attention)

    scale = figure.add_axes(_box(figure, x + columns * CELL + MARGIN, y, 0.1, min(rows, 4) * CELL))
    figure.colorbar(cells, cax=scale)
    scale.set_yticks([0, 1], ["0", "1"], fontproperties=font)
    scale.tick_params(length=0)
    scale.spines[:].set_visible(False)


def _draw_word_bars(axes: "Axes", attention: AttentionMap) -> None:
    """Join the labels of each word's tokens by a bar beside the cells."""
    beside = -0.5 * LABEL_GAP / CELL
    style: dict[str, Any] = {"color": "#9aa0a8", "linewidth": 1.2, "clip_on": False}
    for word in word_spans(attention.src_tokens):
        axes.plot((word.start + 0.15, word.stop - 0.15), (beside, beside), **style)
    for word in word_spans(attention.tgt_tokens):
        axes.plot((beside, beside), (word.start + 0.15, word.stop - 0.15), **style)


def _box(
    figure: "Figure", x: float, y: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Convert inches from the upper left corner to fractions from the lower left."""
    across, down = figure.get_size_inches()
    return x / across, 1 - (y + height) / down, width / across, height / down
