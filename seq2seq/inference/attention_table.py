"""Attention maps as tables in HTML: of a notebook, a page, a report."""

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from itertools import repeat
from pathlib import Path

from seq2seq.inference.attention_map import (
    AttentionMap,
    is_split,
    is_upright,
    labels_of,
    legible,
    word_spans,
)

MAX_CELLS = 10_000  # in one table of a notebook
BLUE = (38, 100, 205)  # weight 1; a smaller weight is its opacity
SCALE = '<div class="attention-scale">attention weight 0 <span></span> 1</div>'
SHOWN = 0.05  # least weight whose percentage is shown
HEAVY = 0.6  # weight from which a percentage is written in the colour of the ground


@cache
def style() -> str:
    """Return the style sheet of maps, for the head of a page or before a map."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def notebook_maps(text: str, score: float, maps: Iterable[AttentionMap]) -> str:
    """Return a translation with its maps, each below its source."""
    parts = [f"<style>{style()}</style>"]
    for attention in maps:
        source, *texts = map(escape, attention.headings())
        lines_below = "".join(f'<div dir="auto" style="opacity:.7">{text}</div>' for text in texts)
        parts.append(f'<div dir="auto">{source}</div>{lines_below}')
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
