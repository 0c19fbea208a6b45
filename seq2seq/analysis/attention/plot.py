"""Files of attention maps: for each target token, the source tokens that it attends to."""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain
from pathlib import Path

from seq2seq.data.lines import is_blank
from seq2seq.inference.attention_map import AttentionMap, heat_map, style
from seq2seq.inference.map_figure import map_figure
from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError, not_installed
from seq2seq.runtime.figures import save
from seq2seq.runtime.files import output_file, write_errors

SUFFIXES = (".html", ".png", ".svg", ".pdf")
MAX_TABLES = 200  # sentences in an HTML page
MAX_PANELS = 8  # sentences in a PNG, SVG or PDF file
MAX_CELLS = 100_000  # cells of one sentence; a cell takes 100 bytes of HTML


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
    translations: Iterable[Translation], sources: Sequence[str], path: Path, model: str = ""
) -> list[str]:
    """Plot the attention weights of translations into one file; return notes for the user.

    Translations without weights (of blank lines) are left out. A line in parts has one map per
    part, and a translation with weights of each head one map per head. No more translations are
    taken than are shown. A page is written map by map, so that memory does not grow with their
    number, and names the model. The file is written atomically.

    Raises:
        UserError: as `check_plot_path` does, or no translation has weights.
        RunError: the file cannot be written.
    """
    check_plot_path(path)
    suffix = path.suffix.lower()
    limited = _Limited(MAX_TABLES if suffix == ".html" else MAX_PANELS)
    pairs = zip(translations, sources, strict=False)  # not all may be taken
    maps = limited.first_of(
        chain.from_iterable(translation.attention_maps(source) for translation, source in pairs)
    )
    first = next(maps, None)
    if first is None:
        raise UserError(f"{path}: no attention to plot: every sentence is blank or too long")
    notes: list[str] = []
    with write_errors(path), output_file(path) as file:
        if suffix == ".html":
            for text in page(chain([first], maps), model):
                file.write(text.encode("utf-8"))
        else:
            content, notes = save(map_figure([first, *maps]), suffix)
            file.write(content)
    return [*limited.notes(path, sum(not is_blank(source) for source in sources)), *notes]


def page(maps: Iterable[AttentionMap], model: str = "") -> Iterator[str]:
    """Yield the parts of a self-contained page with a table for each map."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    yield head.replace("$style", style()).replace("$model", escape(f" of {model}" if model else ""))
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
