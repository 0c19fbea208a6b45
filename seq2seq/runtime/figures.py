"""Figures by matplotlib as files: fonts for every script, resolution, and notes on legibility."""

import importlib.util
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

from seq2seq.runtime.console import counted
from seq2seq.runtime.extras import install_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

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
OPTIONS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "seq2seq",
    "text.hinting": "none",
}
OPTIONS["pdf.fonttype"] = 42  # TrueType, which journals ask for


def matplotlib_note() -> str | None:
    """Return how to install matplotlib if it is missing."""
    if importlib.util.find_spec("matplotlib") is not None:
        return None
    return f"figures need matplotlib. Run: {install_command('plot')}"


def installed_families() -> list[str]:
    """Return the families that matplotlib finds on this machine."""
    from matplotlib.font_manager import fontManager

    names = {entry.name for entry in fontManager.ttflist}
    return [family for family in FAMILIES if family in names]


def save(figure: "Figure", suffix: str) -> tuple[bytes, list[str]]:
    """Return the content of a PNG, SVG or PDF file, equal for equal figures, and notes on it."""
    import matplotlib

    buffer, notes, dpi = BytesIO(), list[str](), float(DPI)
    with matplotlib.rc_context(OPTIONS), _missing_glyphs() as missing:
        if suffix == ".png":
            dpi = _dots_per_inch(*figure.get_size_inches())
            figure.savefig(buffer, format="png", dpi=dpi)
        else:
            date = {".svg": "Date", ".pdf": "CreationDate"}[suffix]
            figure.savefig(buffer, format=suffix[1:], metadata={date: None})
    if dpi < READABLE_DPI:
        notes.append(f"at {dpi:.0f} dpi the PNG is hard to read; {INSTEAD}")
    if missing and suffix != ".svg":  # its viewer has fonts of its own
        notes.append(
            f"no font of matplotlib's contains {counted(len(missing), 'character')}, shown as "
            f"boxes in the {suffix}; {INSTEAD}"
        )
    return buffer.getvalue(), notes


def _dots_per_inch(width: float, height: float) -> float:
    """Return the highest resolution within the limits (matplotlib fails at 65,536 pixels)."""
    return min(DPI, MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))


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
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
