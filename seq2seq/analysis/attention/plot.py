"""Pictures of attention: for each target piece, where in the source the decoder looked."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from seq2seq.analysis.attention.figure import picture
from seq2seq.analysis.attention.html import page
from seq2seq.analysis.attention.maps import AttentionMap, Panel
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import output_path

SUFFIXES = (".html", ".png", ".svg")
MAX_TABLES = 200  # sentences in one HTML page
MAX_PANELS = 8  # sentences in one PNG or SVG


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
            f"{path}: {suffix} needs matplotlib: pip install matplotlib (.html does without)"
        )


def write_attention(maps: Sequence[AttentionMap], sources: Sequence[str], path: Path) -> list[str]:
    """Draw the attention of each sentence into one file and return notes for the user.

    `sources` are the source sentences, shown above the panels. Sentences without weights (blank
    lines) are left out. The file appears whole or not at all.

    Raises:
        UserError: as `check_picture_path` does, or no sentence has weights.
        RunError: the file cannot be written.
    """
    check_picture_path(path)
    panels = [Panel(*pair) for pair in zip(sources, maps, strict=True) if pair[1].weights]
    if not panels:
        raise UserError(
            f"{path}: there is no attention to draw: every sentence is blank, or too long for it"
        )
    limit = MAX_TABLES if path.suffix.lower() == ".html" else MAX_PANELS
    shown = panels[:limit]
    notes = []
    if len(panels) > limit:
        notes.append(f"{path} shows the first {limit} of {len(panels)} sentences; .json holds all")
    if path.suffix.lower() == ".html":
        content = page(shown).encode("utf-8")
    else:
        content, font_notes = picture(shown, path.suffix.lower())
        notes += font_notes
    try:
        with output_path(path) as target:
            target.write_bytes(content)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror or error})") from None
    return notes
