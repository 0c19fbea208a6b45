"""Attention maps: the weights of a line, of its parts or of its heads, by tokens or by words.

They are tables in HTML, or a figure of matplotlib: panels in a grid, with one colour bar.
"""

import math
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from itertools import pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from seq2seq.engines.engine import Array
from seq2seq.inference.nbest import NBestEntry
from seq2seq.runtime.figures import installed_families, save, widest
from seq2seq.text.characters import EOS, SPACE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties


class AttentionMap(NamedTuple):
    """Attention weights of one sentence, or of one head, with its text.

    `weights` [T, S] has a row for each target token and a column for each source token, EOS
    included, and values in 0..1.
    """

    source: str
    translation: str
    src_tokens: list[str]
    tgt_tokens: list[str]
    weights: NDArray[np.floating]
    head: str = ""  # such as "head 1 of 4"; empty for the mean of the heads
    model: str = ""  # beside whose map another one is; empty for a map alone

    def headings(self) -> tuple[str, ...]:
        """Return source, translation, model and head, if any, safe for XML and for one line."""
        further = filter(None, (legible(self.model), self.head))
        return legible(self.source), legible(self.translation), *further


Heads = NDArray[np.float32] | None  # weights [M, T, S] of M heads


def part_maps(
    entry: NBestEntry, src_tokens: list[str], sources: Sequence[str] = ()
) -> Iterator[tuple[AttentionMap, Heads]]:
    """Yield the map of each part of a translation, none if it has no weights, and its heads.

    `sources` are the parts as the line has them; tokens spell texts that are not known.
    """
    blocks = entry.attention_blocks.blocks if entry.attention_blocks else ()
    heads = entry.head_blocks.blocks if entry.head_blocks else [None] * len(blocks)
    translations = entry.part_texts if len(blocks) > 1 else (entry.text,)
    row = column = 0
    for number, (block, of_heads) in enumerate(zip(blocks, heads, strict=True)):
        below = row + block.shape[0]
        right = column + block.shape[1]
        src = src_tokens[column:right]
        tgt = entry.tokens[row:below]
        source = sources[number] if len(sources) == len(blocks) else text_of(src)
        translation = translations[number] if translations else text_of(tgt)
        yield AttentionMap(source, translation, src, tgt, block), of_heads
        row = below
        column = right


def by_words(attention: AttentionMap) -> AttentionMap:
    """Merge the tokens of each word.

    The weight of a source word is the sum over its tokens, that of a target word the mean.
    """
    src, tgt = map(words_of_tokens, (attention.src_tokens, attention.tgt_tokens))
    weights = word_weights(attention.weights, attention)
    return attention._replace(src_tokens=src, tgt_tokens=tgt, weights=weights)


def word_weights(weights: NDArray[Any], attention: AttentionMap) -> NDArray[np.float64]:
    """Sum weights [..., T, S] over the tokens of source words; take the mean over target words."""
    columns = word_spans(attention.src_tokens)
    rows = word_spans(attention.tgt_tokens)
    sums = weights.astype(np.float64)
    for axis, spans in ((-1, columns), (-2, rows)):
        starts = np.array([span.start for span in spans], np.intp)
        sums = np.add.reduceat(sums, starts, axis=axis)
    merged: NDArray[np.float64] = sums / np.array([len(row) for row in rows])[:, None]
    return merged


def words_of_tokens(tokens: Sequence[str]) -> list[str]:
    """Return the text of each word of tokens."""
    return [joined(tokens[span.start : span.stop]) for span in word_spans(tokens)]


_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")
_HEX = re.compile("<0x|>")
MAX_BYTES = 4  # of a character
UNKNOWN_WORD = "<unk>"


def word_spans(tokens: Sequence[str]) -> list[range]:
    """Return the indices of each word's tokens; EOS and unknown words are words."""
    starts = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or token.startswith(SPACE) or token in (EOS, UNKNOWN_WORD) or tokens[i - 1] == EOS
    ]
    return [range(*span) for span in pairwise([*starts, len(tokens)])]


