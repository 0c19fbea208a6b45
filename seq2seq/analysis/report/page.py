"""Report of a run as one HTML page without scripts or resources from elsewhere."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from seq2seq.analysis.attention.plot import MAX_CELLS
from seq2seq.analysis.charts import as_svg, bar_chart, line_chart
from seq2seq.analysis.report.facts import (
    CHOSEN_BY,
    RunFacts,
    ShownSentence,
    SplitScores,
    TextSize,
)
from seq2seq.evaluation.metrics import METRICS
from seq2seq.inference.heat_map import heat_map
from seq2seq.runs.layout import REPORT_MARK
from seq2seq.runtime.console import counted, printable
from seq2seq.runtime.figures import matplotlib_note


def page(facts: RunFacts) -> str:
    """Return the page."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    head = head.replace("$mark", REPORT_MARK).replace("$title", _text(facts.config.name))
    return head + "\n".join(_sections(facts)) + foot


def _sections(facts: RunFacts) -> Iterator[str]:
    yield f"<h1>{_text(facts.config.name)}</h1>"
    yield _table(facts.summary)
    yield "<h2>Scores</h2>"
    yield _scores(facts.scored) if facts.scored else f"<p>No scores: {_text(facts.unscored)}</p>"
    yield "<h2>Training</h2>"
    yield _charts(facts)
    if facts.scored is not None:
        languages = facts.config.data.src_lang, facts.config.data.tgt_lang
        for title, sentences in (
            ("Worst sentences", facts.scored.worst),
            ("Best sentences", facts.scored.best),
        ):
            if sentences:
                yield f"<h2>{title}</h2>"
                yield from (_sentence(sentence, *languages) for sentence in sentences)
    yield "<h2>Data</h2>"
    yield _texts(facts.texts)
    yield "<h2>Config</h2>"
    yield f'<pre tabindex="0">{_text(facts.config_text)}</pre>'
    yield "<h2>Versions and hardware</h2>"
    yield "<p>Those with which this report was made.</p>"
    yield _table(facts.environment)


def _scores(scored: SplitScores) -> str:
    rows = [("", "score", "95% interval", "signature")]
    for key, value in scored.scores.items():
        low_high = "{:.1f} to {:.1f}".format(*value.ci) if value.ci else "-"
        rows.append((METRICS[key].name, f"{value.score:.1f}", low_high, value.signature))
    sentences = counted(scored.sentences, "sentence")
    note = f"{sentences} of the {scored.split} text, beam size {scored.beam}."
    if scored.split == "valid":
        note += f" {CHOSEN_BY}"
    parts = [f"<p>{note}</p>", _grid(rows)]
    if scored.lengths and matplotlib_note() is None:
        title = f"BLEU by length of the source, in {scored.length_unit}"
        chart = bar_chart(title, "length, and number of sentences", scored.lengths)
        parts.append(f'<figure class="bars">{as_svg(chart)}</figure>')
    return "\n".join(parts)


def _charts(facts: RunFacts) -> str:
    if (note := matplotlib_note()) is not None:
        return f"<p>No charts: {_text(note)}</p>"
    figures = [as_svg(line_chart(title, curves)) for title, curves in facts.charts]
    if not figures:
        return "<p>No figures yet.</p>"
    return f'<div class="charts">{"".join(f"<figure>{svg}</figure>" for svg in figures)}</div>'


def _sentence(sentence: ShownSentence, src_lang: str, tgt_lang: str) -> str:
    lines = (
        ("source", sentence.source, src_lang),
        ("reference", sentence.reference, tgt_lang),
        ("translation", sentence.translation, tgt_lang),
    )
    texts = "".join(
        f'<dt>{name}</dt><dd dir="auto" lang="{escape(language)}">{_text(text)}</dd>'
        for name, text, language in lines
    )
    score = f"BLEU {sentence.score.bleu:.1f}, chrF2 {sentence.score.chrf:.1f}"
    maps = "".join(
        heat_map(attention.src_tokens, attention.tgt_tokens, attention.weights)
        for attention in sentence.maps
        if attention.weights.size <= MAX_CELLS
    )
    attention = f"<details><summary>attention</summary>{maps}</details>" if maps else ""
    heading = f"<h3>Line {sentence.line:,}: {score}</h3>"
    return f"<section>{heading}<dl>{texts}</dl>{attention}</section>"


def _texts(texts: Sequence[TextSize]) -> str:
    rows = [("text", "pairs", "blank", "source length", "target length", "files")]
    for text in texts:
        figures = (f"{text.pairs:,}", f"{text.blank:,}", text.src_length, text.tgt_length)
        if text.problem is None:
            rows.append((text.name, *figures, text.files))
        else:
            rows.append((text.name, *"----", f"{text.files} ({text.problem})"))
    return _grid(rows) + "<p>Lengths are means per sentence.</p>"


def _grid(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in rows[0])
    body = "".join(
        f'<tr><th scope="row">{_text(first)}</th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows[1:]
    )
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="plain">{table}</table></div>'


def _table(rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>'
        for name, value in rows
    )
    return f'<div class="scroll"><table class="plain"><tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(printable(text))
