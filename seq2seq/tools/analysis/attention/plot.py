"""Attention maps in files and on a terminal: which source tokens each target token attends to."""

import unicodedata
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference import attention_map, attention_table, nbest
from seq2seq.inference.attention_figure import map_figure
from seq2seq.inference.attention_map import AttentionMap, labels_of, word_weights
from seq2seq.inference.translation import Translation
from seq2seq.runtime import figures, files
from seq2seq.runtime.errors import UserError, is_installed, not_installed

SUFFIXES = (".html", ".png", ".svg", ".pdf")
MAX_TABLES = 200  # sentences in an HTML page
MAX_PANELS = 8  # sentences in a PNG, SVG or PDF file
MAX_CELLS = 100_000  # cells of one sentence; a cell takes 100 bytes of HTML
_BETWEEN = " " * 4  # maps that are side by side on a terminal
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
    if suffix != ".html" and not is_installed("matplotlib"):
        raise not_installed(f"{path}: {suffix} needs matplotlib", "plot", ", or write .html.")


Group = Sequence[AttentionMap]  # maps of one sentence or part that are shown side by side


def groups_of(
    translations: Iterable[Translation], sources: Sequence[str]
) -> Iterator[list[AttentionMap]]:
    """Yield each map of translations alone; those without weights (of blank lines) have none."""
    for translation, source in zip(translations, sources, strict=False):  # not all may be taken
        for attention in translation.attention_maps(source):
            yield [attention]


def groups_beside(
    systems: Mapping[str, Iterable[Translation]], sources: Sequence[str]
) -> Iterator[list[AttentionMap]]:
    """Yield the maps of each sentence by several models, with their names, part by part."""
    for source, *translations in zip(sources, *systems.values(), strict=False):
        maps = [translation.attention_maps(source) for translation in translations]
        for parts in zip_longest(*maps):
            yield [
                attention._replace(model=name)
                for name, attention in zip(systems, parts, strict=True)
                if attention is not None
            ]


def write_attention(
    groups: Iterable[Group], path: Path, model: str = "", percentages: bool = False
) -> list[str]:
    """Plot groups of maps into one file; return notes for the user.

    No more groups are taken than are shown. A page is written map by map, so that memory does not
    grow with their number, and names the model. The file is written atomically.

    Raises UserError as `check_plot_path` does, or if there is no map, and RunError if the file
    cannot be written.
    """
    check_plot_path(path)
    suffix = path.suffix.lower()
    limit = MAX_TABLES if suffix == ".html" else MAX_PANELS
    notes = list[str]()
    attentions = _shown(groups, limit, path, notes)
    first = next(attentions, None)
    if first is None:
        raise UserError(f"{path}: no attention to plot: every sentence is blank or too long")
    with files.write_errors(path), files.output_file(path) as file:
        if suffix == ".html":
            for text in page(chain([first], attentions), model, percentages):
                file.write(text.encode("utf-8"))
        else:
            content, figure_notes = figures.save(_figure([first, *attentions]), suffix)
            file.write(content)
            notes += figure_notes
    return notes


def _figure(groups: Sequence[Group]) -> Any:
    """Return a figure with a row for each group of the same size, or all in a grid."""
    (size, *other_sizes) = {len(group) for group in groups}
    columns = None if size == 1 or other_sizes else size
    return map_figure([*chain.from_iterable(groups)], columns)


def page(groups: Iterable[Group], model: str = "", percentages: bool = False) -> Iterator[str]:
    """Yield the parts of a self-contained page with a table for each map."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    cells = "Point at a cell for its weight."
    if percentages:
        cells = (
            f"A number is a weight in percent; below {attention_table.SHOWN:.0%} a cell has none."
        )
    yield (
        head.replace("$style", attention_table.style())
        .replace("$cells", cells)
        .replace("$model", escape(f" of {model}" if model else ""))
    )
    for group in groups:
        yield '<div class="beside">\n' if len(group) > 1 else ""
        for attention in group:
            source, *texts = map(escape, attention.headings())
            yield f'<section>\n<h2 dir="auto">{source}</h2>\n'
            yield "".join(f'<p dir="auto">{text}</p>\n' for text in texts)
            yield attention_table.heat_map(attention, percentages)
            yield "\n</section>\n"
        yield "</div>\n" if len(group) > 1 else ""
    yield foot


def _shown(groups: Iterable[Group], limit: int, path: Path, notes: list[str]) -> Iterator[Group]:
    """Yield groups of maps of at most MAX_CELLS cells, up to a limit; add notes on the others."""
    count = large = 0
    for group in groups:
        if any(attention.weights.size > MAX_CELLS for attention in group):
            large += len(group)
        elif count + len(group) > limit:
            notes.append(f"{path} shows the first {count} maps; write .json for all")
            break
        else:
            count += len(group)
            yield group
    if large:
        left_out = f"{large} maps of more than {MAX_CELLS:,} cells"
        notes.append(f"{path} leaves out {left_out}; write .json for all")


def map_of(translation: Translation, source: str) -> AttentionMap:
    """Return one map of a translation; it is empty if the translation has no weights."""
    tokens = (translation.src_tokens, translation.tokens)
    weights = translation.attention
    if weights is None:
        tokens = ([], [])
        weights = np.zeros((0, 0), np.float32)
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
    width = max(map(_width, labels))
    columns = len(attention.src_tokens)
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


def beside_as_text(group: Group, limit: int | None = None) -> str:
    """Draw maps side by side if a terminal of `limit` columns has room, else one below another."""
    texts = [as_text(attention, limit) for attention in group]
    columns = [text.splitlines() for text in texts]
    widths = [max(map(_width, lines)) for lines in columns]
    if limit is None or sum(widths) + len(_BETWEEN) * (len(group) - 1) > limit:
        return "\n\n".join(texts)
    rows = (
        _BETWEEN.join(
            line + " " * (width - _width(line)) for line, width in zip(row, widths, strict=True)
        )
        for row in zip_longest(*columns, fillvalue="")
    )
    return "\n".join(map(str.rstrip, rows))


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    zero = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return len(text) + wide - zero