def joined(tokens: Sequence[str]) -> str:
    """Return tokens as one text, in which those that spell bytes are decoded."""
    return _BYTES.sub(
        lambda match: bytes.fromhex(_HEX.sub("", match[0])).decode(errors="replace"),
        "".join(tokens),
    )


def text_of(tokens: Sequence[str]) -> str:
    """Return the text that tokens spell, without EOS."""
    return joined([token for token in tokens if token != EOS]).replace(SPACE, " ").strip()


def label_of(token: str) -> str:
    """Return a token without its word boundary; invisible or illegal characters as U+XXXX."""
    text = token.removeprefix(SPACE) or token
    categories = [unicodedata.category(character) for character in text]
    if all(category[0] in "CZ" for category in categories) or {"Cc", "Cs", "Cn"} & set(categories):
        return " ".join(f"U+{ord(character):04X}" for character in text)
    return text


def labels_of(tokens: Sequence[str]) -> list[str]:
    """Return the labels of tokens; each byte of a character has the character."""
    labels = list(map(label_of, tokens))
    for start in range(len(tokens)):
        for end in range(start + 1, min(len(tokens), start + MAX_BYTES) + 1):
            if not _BYTES.fullmatch(tokens[end - 1]):
                break
            character = joined(tokens[start:end])
            if len(character) == 1 and character != "\N{REPLACEMENT CHARACTER}":
                labels[start:end] = [label_of(character)] * (end - start)
                break
    return labels


def legible(text: str) -> str:
    """Return a text safe for XML and for one line: control characters become spaces."""
    return "".join(c if unicodedata.category(c) not in {"Cc", "Cs", "Cn"} else " " for c in text)


COVERED = 0.6  # maximum coverage of words in a run that is noted, on average
MISSING = 4.0  # least number of letters of such a run that would have to be attended to
NOTE = "hardly any attention, perhaps not translated: "


def notes_on_coverage(tokens: Sequence[str], weights: Array | None) -> list[str]:
    """Return a note on a run of source words that got hardly any attention [T, S], if there is one.

    Words count by their letters: short ones, such as articles, often have no translation of their
    own. Weights that sum to less than 1, as those of a window, are scaled.
    """
    if weights is None or not (total := float(weights.sum())):
        return []
    coverage = (weights.sum(axis=0) * (len(weights) / total)).tolist()
    worst = lacking = 0.0
    run = first = range(0)
    for span in word_spans(tokens):
        if tokens[span.start] == EOS:
            continue
        lack = COVERED - sum(coverage[span.start : span.stop])
        if lack > 0 or lacking > 0:
            text = "".join(tokens[span.start : span.stop])
            letters = sum(map(str.isalpha, joined([text]) if "<0x" in text else text))
            first = first if lacking > 0 else span
            lacking = max(0.0, lacking) + lack * letters
            if lacking > worst:
                worst = lacking
                run = range(first.start, span.stop)
    if worst < MISSING:
        return []
    return [NOTE + text_of(tokens[run.start : run.stop])]


MAX_CELLS = 10_000  # in one table of a notebook
BLUE = (38, 100, 205)  # weight 1; a smaller weight is its opacity
SCALE = '<div class="attention-scale">attention weight 0 <span></span> 1</div>'


