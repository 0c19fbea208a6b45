"""Attention maps in files and on a terminal: which source tokens each target token attends to."""

import importlib.util
import unicodedata
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference import attention_map, nbest
from seq2seq.inference.attention_map import AttentionMap, labels_of, word_weights
from seq2seq.inference.translation import Translation
from seq2seq.runtime import figures, files
from seq2seq.runtime.errors import UserError, not_installed

SUFFIXES = (".html", ".png", ".svg", ".pdf")
MAX_TABLES = 200  # sentences in an HTML page
MAX_PANELS = 8  # sentences in a PNG, SVG or PDF file
MAX_CELLS = 100_000  # cells of one sentence; a cell takes 100 bytes of HTML
_SHADES = " \u2591\u2592\u2593\u2588"  # none, light, medium, dark and full shade
_BOUNDS = 0.1, 0.3, 0.5, 0.7  # weights from which the next shade is used


def check_plot_path(path: Path) -> None:
    """Raise UserError for a path that `write_attention` cannot write, before any work."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        formats = ".html, .png, .svg, .pdf, .json or .align"
        raise UserError(f"{path}: unknown suffix {suffix!r}. Use {formats}.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}. Create it first.")
    if suffix != ".html" and importlib.util.find_spec("matplotlib") is None:
        raise not_installed(f"{path}: {suffix} needs matplotlib", "plot", ", or write .html.")


def write_attention(
    translations: Iterable[Translation], sources: Sequence[str], path: Path, model: str = ""
) -> list[str]:
    """Plot the attention weights of translations into one file; return notes for the user.

    Translations without weights (of blank lines) are left out, others have one map per part or
    head. No more translations are taken than are shown. A page is written map by map, so that
    memory does not grow with their number, and names the model. The file is written atomically.

    Raises UserError as `check_plot_path` does, or if no translation has weights, and RunError if
    the file cannot be written.
    """
    check_plot_path(path)
    suffix = path.suffix.lower()
    limit, notes = MAX_TABLES if suffix == ".html" else MAX_PANELS, list[str]()
    pairs = zip(translations, sources, strict=False)  # not all may be taken
    of_each = (translation.attention_maps(source) for translation, source in pairs)
    maps = _shown(chain.from_iterable(of_each), limit, path, notes)
    first = next(maps, None)
    if first is None:
        raise UserError(f"{path}: no attention to plot: every sentence is blank or too long")
    with files.write_errors(path), files.output_file(path) as file:
        if suffix == ".html":
            for text in page(chain([first], maps), model):
                file.write(text.encode("utf-8"))
        else:
            content, more = figures.save(attention_map.map_figure([first, *maps]), suffix)
            file.write(content)
            notes += more
    return notes


def page(maps: Iterable[AttentionMap], model: str = "") -> Iterator[str]:
    """Yield the parts of a self-contained page with a table for each map."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    yield head.replace("$style", attention_map.style()).replace(
        "$model", escape(f" of {model}" if model else "")
    )
    for attention in maps:
        source, *texts = map(escape, attention.headings())
        yield f'<section>\n<h2 dir="auto">{source}</h2>\n'
        yield "".join(f'<p dir="auto">{text}</p>\n' for text in texts)
        yield attention_map.heat_map(attention)
        yield "\n</section>\n"
    yield foot


def _shown(
    maps: Iterable[AttentionMap], limit: int, path: Path, notes: list[str]
) -> Iterator[AttentionMap]:
    """Yield maps of at most MAX_CELLS cells, up to the limit; add notes on those left out."""
    count = large = 0
    for attention in maps:
        if attention.weights.size > MAX_CELLS:
            large += 1
        elif count == limit:
            notes.append(f"{path} shows the first {limit} maps; write .json for all")
            break
        else:
            count += 1
            yield attention
    if large:
        left_out = f"{large} maps of more than {MAX_CELLS:,} cells"
        notes.append(f"{path} leaves out {left_out}; write .json for all")


def map_of(translation: Translation, source: str) -> AttentionMap:
    """Return one map of a translation; it is empty if the translation has no weights."""
    tokens, weights = (translation.src_tokens, translation.tokens), translation.attention
    if weights is None:
        tokens, weights = ([], []), np.zeros((0, 0), np.float32)
    return AttentionMap(source, translation.text, *tokens, weights)


def translation_by_words(translation: Translation) -> Translation:
    """Return the best entry with the tokens of each word merged, their log-probabilities summed."""
    best = translation.n_best[0]
    parts = list(attention_map.part_maps(best, translation.src_tokens))
    if not parts:
        return translation
    means = [(part.weights, part) for part, _ in parts]
    heads = [(heads, part) for part, heads in parts if heads is not None]
    spans = attention_map.word_spans(best.tokens)
    merged = replace(
        best,
        tokens=attention_map.words_of_tokens(best.tokens),
        log_probs=[sum(best.log_probs[index] for index in span) for span in spans],
        attention_blocks=_blocks_by_words(means),
        head_blocks=_blocks_by_words(heads) if heads else None,
    )
    src_tokens = attention_map.words_of_tokens(translation.src_tokens)
    return replace(translation, n_best=[merged], src_tokens=src_tokens)


def _blocks_by_words(parts: Iterable[tuple[NDArray[Any], AttentionMap]]) -> nbest.AttentionBlocks:
    return nbest.AttentionBlocks([word_weights(*part).astype(np.float32) for part in parts])


def as_text(attention: AttentionMap, limit: int | None = None) -> str:
    """Draw a map: a row for each target token, a column for each source token, numbered below.

    Beyond `limit` columns of the terminal the further source tokens follow in maps below.
    """
    labels = labels_of(attention.tgt_tokens)
    width, columns = max(map(_width, labels)), len(attention.src_tokens)
    cell = len(str(columns)) + 1
    room = columns if limit is None else max(1, (limit - width - 3) // cell)
    lines = list(attention.headings())
    for first in range(0, columns, room):
        lines.append("")
        for label, weights in zip(labels, attention.weights, strict=True):
            shades = (_SHADES[bisect(_BOUNDS, weight)] for weight in weights[first : first + room])
            cells = "".join(shade * cell for shade in shades)
            lines.append(f"{' ' * (width - _width(label))}{label} \u2502{cells}\u2502")
        numbers = range(first + 1, min(first + room, columns) + 1)
        lines.append(" " * (width + 2) + "".join(f"{n:>{cell}}" for n in numbers))
    columns_of_source = enumerate(labels_of(attention.src_tokens), start=1)
    lines.append("  ".join(f"{number} {label}" for number, label in columns_of_source))
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    zero = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return len(text) + wide - zero
