"""Fonts and files of figures; only the functions import matplotlib."""

import math
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontEntry, FontProperties

DPI = 150
MAX_PIXELS = 60_000_000  # PNG size; needs 240 MB while drawn
MAX_SIDE = 30_000  # pixels
READABLE_DPI = 60
FONT = "DejaVu Sans"  # bundled with matplotlib
# Keep text as text, which browsers shape and search; make element ids reproducible.
_OPTIONS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "seq2seq"}
_OPTIONS["pdf.fonttype"] = 42  # TrueType, which journals ask for


def save(figure: "Figure", suffix: str, instead: str) -> tuple[bytes, list[str]]:
    """Return the content of a PNG, SVG or PDF file, equal for equal figures, and notes on it.

    `instead` says how to get a format that suits any size and script.
    """
    import matplotlib

    buffer, notes = BytesIO(), []
    with matplotlib.rc_context(_OPTIONS), _without_glyph_warnings():
        if suffix == ".png":
            dpi = _dots_per_inch(*figure.get_size_inches())
            if dpi < READABLE_DPI:
                notes.append(f"at {dpi:.0f} dpi the PNG is hard to read; {instead} instead")
            figure.savefig(buffer, format="png", dpi=dpi)
        else:
            date = {".svg": "Date", ".pdf": "CreationDate"}[suffix]
            figure.savefig(buffer, format=suffix[1:], metadata={date: None})
    return buffer.getvalue(), notes


def _dots_per_inch(width: float, height: float) -> float:
    """Return the highest resolution within the limits (matplotlib fails at 65,536 pixels)."""
    return min(DPI, MAX_SIDE / max(width, height), math.sqrt(MAX_PIXELS / (width * height)))


def widest(texts: Iterable[str], font: "FontProperties") -> float:
    """Return the width of the widest text in inches."""
    from matplotlib.textpath import text_to_path

    with _without_glyph_warnings():
        widths = (text_to_path.get_text_width_height_descent(t, font, False)[0] for t in texts)
        return max(widths, default=0.0) / 72


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Hide a warning of matplotlib for each glyph; the notes of `choose_fonts` summarise them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* missing from|.* does not support .* natively")
        yield


def choose_fonts(texts: Iterable[str], suffix: str, instead: str) -> tuple[list[str], list[str]]:
    """Choose installed fonts that contain the characters of texts; return them and notes.

    The viewer of an SVG has fonts of its own. `instead` is that of `save`.
    """
    text = set(chain.from_iterable(texts))
    characters = {each for each in text if unicodedata.category(each)[0] not in "CZ"}
    families, missing = _fonts(characters)
    notes = _font_notes(characters, missing, suffix, instead) if suffix != ".svg" else []
    return families, notes


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


def _font_notes(characters: set[str], missing: set[str], suffix: str, instead: str) -> list[str]:
    import matplotlib

    notes = []
    if missing:
        sample = " ".join(sorted(missing)[:8]) + (" ..." if len(missing) > 8 else "")
        notes.append(
            f"no installed font contains {sample}: the {suffix} shows {len(missing)} characters as "
            f"boxes; {instead} instead"
        )
    shaped = {"Mc", "Mn", "R", "AL"}  # combining marks, right-to-left scripts
    kinds = {
        kind for c in characters for kind in (unicodedata.category(c), unicodedata.bidirectional(c))
    }
    if shaped & kinds and matplotlib.__version_info__ < (3, 11):
        notes.append(
            f"matplotlib {matplotlib.__version__} misplaces vowel signs and right-to-left text; "
            f"{instead} instead, or install matplotlib 3.11"
        )
    return notes