@cache
def style() -> str:
    """Return the style sheet of maps, for the head of a page or before a map."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def notebook_maps(text: str, score: float, maps: Iterable[AttentionMap]) -> str:
    """Return a translation with its maps, each below its source."""
    parts = [f"<style>{style()}</style>"]
    for attention in maps:
        source, *texts = map(escape, attention.headings())
        below = "".join(f'<div dir="auto" style="opacity:.7">{text}</div>' for text in texts)
        parts.append(f'<div dir="auto">{source}</div>{below}')
        if attention.weights.size > MAX_CELLS:
            size = "{} by {} tokens".format(*attention.weights.shape)
            parts.append(f"<div>attention weights of {size}: too many to show</div>")
        else:
            parts.append(heat_map(attention))
    if len(parts) == 1:
        parts = [f'<div dir="auto">{escape(legible(text))}</div>']
    else:
        parts.append(SCALE)
    return f'<div>{"".join(parts)}<div style="opacity:.7">score {score:.3f}</div></div>'


def heat_map(attention: AttentionMap, percentages: bool = False) -> str:
    """Return the table of attention weights, which scrolls where it is too wide.

    With `percentages` a cell has its weight in percent, as there is no pointer on paper or a phone.
    """
    src, tgt = map(labels_of, (attention.src_tokens, attention.tgt_tokens))
    columns = "".join(
        f'<th scope="col"{word_class}><span dir="auto"'
        f"{' class=upright' if is_upright(label) else ''}>{escape(label)}</span></th>"
        for label, word_class in zip(src, _word_classes(attention.src_tokens), strict=True)
    )
    rows = []
    classes = _word_classes(attention.tgt_tokens)
    for label, word_class, values in zip(tgt, classes, attention.weights.tolist(), strict=True):
        hints = (f"{label} \N{LEFTWARDS ARROW} {name}" for name in src)
        cells = "".join(map(_cell, hints, values, repeat(percentages)))
        head = f'<th scope="row" dir="auto"{word_class}>{escape(label)}</th>'
        rows.append(f"<tr>{head}{cells}</tr>\n")
    return (
        '<div class="attention-scroll"><table class="attention-map"><thead><tr>'
        f"<td></td>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def is_upright(label: str) -> bool:
    """Return whether the characters of a vertical label are upright, as in Chinese."""
    return all(east_asian_width(character) in "WF" for character in label)


def is_split(tokens: Sequence[str]) -> bool:
    """Return whether a word has several tokens, so that words are to be marked."""
    return len(word_spans(tokens)) < len(tokens)


def _word_classes(tokens: Sequence[str]) -> list[str]:
    """Return an attribute for each token: the first or last of its word, none without subwords."""
    if not is_split(tokens):
        return [""] * len(tokens)
    places = [(index, word) for word in word_spans(tokens) for index in word]
    return [
        f' class="part{" first" * (index == word.start)}{" last" * (index == word.stop - 1)}"'
        for index, word in places
    ]


def _cell(hint: str, weight: float, percentage: bool) -> str:
    colour = f"rgba({','.join(map(str, BLUE))},{weight:.3f})"
    style = f"--weight:{weight:.3f};background-color:{colour}"
    text = f"{100 * weight:.0f}" if percentage and weight >= SHOWN else ""
    heavy = " class=heavy" if text and weight > HEAVY else ""
    return f'<td{heavy} style="{style}" title="{escape(hint)}: {weight:.3f}">{text}</td>'


SHOWN = 0.05  # least weight whose percentage is shown
HEAVY = 0.6  # weight from which a percentage is written in the colour of the ground
CELL = 0.26  # inches, as all lengths here
LABEL_GAP = 0.12  # between labels and cells: room for the word bars
LINE = 0.19  # height of a line of a title
UPRIGHT_LINE = 0.16  # height of a character in an upright label, such as a Chinese one
BAR = 0.6  # height of the colour bar with its labels
EDGE = 0.25  # height above all titles, which the layout may place up to 0.2 too high
MIN_CELLS = 10  # least width of a panel, to whose cells the title wraps


def map_figure(maps: Sequence[AttentionMap], columns: int | None = None) -> "Figure":
    """Draw maps in a grid, nearly square by default, each below its title: its headings."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=installed_families(), size=9)
    columns = columns or math.ceil(math.sqrt(len(maps)))
    rows = -(-len(maps) // columns)
    across = max(MIN_CELLS, *(len(attention.src_tokens) for attention in maps))
    down = max(len(attention.tgt_tokens) for attention in maps)
    titles = [_title(attention, CELL * across, font) for attention in maps]
    left, above = _room(maps, titles, font)
    size = columns * (left + CELL * across), rows * (above + CELL * down) + BAR + EDGE
    figure = Figure(figsize=size)
    figure._repr_png_ = lambda: save(figure, ".png")[0]  # type: ignore[attr-defined]  # for a notebook
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - EDGE / size[1]))
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    blue = [value / 255 for value in BLUE]
    colours = LinearSegmentedColormap.from_list("attention", [(1.0, 1.0, 1.0), blue])
    for axes, attention, title in zip(panels, maps, titles, strict=False):
        axes.set_title(title, loc="left", fontproperties=font, pad=8, parse_math=False)
        style: dict[str, Any] = {"edgecolors": "#e2e4e9", "linewidth": 0.5}
        mesh = axes.pcolormesh(attention.weights, cmap=colours, vmin=0, vmax=1, **style)
        axes.set(xlim=(0, across), ylim=(down, 0), aspect="equal", anchor="NW")
        _draw_labels(axes, attention, font)
    for axes in panels[len(maps) :]:
        axes.remove()
    place: dict[str, Any] = {"location": "bottom", "anchor": (0.0, 0.0), "aspect": 13}
    shrink = min(1.0, 1.3 / size[0])
    bar = figure.colorbar(mesh, ax=list(panels[: len(maps)]), ticks=[0, 1], shrink=shrink, **place)
    bar.set_label("attention weight", fontproperties=font)
    return figure


