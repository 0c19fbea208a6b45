"""Tables of a comparison, and its figures: curves, BLEU by length."""

from collections.abc import Iterable
from statistics import mean

from seq2seq.evaluation.bootstrap import deviation
from seq2seq.runtime import console, files
from seq2seq.runtime.figures import Curve, line_chart, matplotlib_note, save
from seq2seq.tools.analysis.compare.scoring import ComparisonResult, VariantResult, bleu_scores
from seq2seq.tools.analysis.compare.variants import CURVES, LENGTHS

Rows = list[list[str]]  # cells of a table, the first row its head


def tables_of(result: ComparisonResult) -> list[str]:
    """Return the tables of variants and of source lengths; stars mark the best of a column."""
    tables = [_variants(result)]
    if result.buckets:
        tables.append(_lengths(result))
    return [console.aligned_table(table) for table in tables]


def _variants(result: ComparisonResult) -> Rows:
    """Return scores and costs of the variants, one per row; last, why others failed."""
    head = ["variant", "BLEU", "sd", "chrF2", "ensemble", "difference", "sd of difference", "p"]
    head += ["parameters", "tokens/s", "minutes", *(["note"] if result.failed else [])]
    rows = [_variant(variant)[: len(head)] for variant in result.variants]
    _mark_best(rows, [1, 3, 4])
    empty = [""] * (len(head) - 2)
    failed = [[name, *empty, f"failed: {reason}"] for name, reason in result.failed.items()]
    return [head, *rows, *failed]


def _variant(result: VariantResult) -> list[str]:
    scores, runs = bleu_scores(result.runs), result.runs
    speeds = [run.tokens_per_second for run in runs if run.tokens_per_second is not None]
    tested = result.difference
    return [
        result.variant.name,
        cell(mean(scores), ".1f"),
        cell(deviation(scores), ".2f"),
        cell(mean(run.output.text.scores["chrf"].score for run in result.runs), ".1f"),
        cell(result.ensemble and result.ensemble.text.scores["bleu"].score, ".1f"),
        cell(tested and tested.mean, "+.1f"),
        cell(tested and tested.deviation, ".2f"),
        cell(tested and tested.p_value, ".3f"),
        f"{result.parameters:,}",
        cell(mean(speeds) if speeds else None, ",.0f"),
        cell(mean(run.minutes for run in runs), ".1f"),
        "",
    ]


def _lengths(result: ComparisonResult) -> Rows:
    """Return BLEU by source length, one variant per row, below the numbers of sentences."""
    head = [f"source {result.task.unit.name}", *(bucket.label for bucket in result.buckets)]
    counts = ["sentences", *(f"{len(bucket.rows):,}" for bucket in result.buckets)]
    rows = [[v.variant.name, *(cell(x, ".1f") for x in v.by_length)] for v in result.variants]
    _mark_best(rows, range(1, len(head)))
    return [head, counts, *rows]


def cell(value: float | None, form: str) -> str:
    """Format a value, empty for none; a rounded zero has no sign."""
    text = "" if value is None else format(value, form)
    signless = text.lstrip("+-")
    return text if signless.strip("0.") else signless


def _mark_best(rows: Rows, columns: Iterable[int]) -> None:
    """Mark the highest values of columns, and others of equal format; not of a single row."""
    for column in columns if len(rows) > 1 else ():
        best = max((row[column] for row in rows if row[column]), key=float, default=None)
        for row in rows:
            row[column] += "*" if best is not None and row[column] == best else ""


def _curves(result: ComparisonResult) -> list[Curve]:
    """Return the mean curve over seeds of each training, named after variants that share it."""
    plan, curves = result.plan, []
    for variant in result.variants:
        names = [v.name for v in plan.variants if plan.trained_as(v) == variant.variant]
        scores = [dict(run.curve) for run in variant.runs if run.curve]
        steps = sorted(set(scores[0]).intersection(*scores)) if scores else []
        if names and steps:
            points = [(float(step), mean(curve[step] for curve in scores)) for step in steps]
            curves.append(Curve(", ".join(names), points))
    return curves


def write_figures(result: ComparisonResult) -> str:
    """Write the figures into the folder as SVG; return a message. Raises RunError if that fails."""
    if (note := matplotlib_note()) is not None:
        return f"note: {note}"
    figures = {}
    if curves := _curves(result):
        figures[CURVES] = line_chart("Validation BLEU (greedy), mean of seeds", curves)
    if buckets := result.buckets:
        title = f"BLEU by source length ({result.task.split}), in {result.task.unit.name}"
        ticks = [f"{bucket.label}\n{len(bucket.rows):,}" for bucket in buckets]
        lines = [
            Curve(variant.variant.name, [*enumerate(variant.by_length)])
            for variant in result.variants
        ]
        figures[LENGTHS] = line_chart(title, lines, ticks)
    for name, figure in figures.items():
        with files.write_errors(path := result.plan.folder / name):
            files.atomic_write(path, save(figure, ".svg")[0])
    return f"Figures: {' and '.join(str(result.plan.folder / name) for name in figures)}"
