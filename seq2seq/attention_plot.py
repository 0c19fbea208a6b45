"""Pictures of attention: for each target piece, where in the source the decoder looked."""

import importlib.util
import os
import unicodedata
import warnings
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

SUFFIXES = (".html", ".png", ".svg")
END = "</s>"
WORD_START = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes the space before a word

LEGIBLE = 0.05  # an HTML cell shows no number below
HIGH = 0.62  # from here on a number is legible in the page's colour rather than in the ink's
MAX_TABLES = 200  # sentences in one HTML page
MAX_PANELS = 8  # sentences in one PNG or SVG
DPI = 150
MAX_PIXELS = 30_000  # a side of a PNG; matplotlib gives up at 65 536

FONT = "DejaVu Sans"  # comes with matplotlib
CELL = 0.28  # inches, as all lengths below
MARGIN = 0.15
LABEL_GAP = 0.12  # between labels and cells: room for the bars that hold a word together
LINE = 0.19
HEADING = 2 * LINE
SOFT = "#5c636e"
SCALE = 0.7  # the colour scale with its numbers


class AttentionMap(NamedTuple):
    """One translated sentence.

    `weights` has a row for each of `tgt_pieces` and a column for each of `src_pieces`, both with
    END, and values in 0..1. `text` is the translation.
    """

    src_pieces: list[str]
    tgt_pieces: list[str]
    weights: list[list[float]]
    text: str


class _Panel(NamedTuple):
    source: str
    attention: AttentionMap


def check_picture_path(path: Path) -> None:
    """Refuse, before any work, a path that `write_attention` could not write.

    Raises:
        UserError: another suffix, a missing folder, or no matplotlib where it is needed.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: attention can be written as .html, .png, .svg or .json")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")
    if suffix != ".html" and importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            f'{path}: {suffix} needs matplotlib: pip install "seq2seq[plot]" (.html does without)'
        )


def write_attention(maps: Sequence[AttentionMap], sources: Sequence[str], path: Path) -> list[str]:
    """Draw the attention of each sentence into one file and return notes for the user.

    `sources` are the source sentences, shown above the panels. Sentences without weights (blank
    lines) are left out. The file appears whole or not at all.

    Raises:
        UserError: as `check_picture_path` does, or no sentence has weights.
    """
    check_picture_path(path)
    panels = [_Panel(*pair) for pair in zip(sources, maps, strict=True) if pair[1].weights]
    if not panels:
        raise UserError(f"{path}: there is no attention to draw: every sentence is blank")
    limit = MAX_TABLES if path.suffix.lower() == ".html" else MAX_PANELS
    shown = panels[:limit]
    notes = []
    if len(panels) > limit:
        notes.append(f"{path} shows the first {limit} of {len(panels)} sentences; .json holds all")
    if path.suffix.lower() == ".html":
        content = _page(shown).encode("utf-8")
    else:
        content, font_notes = _picture(shown, path.suffix.lower())
        notes += font_notes
    _replace(path, content)
    return notes


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


# Labels


def _starts_word(pieces: Sequence[str], index: int) -> bool:
    return (
        index == 0 or pieces[index].startswith(WORD_START) or END in pieces[index - 1 : index + 1]
    )


def _label(piece: str) -> str:
    """Drop the mark of a word's start, and spell what would not show (or break XML) as U+XXXX."""
    text = piece.removeprefix(WORD_START) or piece
    categories = [unicodedata.category(character) for character in text]
    if all(category[0] in "CZ" for category in categories) or {"Cc", "Cs", "Cn"} & set(categories):
        return " ".join(f"U+{ord(character):04X}" for character in text)
    return text


def _labels(pieces: Sequence[str]) -> list[str]:
    return [_label(piece) for piece in pieces]


def _headings(panel: _Panel) -> tuple[str, str]:
    return _printable(panel.source), _printable(panel.attention.text)


