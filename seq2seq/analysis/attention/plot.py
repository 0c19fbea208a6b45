"""Plots of attention weights: for each target token, the source tokens that it attends to."""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.analysis.attention.maps import AttentionMap, maps_of
from seq2seq.analysis.charts import installed_families, save, widest
from seq2seq.data.lines import is_blank
from seq2seq.inference.heat_map import heat_map
from seq2seq.inference.token_labels import labels_of, word_spans
from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.extras import not_installed
from seq2seq.runtime.files import output_file, write_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

SUFFIXES = (".html", ".png", ".svg", ".pdf")
MAX_TABLES = 200  # sentences in an HTML page
MAX_PANELS = 8  # sentences in a PNG, SVG or PDF file
MAX_CELLS = 100_000  # cells of one sentence; a cell takes 100 bytes of HTML
CELL = 0.28  # inches, as the lengths below
MARGIN = 0.15
LABEL_GAP = 0.12  # between labels and cells: room for the word bars
LINE = 0.19
GREY = "#5c636e"
SCALE = 0.7  # width of the colour scale with its labels


def check_plot_path(path: Path) -> None:
    """Raise UserError for a path that `write_attention` cannot write, before any work.

    It has another suffix, its folder is missing, or matplotlib is missing and needed.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(
            f"{path}: unknown suffix {suffix!r}. Use .html, .png, .svg, .pdf, .json or .align."
        )
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}. Create it first.")
    if suffix != ".html" and importlib.util.find_spec("matplotlib") is None:
        raise not_installed(f"{path}: {suffix} needs matplotlib", "plot", ", or write .html.")


def write_attention(
    translations: Iterable[Translation], sources: Sequence[str], path: Path
) -> list[str]:
    """Plot the attention weights of translations into one file; return notes for the user.

    Translations without weights (of blank lines) are left out. A line in parts has one map per
    part, and a translation with weights of each head one map per head. No more translations are
    taken than are shown. A page is written map by map, so that memory does not grow with their
    number. The file is written atomically.

    Raises:
        UserError: as `check_plot_path` does, or no translation has weights.
        RunError: the file cannot be written.
    """
    check_plot_path(path)
    suffix = path.suffix.lower()
    limited = _Limited(MAX_TABLES if suffix == ".html" else MAX_PANELS)
    pairs = zip(translations, sources, strict=False)  # not all may be taken
    maps = limited.first_of(chain.from_iterable(starmap(maps_of, pairs)))
    first = next(maps, None)
    if first is None:
        raise UserError(f"{path}: no attention to plot: every sentence is blank or too long")
    notes: list[str] = []
    with write_errors(path), output_file(path) as file:
        if suffix == ".html":
            for text in page(chain([first], maps)):
                file.write(text.encode("utf-8"))
        else:
            content, notes = draw([first, *maps], suffix)
            file.write(content)
    return [*limited.notes(path, sum(not is_blank(source) for source in sources)), *notes]


def page(maps: Iterable[AttentionMap]) -> Iterator[str]:
    """Yield the parts of a self-contained page with a table for each map."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    yield head
    for attention in maps:
        source, *texts = map(escape, attention.headings())
        yield f'<section>\n<h2 dir="auto">{source}</h2>\n'
        yield "".join(f'<p dir="auto">{text}</p>\n' for text in texts)
        yield heat_map(attention.src_tokens, attention.tgt_tokens, attention.weights)
        yield "\n</section>\n"
    yield foot


class _Limited:
    """Maps that a file has room for."""

    def __init__(self, limit: int) -> None:
        self._limit, self._more, self._large, self._heads = limit, False, 0, False

    def first_of(self, maps: Iterable[AttentionMap]) -> Iterator[AttentionMap]:
        """Yield maps of at most MAX_CELLS cells, up to the limit."""
        number = 0
        for attention in maps:
            self._heads = self._heads or bool(attention.head)
            if attention.weights.size > MAX_CELLS:
                self._large += 1
                continue
            if number == self._limit:
                self._more = True
                return
            number += 1
            yield attention

    def notes(self, path: Path, sentences: int) -> list[str]:
        """Return notes on what is not shown of a number of sentences."""
        notes = []
        if self._more:
            what = f"of {sentences} sentences" if sentences > self._limit else "parts of sentences"
            if self._heads:
                what = "maps, one for each head of a sentence"
            notes.append(f"{path} shows the first {self._limit} {what}; write .json for all")
        if self._large:
            notes.append(
                f"{path} leaves out {self._large} sentences of more than {MAX_CELLS:,} cells; "
                "write .json for all"
            )
        return notes


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
