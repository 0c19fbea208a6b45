"""Attention weights as an HTML table: for notebooks, pages of their own and reports.

The colours of cells are inline, so that viewers which drop style sheets keep them, and suit any
background; `STYLE` has the layout.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.attention_map import AttentionMap
from seq2seq.inference.token_labels import label_of, legible, word_spans

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
        parts.append(headed(attention))
        if attention.weights.size > MAX_CELLS:
            size = "{} by {} tokens".format(*attention.weights.shape)
            parts.append(f"<div>attention weights of {size}: too many to show</div>")
        else:
            parts.append(heat_map(attention.src_tokens, attention.tgt_tokens, attention.weights))
    if len(parts) == 1:
        parts = [f'<div dir="auto">{escape(legible(text))}</div>']
    else:
        parts.append(SCALE)
    return f'<div>{"".join(parts)}<div style="opacity:.7">score {score:.3f}</div></div>'


def headed(attention: AttentionMap) -> str:
    """Return the source, the translation and the head of a map, the source first."""
    source, *texts = map(escape, attention.headings())
    below = "".join(f'<div dir="auto" style="opacity:.7">{text}</div>' for text in texts)
    return f'<div dir="auto">{source}</div>{below}'


def heat_map(src: Sequence[str], tgt: Sequence[str], weights: NDArray[np.floating]) -> str:
    """Return the table of attention weights [T, S], which scrolls where it is too wide."""
    columns = "".join(
        f'<th scope="col"{word_class}><span dir="auto"'
        f"{' class=upright' if is_upright(label_of(token)) else ''}>"
        f"{escape(label_of(token))}</span></th>"
        for token, word_class in zip(src, _word_classes(src), strict=True)
    )
    rows = []
    for token, word_class, values in zip(tgt, _word_classes(tgt), weights.tolist(), strict=True):
        cells = "".join(
            _cell(f"{label_of(token)} \N{LEFTWARDS ARROW} {label_of(source)}", value)
            for source, value in zip(src, values, strict=True)
        )
        label = f'<th scope="row" dir="auto"{word_class}>{escape(label_of(token))}</th>'
        rows.append(f"<tr>{label}{cells}</tr>\n")
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


def _cell(hint: str, weight: float) -> str:
    colour = f"rgba({','.join(map(str, BLUE))},{weight:.3f})"
    style = f"--weight:{weight:.3f};background-color:{colour}"
    return f'<td style="{style}" title="{escape(hint)}: {weight:.3f}"></td>'
