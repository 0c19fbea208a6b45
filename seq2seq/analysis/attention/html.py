"""Attention maps as tables of an HTML page; browsers render every script correctly."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from seq2seq.analysis.attention.maps import AttentionMap
from seq2seq.inference.token_labels import label_of, starts_word

MIN_SHOWN = 0.05  # smaller weights are not printed in their cells
HIGH = 0.62  # larger weights are printed in the contrasting colour


def page(maps: Iterable[AttentionMap]) -> Iterator[str]:
    """Yield the parts of a self-contained page with a table for each map."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    yield head
    for number, each in enumerate(maps):
        yield ("\n" if number else "") + _section(each)
    yield foot


def _section(attention: AttentionMap) -> str:
    source, *others = map(escape, attention.headings())
    return "\n".join(
        [
            "<section>",
            f'<h2 dir="auto">{source}</h2>',
            *(f'<p dir="auto">{each}</p>' for each in others),
            table_of(attention),
            "</section>",
        ]
    )


def table_of(attention: AttentionMap) -> str:
    """Return the table of a map, which scrolls where it is too wide."""
    columns = range(len(attention.src_tokens))
    head = [_header(attention.src_tokens, column, "col") for column in columns]
    rows = []
    for row, weights in enumerate(attention.weights):
        cells = [_cell(attention, row, column, weights[column]) for column in columns]
        rows.append(f"<tr>{_header(attention.tgt_tokens, row, 'row')}{''.join(cells)}</tr>")
    return "\n".join(
        [
            '<div class="scroll"><table>',
            f"<thead><tr><td></td>{''.join(head)}</tr></thead>",
            f"<tbody>{''.join(rows)}</tbody>",
            "</table></div>",
        ]
    )


def _header(tokens: Sequence[str], index: int, scope: str) -> str:
    kind = ' class="start"' if starts_word(tokens, index) else ""
    label = escape(label_of(tokens[index]))
    return f'<th scope="{scope}"{kind}><span dir="auto">{label}</span></th>'


def _cell(attention: AttentionMap, row: int, column: int, weight: float) -> str:
    tgt, src = label_of(attention.tgt_tokens[row]), label_of(attention.src_tokens[column])
    hint = escape(f"{tgt} \N{LEFTWARDS ARROW} {src}: {weight:.3f}")
    kind = ' class="high"' if weight >= HIGH else ""
    percent = f"{100 * weight:.0f}" if weight >= MIN_SHOWN else ""
    return f'<td{kind} style="--weight:{weight:.3f}" title="{hint}">{percent}</td>\n'
