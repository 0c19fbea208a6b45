"""Report of a run, or of two side by side, as one HTML page without scripts or resources."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path

from seq2seq.config.fields import LoadContext, show
from seq2seq.config.schema import Config, dump_config, leaves
from seq2seq.evaluation import metrics
from seq2seq.evaluation.metrics import METRICS
from seq2seq.inference.attention_map import AttentionMap
from seq2seq.inference.attention_table import SCALE, heat_map, style
from seq2seq.runtime.console import counted, printable
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.figures import SMALL, Curve, as_svg, bar_chart, line_chart, matplotlib_note
from seq2seq.tools.analysis.attention.plot import MAX_CELLS
from seq2seq.tools.analysis.report import facts
from seq2seq.tools.analysis.report.facts import RunFacts, SampleHistory, ScoredSentence, SplitScores
from seq2seq.tools.analysis.scored_text import WORDS, length_unit

_MARKED = "Marked: words that the translation and the reference do not share."
_MARKED_EACH = "Marked: words of a translation that the reference does not share."


def page(*runs: RunFacts) -> str:
    """Return the page of a run, or of two side by side; raises UserError for different texts."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    head, _, foot = template.partition("$sections")
    head = head.replace("$style", style()).replace("$title", _text(" and ".join(_names(runs))))
    return head + "\n".join(_sections(runs)) + foot


def _names(runs: Sequence[RunFacts]) -> list[str]:
    """Return the names of runs; those of two runs with one name are their folders."""
    names = [run.config.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.run) for run in runs]


def _sections(runs: Sequence[RunFacts]) -> Iterator[str]:
    names = _names(runs)
    yield f"<h1>{_text(' and '.join(names))}</h1>"
    yield _columns(runs, [run.summary for run in runs])
    scored = [run.scored for run in runs if run.scored is not None]
    yield "<h2>Scores</h2>"
    for run in runs:
        if run.scored is None:
            yield f"<p>No scores: {_text(run.unscored)}</p>"
    if len(scored) == 2 and scored[0].references != scored[1].references:
        raise UserError(f"{runs[1].run}: has another test text than {runs[0].run}; report it alone")
    if scored:
        yield _scores(scored, names)
    yield _charts(runs)
    if len(scored) == 2:
        yield from _better(scored, names, runs[0])
    elif scored:
        yield from _worst(scored[0], runs[0])
    for name, run in zip(names, runs, strict=True):
        yield from _samples(run, f" of {name}" * (len(runs) > 1))
    for name, run in zip(names, runs, strict=True):
        if run.distillation:
            of_run = f" of {_text(name)}" * (len(runs) > 1)
            yield f"<h2>Distillation{of_run}</h2><p>Steps, and the scores that chose the model.</p>"
            yield from map(_grid, run.distillation)
    yield "<h2>Config</h2><p>Keys that differ from the defaults.</p>"
    yield _columns(runs, [keys_unlike_defaults(run.config) for run in runs])
    for name, run in zip(names, runs, strict=True):
        summary = "all keys" + f" of {_text(name)}" * (len(runs) > 1)
        yield f"<details><summary>{summary}</summary>"
        yield f'<pre tabindex="0">{_text(dump_config(run.config))}</pre></details>'


def keys_unlike_defaults(config: Config) -> dict[str, str]:
    """Return the values of keys, by their dotted names, that differ from the defaults."""
    tree = config.model_dump(mode="json")
    files = {key: tree["data"][key] for key in ("src_lang", "tgt_lang", "train", "valid")}
    least = {
        "name": tree["name"],
        "run_dir": tree["run_dir"],
        "data": files,
        "model": {"decoder": tree["model"]["decoder"]},
        "training": {"max_epochs": 1},
    }
    defaults = Config.model_validate(least, context=LoadContext()).model_dump(mode="json")
    default_values = leaves(defaults)
    values = leaves(tree)
    always = ("model.decoder", "training.max_epochs")
    return {
        key: show(value)
        for key, value in values.items()
        if value != default_values.get(key) or (key in always and value is not None)
    }


def _columns(runs: Sequence[RunFacts], values: Sequence[dict[str, str]]) -> str:
    """Return a table with a column for each run; what differs between two is marked."""
    keys = dict.fromkeys(key for column in values for key in column)
    rows = [("", *(_names(runs) if len(runs) > 1 else ("",)))]
    rows += [(key, *(column.get(key, "-") for column in values)) for key in keys]
    return _grid(rows, mark_differences=len(runs) > 1)


