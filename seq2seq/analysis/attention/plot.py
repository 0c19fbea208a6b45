"""Plots of attention weights: for each target token, the source tokens that it attends to."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from seq2seq.analysis.attention.figure import draw
from seq2seq.analysis.attention.html import page
from seq2seq.analysis.attention.maps import AttentionMap
from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import output_file, write_errors

SUFFIXES = (".html", ".png", ".svg")
MAX_TABLES = 200  # sentences in an HTML page
MAX_PANELS = 8  # sentences in a PNG or SVG file


def check_plot_path(path: Path) -> None:
    """Raise UserError for a path that `write_attention` cannot write, before any work.

    It has another suffix, its folder is missing, or matplotlib is missing and needed.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: unknown suffix {suffix!r}. Use .html, .png, .svg or .json.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}. Create it first.")
    if suffix != ".html" and importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            f"{path}: {suffix} needs matplotlib. Run: pip install matplotlib, or write .html."
        )


def write_attention(
    translations: Sequence[Translation], sources: Sequence[str], path: Path
) -> list[str]:
    """Plot the attention weights of translations into one file; return notes for the user.

    Translations without weights (of blank lines) are left out. The file is written atomically.

    Raises:
        UserError: as `check_plot_path` does, or no translation has weights.
        RunError: the file cannot be written.
    """
    check_plot_path(path)
    maps = [
        AttentionMap(source, each.text, each.src_tokens, each.tgt_tokens, each.attention_weights)
        for source, each in zip(sources, translations, strict=True)
        if each.attention_weights
    ]
    if not maps:
        raise UserError(f"{path}: no attention to plot: every sentence is blank or too long")
    suffix = path.suffix.lower()
    limit = MAX_TABLES if suffix == ".html" else MAX_PANELS
    notes = []
    if len(maps) > limit:
        notes.append(
            f"{path} shows the first {limit} of {len(maps)} sentences; write .json for all"
        )
    if suffix == ".html":
        content = page(maps[:limit]).encode("utf-8")
    else:
        content, font_notes = draw(maps[:limit], suffix)
        notes += font_notes
    with write_errors(path), output_file(path) as file:
        file.write(content)
    return notes
