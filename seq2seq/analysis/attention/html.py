"""Attention maps as tables of an HTML page; browsers render every script correctly."""

from collections.abc import Sequence
from html import escape

from seq2seq.analysis.attention.maps import AttentionMap, label_of, starts_word

MIN_SHOWN = 0.05  # smaller weights are not printed in their cells
HIGH = 0.62  # larger weights are printed in the contrasting colour

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c1e21; --soft: #667; --rule: #b4b8c0;
  --grid: #e6e8ec; --heat: 8 69 148; --on-heat: #fff }
@media (prefers-color-scheme: dark) { :root { --page: #14161a; --ink: #e8eaed; --soft: #9aa0a8;
  --rule: #5c636e; --grid: #2b2f36; --heat: 122 184 255; --on-heat: #0b0d10 } }
body { margin: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.4 system-ui, "Noto Sans", sans-serif }
section { margin: 0 0 2.5rem }
h2, p { text-align: left }
h2 { margin: 0; font-size: 1rem; font-weight: 600 }
p { margin: 0 0 .75rem; color: var(--soft) }
.scroll { overflow-x: auto }
table { border-collapse: separate; border-spacing: 0; print-color-adjust: exact;
  -webkit-print-color-adjust: exact }
th { font-weight: 400; white-space: nowrap; background: no-repeat var(--page);
  background-image: linear-gradient(var(--rule), var(--rule)) }
th[scope=col] { min-width: 28px; padding: 2px 0 8px; vertical-align: bottom; line-height: 28px;
  background-size: 100% 2px; background-position: 0 calc(100% - 3px) }
th[scope=col] span { display: inline-block; writing-mode: vertical-rl; vertical-align: bottom }
th[scope=row] { position: sticky; left: 0; height: 28px; padding: 0 8px 0 2px; line-height: 1;
  text-align: right; background-size: 2px 100%; background-position: calc(100% - 3px) 0 }
th[scope=col].start { background-size: calc(100% - 6px) 2px; background-position-x: 6px }
th[scope=row].start { background-size: 2px calc(100% - 6px); background-position-y: 6px }
tbody td { box-sizing: border-box; min-width: 28px; height: 28px; padding: 0; text-align: center;
  font-size: 11px; font-variant-numeric: tabular-nums;
  background: rgb(var(--heat) / var(--weight)); box-shadow: inset 0 0 0 .5px var(--grid) }
td.high { color: var(--on-heat) }
td:hover { outline: 2px solid var(--ink); outline-offset: -2px }
.scale { display: flex; gap: .5rem; align-items: center; color: var(--soft); font-size: .85rem }
.scale i { width: 8rem; height: .8rem; box-shadow: inset 0 0 0 .5px var(--rule);
  background: linear-gradient(to right, rgb(var(--heat) / 0), rgb(var(--heat) / 1));
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
"""

PAGE = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention weights</title>
<style>{style}</style>
</head>
<body>
<p class="scale">attention weight: 0 <i></i> 100 %</p>
{sections}
</body>
</html>
"""


def page(maps: Sequence[AttentionMap]) -> str:
    """Return a self-contained page with a table for each map."""
    return PAGE.format(style=STYLE, sections="\n".join(map(_section, maps)))


def _section(attention: AttentionMap) -> str:
    source, translation = map(escape, attention.headings())
    columns = range(len(attention.src_tokens))
    head = [_header(attention.src_tokens, column, "col") for column in columns]
    rows = []
    for row in range(len(attention.tgt_tokens)):
        cells = [_cell(attention, row, column) for column in columns]
        rows.append(f"<tr>{_header(attention.tgt_tokens, row, 'row')}{''.join(cells)}</tr>")
    return "\n".join(
        [
            "<section>",
            f'<h2 dir="auto">{source}</h2>',
            f'<p dir="auto">{translation}</p>',
            '<div class="scroll"><table>',
            f"<thead><tr><td></td>{''.join(head)}</tr></thead>",
            f"<tbody>{''.join(rows)}</tbody>",
            "</table></div>",
            "</section>",
        ]
    )


def _header(tokens: Sequence[str], index: int, scope: str) -> str:
    kind = ' class="start"' if starts_word(tokens, index) else ""
    label = escape(label_of(tokens[index]))
    return f'<th scope="{scope}"{kind}><span dir="auto">{label}</span></th>'


def _cell(attention: AttentionMap, row: int, column: int) -> str:
    weight = attention.weights[row][column]
    tgt, src = label_of(attention.tgt_tokens[row]), label_of(attention.src_tokens[column])
    hint = escape(f"{tgt} \N{LEFTWARDS ARROW} {src}: {weight:.3f}")
    kind = ' class="high"' if weight >= HIGH else ""
    percent = f"{100 * weight:.0f}" if weight >= MIN_SHOWN else ""
    return f'<td{kind} style="--weight:{weight:.3f}" title="{hint}">{percent}</td>\n'