def _scores(scored: Sequence[SplitScores], names: Sequence[str]) -> str:
    first = scored[0]
    sentences = counted(len(first.references), "sentence")
    beams = " and ".join(dict.fromkeys(str(text.beam) for text in scored))
    note = f"{sentences} of the {first.split} text, beam size {beams}."
    if first.split == "valid":
        note += f" {facts.CHOSEN_BY}"
    rows: list[tuple[str, ...]] = [("", "score", "95% interval")]
    if len(scored) == 2:
        rows = [("", *names, "p")]
        hypotheses, other_hypotheses = (text.hypotheses for text in scored)
        answers = [first.references]
        segmentation = first.segmentation
        pairs = metrics.compare(hypotheses, other_hypotheses, answers, segmentation=segmentation)
    for key, value in first.scores.items():
        if len(scored) == 1:
            rows.append((METRICS[key].name, f"{value.score:.1f}", _interval(value)))
            continue
        cells = (f"{text.scores[key].score:.1f} ({_interval(text.scores[key])})" for text in scored)
        p_value = pairs[key].p_value
        rows.append((METRICS[key].name, *cells, "-" if p_value is None else f"{p_value:.3f}"))
    signatures = "".join(
        f"<div>{METRICS[key].name}|{value.signature}</div>" for key, value in first.scores.items()
    )
    paired = ""
    if len(scored) == 2:
        reason = metrics.few_lines_note(len(first.references)) or metrics.few_differences_note(
            pairs
        )
        because = f" {_text(_sentence_of(reason))}" if reason else ""
        paired = f"<p>p: two-sided, by the paired bootstrap.{because}</p>"
    return f'<p>{note}</p>{_grid(rows)}{paired}<div class="signatures">{signatures}</div>'


def _sentence_of(note: str) -> str:
    """Return a note as a sentence."""
    return f"{note[0].upper()}{note[1:]}."


def _interval(value: metrics.Score) -> str:
    return "{:.1f} to {:.1f}".format(*value.ci) if value.ci else "-"


def _charts(runs: Sequence[RunFacts]) -> str:
    if (note := matplotlib_note()) is not None:
        return f"<p>No charts: {_text(note)}</p>"
    names = _names(runs)
    figures = []
    scored = {name: run.scored for name, run in zip(names, runs, strict=True) if run.scored}
    if scored and (groups := next(iter(scored.values())).buckets):
        unit = next(iter(scored.values())).unit.name
        bars = {name: text.bleu for name, text in scored.items()}
        label = f"{unit} of the source, and number of sentences"
        figures.append(bar_chart("BLEU by length of the source", label, groups, bars))
    for title in dict.fromkeys(title for run in runs for title in run.charts):
        curves = [curve for run in runs for curve in run.charts.get(title, ())]
        if len(runs) > 1:  # each has a colour in all charts
            curves = [
                Curve(f"{name}, {curve.name}", curve.points, (colour, style))
                for colour, (name, run) in enumerate(zip(names, runs, strict=True))
                for style, curve in enumerate(run.charts.get(title, ()))
            ]
        figures.append(line_chart(title, curves))
    figures_note = "<p>No figures of training yet.</p>" * (not any(run.charts for run in runs))
    chart = ""
    for figure in figures:
        wide = " class=wide" if figure.get_figwidth() > SMALL[0] else ""
        chart += f"<figure{wide}>{as_svg(figure)}</figure>"
    return f'{figures_note}<div class="charts">{chart}</div>'


def _worst(scored: SplitScores, run: RunFacts) -> Iterator[str]:
    if not scored.worst:
        return
    yield f"<h2>Worst sentences</h2><p>By chrF2. {_MARKED}</p>"
    if any(line.maps for line in scored.worst):
        yield SCALE
    for line in scored.worst:
        score = line.score
        texts = {"translation": line.translation}
        heading = f"Line {line.number:,}: BLEU {score.bleu:.1f}, chrF2 {score.chrf:.1f}"
        yield f"<section><h3>{heading}</h3>{_sentence(line, texts, run)}"
        maps = _maps(line.maps)
        yield f"<details><summary>attention</summary>{maps}</details>" if maps else ""
        yield "</section>"


def _maps(maps: Sequence[AttentionMap]) -> str:
    return "".join(heat_map(attention) for attention in maps if attention.weights.size <= MAX_CELLS)


