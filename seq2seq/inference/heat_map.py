"""Attention weights as an HTML table for notebooks: inline styles alone, on any background."""

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.token_labels import labels_of, legible

MAX_CELLS = 10_000  # shown in one table; a cell takes about 150 bytes
MIN_SHOWN = 0.05  # smaller weights are not printed in their cells
OPACITY = 0.65  # for weight 1: text in the colour of the page remains readable on it
_HEAT = "9,80,190"  # red, green and blue
_TABLE = "color:inherit;border-collapse:collapse;margin:.4em 0;font-size:12px;width:auto"
_HEAD = "font-weight:normal;padding:2px 4px;background:none;border:0;white-space:nowrap"
_COLUMN = f"{_HEAD};vertical-align:bottom;text-align:center"
_UPRIGHT = "display:inline-block;writing-mode:vertical-rl;line-height:1.2"
_ROW = f"{_HEAD};text-align:right"
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
        parts.append(_table(src, tgt, block))
        row, column = row + rows, column + columns
    return "<div>" + "".join(parts) + "</div>"


def _table(src: Sequence[str], tgt: Sequence[str], weights: NDArray[np.float32]) -> str:
    if weights.size > MAX_CELLS:
        return f"<div>attention weights of {len(tgt)} by {len(src)} tokens: too many to show</div>"
    columns = "".join(
        f'<th scope="col" style="{_COLUMN}"><span dir="auto" style="{_UPRIGHT}">'
        f"{escape(token)}</span></th>"
        for token in labels_of(src)
    )
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{_ROW}" dir="auto">'
        f"{escape(token)}</th>{''.join(map(_cell, values))}</tr>"
        for token, values in zip(labels_of(tgt), weights.tolist(), strict=True)
    )
    return (
        f'<div style="overflow-x:auto"><table style="{_TABLE}"><thead><tr style="background:none">'
        f'<td style="border:0"></td>{columns}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(weight: float) -> str:
    percent = f"{100 * weight:.0f}" if weight >= MIN_SHOWN else ""
    return f'<td style="{_CELL};background:rgba({_HEAT},{OPACITY * weight:.3f})">{percent}</td>'
