"""Attention as PNG or SVG, drawn by matplotlib, which only the functions that draw import."""

import math
import unicodedata
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from seq2seq.analysis.attention.maps import AttentionMap, Panel, headings_of, labels_of, starts_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

DPI = 150
MAX_PIXELS = 60_000_000  # of a PNG: 240 MB while it is drawn
MAX_SIDE = 30_000  # of them
READABLE = 60  # dots an inch

FONT = "DejaVu Sans"  # comes with matplotlib
CELL = 0.28  # inches, as all lengths below
MARGIN = 0.15
LABEL_GAP = 0.12  # between labels and cells: room for the bars that hold a word together
LINE = 0.19
HEADING = 2 * LINE
SOFT = "#5c636e"
SCALE = 0.7  # the colour scale with its numbers


def picture(panels: Sequence[Panel], suffix: str) -> tuple[bytes, list[str]]:
    """Draw the panels below one another; return the file's content and notes on its fonts."""
    import matplotlib

    characters = _characters(panels)
    families, missing = _fonts(characters)
    notes = _font_notes(characters, missing) if suffix == ".png" else []  # SVG: the viewer's fonts
    buffer = BytesIO()
    # Text stays text, which browsers shape and search, and the same input gives the same ids.
    options: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "attention"}
    with matplotlib.rc_context(options), warnings.catch_warnings():
        # Notes of ours say what these warnings say a glyph at a time.
        warnings.filterwarnings("ignore", message=".* missing from|.* does not support .* natively")
        figure = _figure(panels, families)
        if suffix == ".png":
            dpi = _dots_per_inch(*figure.get_size_inches())
            if dpi < READABLE:
                notes.append(
                    f"at {dpi:.0f} dots an inch the PNG is hard to read; write .svg or .html"
                )
            figure.savefig(buffer, format="png", dpi=dpi)
        else:
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue(), notes


def _dots_per_inch(width: float, height: float) -> float:
    """As many as memory and matplotlib, which gives up at sides of 65,536, can bear."""
    return min(DPI, MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))


def _figure(panels: Sequence[Panel], families: list[str]) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=families, size=9)
    maps = [panel.attention for panel in panels]
    left = MARGIN + _widest([label for m in maps for label in labels_of(m.tgt_tokens)], font)
    left += LABEL_GAP
    tops = [MARGIN + HEADING + _widest(labels_of(m.src_tokens), font) + LABEL_GAP for m in maps]
    heights = [top + CELL * len(m.tgt_tokens) + MARGIN for m, top in zip(maps, tops, strict=True)]
    grid_width = CELL * max(len(m.src_tokens) for m in maps)
    heading_width = _widest([text for panel in panels for text in headings_of(panel)], font)
    width = max(left + grid_width + SCALE, heading_width + 2 * MARGIN)

    figure = Figure(figsize=(width, sum(heights)))
    y = 0.0
    for panel, top, height in zip(panels, tops, heights, strict=True):
        _draw_headings(figure, panel, y + MARGIN, font)
        _draw_panel(figure, panel.attention, left, y + top, font)
        y += height
    return figure


def _draw_headings(figure: "Figure", panel: Panel, y: float, font: "FontProperties") -> None:
    width, height = figure.get_size_inches()
    for line, (text, colour) in enumerate(zip(headings_of(panel), (SOFT, "black"), strict=True)):
        figure.text(
            MARGIN / width,
            1 - (y + line * LINE) / height,
            text,
            color=colour,
            fontproperties=font,
            va="top",
            parse_math=False,
        )


def _draw_panel(
    figure: "Figure", attention: AttentionMap, x: float, y: float, font: "FontProperties"
) -> None:
    """Draw the cells with their upper left corner at (x, y) inches from the figure's."""
    columns, rows = len(attention.src_tokens), len(attention.tgt_tokens)
    axes = figure.add_axes(_box(figure, x, y, columns * CELL, rows * CELL))
    cells = axes.pcolormesh(
        attention.weights, vmin=0, vmax=1, cmap="Blues", edgecolors="#e6e8ec", linewidth=0.5
    )
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=72 * LABEL_GAP, top=True, labeltop=True, labelbottom=False)
    axes.set_xticks(_centres(columns), labels_of(attention.src_tokens), rotation=90)
    axes.set_yticks(_centres(rows), labels_of(attention.tgt_tokens))
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontproperties=font, parse_math=False)  # a piece may be "$"
    _draw_word_bars(axes, attention)

    scale = figure.add_axes(_box(figure, x + columns * CELL + MARGIN, y, 0.1, min(rows, 4) * CELL))
    figure.colorbar(cells, cax=scale)
    scale.set_yticks([0, 1], ["0", "1"], fontproperties=font)
    scale.tick_params(length=0)
    scale.spines[:].set_visible(False)