def _title(attention: AttentionMap, room: float, font: "FontProperties") -> str:
    """Return the headings of a map, wrapped to lines of about a width in inches."""
    lines: list[str] = []
    for text in attention.headings():
        share = room / max(room, widest([text], font))
        lines += textwrap.wrap(text, max(1, int(0.9 * share * len(text)))) if share < 1 else [text]
    return "\n".join(lines)


def _room(
    maps: Sequence[AttentionMap], titles: Sequence[str], font: "FontProperties"
) -> tuple[float, float]:
    """Return the width of the labels beside the cells, and the height of all that is above."""
    labels = [label for attention in maps for label in labels_of(attention.src_tokens)]
    upright = max((len(label) for label in labels if is_upright(label)), default=0)
    turned = widest([label for label in labels if not is_upright(label)], font)
    lines = max(title.count("\n") + 1 for title in titles)
    tgt_labels = [label for attention in maps for label in labels_of(attention.tgt_tokens)]
    beside = widest(tgt_labels, font)
    above = LINE * lines + max(turned, UPRIGHT_LINE * upright)
    return beside + 3 * LABEL_GAP, above + 3 * LABEL_GAP


def _draw_labels(axes: "Axes", attention: AttentionMap, font: "FontProperties") -> None:
    columns, rows = map(labels_of, (attention.src_tokens, attention.tgt_tokens))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=72 * LABEL_GAP, top=True, labeltop=True, labelbottom=False)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(fontproperties=font, parse_math=False)  # a token may be "$"
    for label in axes.get_xticklabels():
        if is_upright(label.get_text()):
            label.set(text="\n".join(label.get_text()), rotation=0, linespacing=1)
    _draw_word_bars(axes, attention)


def _draw_word_bars(axes: "Axes", attention: AttentionMap) -> None:
    """Join the labels of each word's tokens by a bar beside the cells."""
    beside = -0.5 * LABEL_GAP / CELL
    style: dict[str, Any] = {"color": "#9aa0a8", "linewidth": 1.2, "clip_on": False}
    for tokens, step in ((attention.src_tokens, 1), (attention.tgt_tokens, -1)):
        for word in word_spans(tokens) if is_split(tokens) else ():
            ends = (word.start + 0.15, word.stop - 0.15), (beside, beside)
            axes.plot(*ends[::step], **style)
