"""Attention maps as a PNG, SVG or PDF figure; only the drawing functions import matplotlib."""

import math
import unicodedata
import warnings
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any

from seq2seq.analysis.attention.maps import AttentionMap
from seq2seq.inference.token_labels import label_of, labels_of, starts_word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontEntry, FontProperties

DPI = 150
MAX_PIXELS = 60_000_000  # PNG size; needs 240 MB while drawn
MAX_SIDE = 30_000  # pixels
READABLE_DPI = 60

FONT = "DejaVu Sans"  # bundled with matplotlib
CELL = 0.28  # inches, like all lengths below
MARGIN = 0.15
LABEL_GAP = 0.12  # between labels and cells: room for the word bars
LINE = 0.19
GREY = "#5c636e"
SCALE = 0.7  # width of the colour scale with its labels


def draw(maps: Sequence[AttentionMap], suffix: str) -> tuple[bytes, list[str]]:
    """Draw maps one below the other; return the file's content and notes on its legibility."""
    import matplotlib

    characters = _characters(maps)
    families, missing = _fonts(characters)
    notes = _font_notes(characters, missing, suffix) if suffix != ".svg" else []  # viewer's fonts
    buffer = BytesIO()
    # Keep text as text, which browsers shape and search; make element ids reproducible.
    options: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "attention"}
    options["pdf.fonttype"] = 42  # TrueType, which journals ask for
    with matplotlib.rc_context(options), warnings.catch_warnings():
        # Matplotlib warns for each glyph; `_font_notes` summarises.
        warnings.filterwarnings("ignore", message=".* missing from|.* does not support .* natively")
        figure = _figure(maps, families)
        if suffix == ".png":
            dpi = _dots_per_inch(*figure.get_size_inches())
            if dpi < READABLE_DPI:
                notes.append(
                    f"at {dpi:.0f} dpi the PNG is hard to read; write .svg or .html instead"
                )
            figure.savefig(buffer, format="png", dpi=dpi)
        else:
            date = {".svg": "Date", ".pdf": "CreationDate"}[suffix]
            figure.savefig(buffer, format=suffix[1:], metadata={date: None})
    return buffer.getvalue(), notes


def _dots_per_inch(width: float, height: float) -> float:
    """Return the highest resolution within the limits (matplotlib fails at 65,536 pixels)."""
    return min(DPI, MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))


def _figure(maps: Sequence[AttentionMap], families: list[str]) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=families, size=9)
    left = MARGIN + _widest([label for m in maps for label in labels_of(m.tgt_tokens)], font)
    left += LABEL_GAP
    tops = [
        MARGIN + LINE * len(m.headings()) + _widest(labels_of(m.src_tokens), font) + LABEL_GAP
        for m in maps
    ]
    heights = [top + CELL * len(m.tgt_tokens) + MARGIN for m, top in zip(maps, tops, strict=True)]
    grid_width = CELL * max(len(m.src_tokens) for m in maps)
    heading_width = _widest([text for m in maps for text in m.headings()], font)
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
    across = [(span, (beside, beside)) for span in _bars(attention.src_tokens)]
    down = [((beside, beside), span) for span in _bars(attention.tgt_tokens)]
    for xs, ys in across + down:
        axes.plot(xs, ys, color="#9aa0a8", linewidth=1.2, clip_on=False)


def _bars(tokens: Sequence[str]) -> list[tuple[float, float]]:
    """Return the extent of each word in cells, slightly shortened."""
    starts = [index for index in range(len(tokens)) if starts_word(tokens, index)]
    ends = [*starts[1:], len(tokens)]
    return [(start + 0.15, end - 0.15) for start, end in zip(starts, ends, strict=True)]


def _box(
    figure: "Figure", x: float, y: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Convert inches from the upper left corner to fractions from the lower left."""
    across, down = figure.get_size_inches()
    return x / across, 1 - (y + height) / down, width / across, height / down


def _widest(texts: Sequence[str], font: "FontProperties") -> float:
    """Return the width of the widest text in inches."""
    from matplotlib.textpath import text_to_path

    return max(text_to_path.get_text_width_height_descent(t, font, False)[0] for t in texts) / 72


def _characters(maps: Sequence[AttentionMap]) -> set[str]:
    """Return the visible characters of headings and labels."""
    texts = ((*m.headings(), *map(label_of, (*m.src_tokens, *m.tgt_tokens))) for m in maps)
    text = "".join(chain.from_iterable(texts))
    return {character for character in text if unicodedata.category(character)[0] not in "CZ"}


def _fonts(characters: set[str]) -> tuple[list[str], set[str]]:
    """Choose installed fonts for the characters; also return those that no font contains."""
    from matplotlib.font_manager import findfont, fontManager

    families, missing = [FONT], characters - _covered_by(findfont(FONT), characters)
    if missing:
        missing = _add_families(families, missing, fontManager.ttflist)
    if missing and (new := _new_fonts()):
        missing = _add_families(families, missing, new)
    return [*families, "sans-serif"], missing


def _add_families(families: list[str], missing: set[str], fonts: "Sequence[FontEntry]") -> set[str]:
    """Append the families that contain missing characters; return those that none contains."""
    coverage = {
        entry.name: _covered_by(entry.fname, missing)
        for entry in fonts
        if entry.style == "normal" and entry.weight == 400 and "Last Resort" not in entry.name
    }
    # Ties go to Japanese fonts, whose Han characters serve Chinese better than the reverse.
    for name in sorted(coverage, key=lambda n: (-len(coverage[n]), "JP" not in n, n)):
        if coverage[name] & missing:
            families.append(name)
            missing = missing - coverage[name]
    return missing


def _new_fonts() -> "list[FontEntry]":
    """Add the fonts installed since matplotlib cached its list of fonts; return them."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {entry.fname for entry in fontManager.ttflist}
    before = len(fontManager.ttflist)
    for path in sorted(set(findSystemFonts()) - known):
        with suppress(OSError, RuntimeError):  # unreadable for FreeType
            fontManager.addfont(path)
    return list(fontManager.ttflist[before:])


def _covered_by(file: str, characters: set[str]) -> set[str]:
    from matplotlib.font_manager import get_font

    try:
        font = get_font(file)
    except (OSError, RuntimeError):  # removed, or unreadable for FreeType
        return set()
    return {character for character in characters if font.get_char_index(ord(character))}


def _font_notes(characters: set[str], missing: set[str], suffix: str) -> list[str]:
    import matplotlib

    notes = []
    if missing:
        sample = " ".join(sorted(missing)[:8]) + (" ..." if len(missing) > 8 else "")
        notes.append(
            f"no installed font contains {sample}: the {suffix} shows {len(missing)} characters as "
            "boxes; write .html or .svg instead"
        )
    shaped = {"Mc", "Mn", "R", "AL"}  # combining marks, right-to-left scripts
    kinds = {
        kind for c in characters for kind in (unicodedata.category(c), unicodedata.bidirectional(c))
    }
    if shaped & kinds and matplotlib.__version_info__ < (3, 11):
        notes.append(
            f"matplotlib {matplotlib.__version__} misplaces vowel signs and right-to-left text; "
            "write .html or .svg instead, or install matplotlib 3.11"
        )
    return notes