def _draw_word_bars(axes: "Axes", attention: AttentionMap) -> None:
    """Hold the labels of a word's pieces together by a bar beside the cells."""
    beside = -0.5 * LABEL_GAP / CELL
    across = [(span, (beside, beside)) for span in _bars(attention.src_tokens)]
    down = [((beside, beside), span) for span in _bars(attention.tgt_tokens)]
    for xs, ys in across + down:
        axes.plot(xs, ys, color="#9aa0a8", linewidth=1.2, clip_on=False)


def _bars(pieces: Sequence[str]) -> list[tuple[float, float]]:
    """Give each word's extent in cells, a little short of its ends."""
    starts = [index for index in range(len(pieces)) if starts_word(pieces, index)]
    ends = [*starts[1:], len(pieces)]
    return [(start + 0.15, end - 0.15) for start, end in zip(starts, ends, strict=True)]


def _box(
    figure: "Figure", x: float, y: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Turn inches from the upper left corner into matplotlib's fractions from the lower left."""
    across, down = figure.get_size_inches()
    return x / across, 1 - (y + height) / down, width / across, height / down


def _centres(count: int) -> list[float]:
    return [index + 0.5 for index in range(count)]


def _widest(texts: Sequence[str], font: "FontProperties") -> float:
    """Measure the widest text in inches."""
    from matplotlib.textpath import text_to_path

    return max(text_to_path.get_text_width_height_descent(t, font, False)[0] for t in texts) / 72


# Fonts


def _characters(panels: Sequence[Panel]) -> set[str]:
    """Collect the visible characters of the panels."""
    texts = [text for panel in panels for text in headings_of(panel)]
    for _, attention in panels:
        texts += labels_of(attention.src_tokens) + labels_of(attention.tgt_tokens)
    return {c for c in "".join(texts) if unicodedata.category(c)[0] not in "CZ"}


def _fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """Choose installed font families that show the characters; return also what none shows."""
    from matplotlib.font_manager import findfont, fontManager

    families, missing = [FONT], characters - _shown_by(findfont(FONT), characters)
    if missing:
        coverage = {
            entry.name: _shown_by(entry.fname, missing)
            for entry in fontManager.ttflist
            if entry.style == "normal" and entry.weight == 400 and "Last Resort" not in entry.name
        }
        # Among equals a Japanese font: its Han characters do for Chinese, the reverse does less.
        for name in sorted(coverage, key=lambda n: (-len(coverage[n]), "JP" not in n, n)):
            if coverage[name] & missing:
                families.append(name)
                missing -= coverage[name]
    return [*families, "sans-serif"], missing


def _shown_by(file: str, characters: set[str]) -> set[str]:
    from matplotlib.font_manager import get_font

    try:
        font = get_font(file)
    except (OSError, RuntimeError):  # a font that has gone, or that FreeType cannot read
        return set()
    return {character for character in characters if font.get_char_index(ord(character))}


def _font_notes(characters: set[str], missing: set[str]) -> list[str]:
    import matplotlib

    notes = []
    if missing:
        sample = " ".join(sorted(missing)[:8]) + (" ..." if len(missing) > 8 else "")
        notes.append(
            f"no font on this machine shows {sample}: the PNG has boxes for "
            f"{len(missing)} such characters; write .html or .svg instead"
        )
    if any(map(_needs_shaping, characters)) and matplotlib.__version_info__ < (3, 11):
        notes.append(
            f"matplotlib {matplotlib.__version__} misplaces vowel signs and right-to-left text: "
            "write .html or .svg instead, or install matplotlib 3.11"
        )
    return notes


def _needs_shaping(character: str) -> bool:
    combines = unicodedata.category(character) in {"Mc", "Mn"}
    return combines or unicodedata.bidirectional(character) in {"R", "AL"}