def _printable(text: str) -> str:
    """Make a line of text safe for XML and for one line."""
    return "".join(c if unicodedata.category(c) not in {"Cc", "Cs", "Cn"} else " " for c in text)


# HTML

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c1e21; --soft: #667; --rule: #b4b8c0;
  --grid: #e6e8ec; --heat: 8 69 148; --on-heat: #fff }
@media (prefers-color-scheme: dark) { :root { --page: #14161a; --ink: #e8eaed; --soft: #9aa0a8;
  --rule: #5c636e; --grid: #2b2f36; --heat: 122 184 255; --on-heat: #0b0d10 } }
body { margin: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.4 system-ui, "Noto Sans", sans-serif }
section { margin: 0 0 2.5rem }
h2, p { text-align: left }
h2 { margin: 0; font-size: 1rem; font-weight: 600 }
p { margin: 0 0 .75rem; color: var(--soft) }
.scroll { overflow-x: auto }
table { border-collapse: separate; border-spacing: 0; print-color-adjust: exact;
  -webkit-print-color-adjust: exact }
th { font-weight: 400; white-space: nowrap; background: no-repeat var(--page);
  background-image: linear-gradient(var(--rule), var(--rule)) }
th[scope=col] { min-width: 28px; padding: 2px 0 8px; vertical-align: bottom; line-height: 28px;
  background-size: 100% 2px; background-position: 0 calc(100% - 3px) }
th[scope=col] span { display: inline-block; writing-mode: vertical-rl; vertical-align: bottom }
th[scope=row] { position: sticky; left: 0; height: 28px; padding: 0 8px 0 2px; line-height: 1;
  text-align: right; background-size: 2px 100%; background-position: calc(100% - 3px) 0 }
th[scope=col].start { background-size: calc(100% - 6px) 2px; background-position-x: 6px }
th[scope=row].start { background-size: 2px calc(100% - 6px); background-position-y: 6px }
tbody td { box-sizing: border-box; min-width: 28px; height: 28px; padding: 0; text-align: center;
  font-size: 11px; font-variant-numeric: tabular-nums;
  background: rgb(var(--heat) / var(--weight)); box-shadow: inset 0 0 0 .5px var(--grid) }
td.high { color: var(--on-heat) }
td:hover { outline: 2px solid var(--ink); outline-offset: -2px }
.scale { display: flex; gap: .5rem; align-items: center; color: var(--soft); font-size: .85rem }
.scale i { width: 8rem; height: .8rem; box-shadow: inset 0 0 0 .5px var(--rule);
  background: linear-gradient(to right, rgb(var(--heat) / 0), rgb(var(--heat) / 1));
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
"""

PAGE = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention</title>
<style>{style}</style>
</head>
<body>
<p class="scale">attention weight, 0 <i></i> 100 per cent</p>
{sections}
</body>
</html>
"""


def _page(panels: Sequence[_Panel]) -> str:
    """Lay the panels out as tables in one page that needs no other file."""
    return PAGE.format(style=STYLE, sections="\n".join(map(_section, panels)))


def _section(panel: _Panel) -> str:
    attention = panel.attention
    source, translation = map(escape, _headings(panel))
    columns = range(len(attention.src_pieces))
    head = [_header(attention.src_pieces, column, "col") for column in columns]
    rows = []
    for row in range(len(attention.tgt_pieces)):
        cells = [_cell(attention, row, column) for column in columns]
        rows.append(f"<tr>{_header(attention.tgt_pieces, row, 'row')}{''.join(cells)}</tr>")
    return "\n".join(
        [
            "<section>",
            f'<h2 dir="auto">{source}</h2>',
            f'<p dir="auto">{translation}</p>',
            '<div class="scroll"><table>',
            f"<thead><tr><td></td>{''.join(head)}</tr></thead>",
            f"<tbody>{''.join(rows)}</tbody>",
            "</table></div>",
            "</section>",
        ]
    )


def _header(pieces: Sequence[str], index: int, scope: str) -> str:
    kind = ' class="start"' if _starts_word(pieces, index) else ""
    label = escape(_label(pieces[index]))
    return f'<th scope="{scope}"{kind}><span dir="auto">{label}</span></th>'


def _cell(attention: AttentionMap, row: int, column: int) -> str:
    weight = attention.weights[row][column]
    tgt, src = _label(attention.tgt_pieces[row]), _label(attention.src_pieces[column])
    hint = escape(f"{tgt} \N{LEFTWARDS ARROW} {src}: {weight:.3f}")
    kind = ' class="high"' if weight >= HIGH else ""
    percent = f"{100 * weight:.0f}" if weight >= LEGIBLE else ""
    return f'<td{kind} style="--weight:{weight:.3f}" title="{hint}">{percent}</td>\n'


# PNG and SVG


def _picture(panels: Sequence[_Panel], suffix: str) -> tuple[bytes, list[str]]:
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
            dpi = min(DPI, MAX_PIXELS / max(figure.get_size_inches()))
            figure.savefig(buffer, format="png", dpi=dpi)
        else:
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue(), notes


def _figure(panels: Sequence[_Panel], families: list[str]) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=families, size=9)
    maps = [panel.attention for panel in panels]
    left = MARGIN + _widest([label for m in maps for label in _labels(m.tgt_pieces)], font)
    left += LABEL_GAP
    tops = [MARGIN + HEADING + _widest(_labels(m.src_pieces), font) + LABEL_GAP for m in maps]
    heights = [top + CELL * len(m.tgt_pieces) + MARGIN for m, top in zip(maps, tops, strict=True)]
    grid_width = CELL * max(len(m.src_pieces) for m in maps)
    heading_width = _widest([text for panel in panels for text in _headings(panel)], font)
    width = max(left + grid_width + SCALE, heading_width + 2 * MARGIN)

    figure = Figure(figsize=(width, sum(heights)))
    y = 0.0
    for panel, top, height in zip(panels, tops, heights, strict=True):
        _draw_headings(figure, panel, y + MARGIN, font)
        _draw_panel(figure, panel.attention, left, y + top, font)
        y += height
    return figure


def _draw_headings(figure: "Figure", panel: _Panel, y: float, font: "FontProperties") -> None:
    width, height = figure.get_size_inches()
    for line, (text, colour) in enumerate(zip(_headings(panel), (SOFT, "black"), strict=True)):
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
    columns, rows = len(attention.src_pieces), len(attention.tgt_pieces)
    axes = figure.add_axes(_box(figure, x, y, columns * CELL, rows * CELL))
    cells = axes.pcolormesh(
        attention.weights, vmin=0, vmax=1, cmap="Blues", edgecolors="#e6e8ec", linewidth=0.5
    )
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=72 * LABEL_GAP, top=True, labeltop=True, labelbottom=False)
    axes.set_xticks(_centres(columns), _labels(attention.src_pieces), rotation=90)
    axes.set_yticks(_centres(rows), _labels(attention.tgt_pieces))
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
    across = [(span, (beside, beside)) for span in _bars(attention.src_pieces)]
    down = [((beside, beside), span) for span in _bars(attention.tgt_pieces)]
    for xs, ys in across + down:
        axes.plot(xs, ys, color="#9aa0a8", linewidth=1.2, clip_on=False)


def _bars(pieces: Sequence[str]) -> list[tuple[float, float]]:
    """Give each word's extent in cells, a little short of its ends."""
    starts = [index for index in range(len(pieces)) if _starts_word(pieces, index)]
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


def _characters(panels: Sequence[_Panel]) -> set[str]:
    """Collect the visible characters of the panels."""
    texts = [text for panel in panels for text in _headings(panel)]
    for _, attention in panels:
        texts += _labels(attention.src_pieces) + _labels(attention.tgt_pieces)
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
