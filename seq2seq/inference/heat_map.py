"""Attention weights as an HTML table: for notebooks, pages of their own and reports.

All styles are inline, so that a notebook keeps them, and suit any background.
"""

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.token_labels import label_of, legible, starts_word

MAX_CELLS = 10_000  # in one table of a notebook
MIN_PRINTED = 0.05  # smaller weights are not printed in their cells
OPACITY = 0.65  # for weight 1: text in the colour of the page remains readable on it
_HEAT = "9,80,190"  # red, green and blue
_RULE = "solid rgba(128,128,128,.6)"  # beside the first token of a word
_TABLE = "color:inherit;border-collapse:collapse;margin:.4em 0;font-size:12px;width:auto"
_HEAD = "font-weight:normal;padding:2px 4px;background:none;border:0;white-space:nowrap"
_COLUMN = f"{_HEAD};vertical-align:bottom;text-align:center"
_UPRIGHT = "display:inline-block;writing-mode:vertical-rl;line-height:1.2"
_CELL = (
    "min-width:1.9em;height:1.9em;padding:0;text-align:center;border:1px solid rgba(128,128,128,.3)"
)


def heat_maps(
    text: str,
    score: float,
    src_tokens: Sequence[str],
    tgt_tokens: Sequence[str],
    blocks: Sequence[NDArray[np.float32]],
) -> str:
    """Return a translation with a table for each of its blocks of attention weights [T, S]."""
    head = f'<div dir="auto"><b>{escape(legible(text))}</b></div>'
    parts = [head, f'<div style="opacity:.7">score {score:.3f}</div>']
    row = column = 0
    for block in blocks:
        rows, columns = block.shape
        tgt, src = tgt_tokens[row : row + rows], src_tokens[column : column + columns]
        if block.size > MAX_CELLS:
            size = f"{rows} by {columns} tokens"
            parts.append(f"<div>attention weights of {size}: too many to show</div>")
        else:
            parts.append(heat_map(src, tgt, block))
        row, column = row + rows, column + columns
    return "<div>" + "".join(parts) + "</div>"


def heat_map(src: Sequence[str], tgt: Sequence[str], weights: NDArray[np.floating]) -> str:
    """Return the table of attention weights [T, S], which scrolls where it is too wide."""
    columns = "".join(
        f'<th scope="col" style="{_COLUMN}{_word_rule(src, index, "left")}">'
        f'<span dir="auto" style="{_UPRIGHT}">{escape(label_of(token))}</span></th>'
        for index, token in enumerate(src)
    )
    rows = []
    for index, (token, values) in enumerate(zip(tgt, weights.tolist(), strict=True)):
        cells = "".join(
            _cell(f"{label_of(token)} \N{LEFTWARDS ARROW} {label_of(source)}", value)
            for source, value in zip(src, values, strict=True)
        )
        style = f"{_HEAD};text-align:right{_word_rule(tgt, index, 'top')}"
        label = f'<th scope="row" style="{style}" dir="auto">{escape(label_of(token))}</th>'
        rows.append(f'<tr style="background:none">{label}{cells}</tr>\n')
    return (
        f'<div style="overflow-x:auto"><table style="{_TABLE}"><thead><tr style="background:none">'
        f'<td style="border:0"></td>{columns}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        "</div>"
    )


def _word_rule(tokens: Sequence[str], index: int, side: str) -> str:
    return f";border-{side}:2px {_RULE}" if starts_word(tokens, index) else ""


def _cell(hint: str, weight: float) -> str:
    percent = f"{100 * weight:.0f}" if weight >= MIN_PRINTED else ""
    style = f"{_CELL};background:rgba({_HEAT},{OPACITY * weight:.3f})"
    return f'<td style="{style}" title="{escape(hint)}: {weight:.3f}">{percent}</td>'