def _better(scored: Sequence[SplitScores], names: Sequence[str], run: RunFacts) -> Iterator[str]:
    """Yield the sentences that one run translates better than the other, by chrF2."""
    if not all(text.is_quoted for text in scored):
        return
    numbers = {line.number for line in facts.shown(scored[0].lines, scored[0].unit)}
    pairs = [
        pair
        for pair in zip(*(text.lines for text in scored), strict=True)
        if pair[0].number in numbers
    ]

    def gain(pair: tuple[ScoredSentence, ...]) -> float:
        return pair[0].score.chrf - pair[1].score.chrf

    pairs.sort(key=gain)
    better = [pair for pair in pairs[::-1] if gain(pair) > 0], [p for p in pairs if gain(p) < 0]
    if any(text.maps_of for text in scored):
        yield SCALE
    for name, rows in zip(names, better, strict=True):
        lines_shown = rows[: facts.SHOWN_SENTENCES]
        maps = _maps_beside(scored, names, [line.source for line, _ in lines_shown])
        note = f"{counted(len(rows), 'sentence')}, by chrF2. {_MARKED_EACH}"
        yield f"<h2>Better in {_text(name)}</h2><p>{note}</p>"
        for pair, attention in zip(lines_shown, maps, strict=True):
            texts = {
                f"{name}, chrF2 {line.score.chrf:.1f}": line.translation
                for name, line in zip(names, pair, strict=True)
            }
            heading = f"<h3>Line {pair[0].number:,}</h3>"
            yield f"<section>{heading}{_sentence(pair[0], texts, run)}{attention}</section>"


def _maps_beside(
    scored: Sequence[SplitScores], names: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """Return for each source the maps of both runs side by side, as far as they have attention."""
    of_runs: list[list[list[AttentionMap]]] = [
        text.maps_of(sources) if text.maps_of else [[] for _ in sources] for text in scored
    ]
    sections = []
    for maps in zip(*of_runs, strict=True):
        parts = "".join(
            f"<div><p>{_text(name)}</p>{content}</div>"
            for name, content in zip(names, map(_maps, maps), strict=True)
            if content
        )
        summary = "<details open><summary>attention</summary>"
        sections.append(f'{summary}<div class="beside">{parts}</div></details>' if parts else "")
    return sections


def _samples(run: RunFacts, of_run: str) -> Iterator[str]:
    if not run.samples:
        return
    yield f"<h2>Samples over training{_text(of_run)}</h2>"
    yield f"<p>Lines of the validation text, by greedy search. {_MARKED_EACH}</p>"
    for sample in run.samples:
        texts = {f"step {step:,}": text for step, text in sample.translations}
        heading = f"<h3>Line {sample.number:,}</h3>"
        yield f"<section>{heading}{_sentence(sample, texts, run)}</section>"


def _sentence(
    line: ScoredSentence | SampleHistory, translations: dict[str, str], run: RunFacts
) -> str:
    """Return source, reference and translations; what differs is marked, of one in both."""
    data = run.config.data
    reference = line.reference
    first, *rest = translations.values()
    tgt = data.tgt_lang
    marked_reference = _text(reference) if rest else _marked(reference, first)
    rows = [
        ("source", _text(line.source), data.src_lang, ""),
        ("reference", marked_reference, tgt, " class=reference"),
        *((name, _marked(text, reference), tgt, "") for name, text in translations.items()),
    ]
    entries = (
        f'<dt>{_text(name)}</dt><dd dir="auto" lang="{escape(language)}"{kind}>{text}</dd>'
        for name, text, language, kind in rows
    )
    return f"<dl>{''.join(entries)}</dl>"


def _marked(text: str, counterpart: str) -> str:
    """Mark the words of a text, or the characters where it has no spaces, that the other lacks."""
    words = length_unit([text, counterpart]) is WORDS
    left, right = (line.split() if words else list(line) for line in (counterpart, text))
    parts = []
    for kind, _, _, start, end in SequenceMatcher(None, left, right, False).get_opcodes():
        part = _text((" " if words else "").join(right[start:end]))
        if part:
            parts.append(part if kind == "equal" else f"<mark>{part}</mark>")
    return (" " if words else "").join(parts)


def _grid(rows: Sequence[Sequence[str]], mark_differences: bool = False) -> str:
    """Return a table; a first row of empty cells is no head."""
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in rows[0])
    body = "".join(
        f"<tr{' class=differs' if mark_differences and len(set(cells)) > 1 else ''}>"
        f'<th scope="row">{_text(first)}</th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows[1:]
    )
    table = f"<thead><tr>{head}</tr></thead>" if any(rows[0]) else ""
    return f'<div class="scroll"><table class="plain">{table}<tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(printable(text))
