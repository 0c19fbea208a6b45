"""Tables of a comparison, and its figures: curves, BLEU by length."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import mean
from typing import NamedTuple

from seq2seq.analysis.compare.scoring import ComparisonResult, VariantResult, bleu_scores
from seq2seq.analysis.compare.variants import CURVES, LENGTHS
from seq2seq.evaluation.bootstrap import deviation
from seq2seq.runtime.console import aligned_table
from seq2seq.runtime.figures import Curve, line_chart, matplotlib_note, save
from seq2seq.runtime.files import atomic_write, write_errors


class Cell(NamedTuple):
    """Value of a table, None if there is none, with its format; a star marks the best."""

    value: float | str | None
    form: str = ""
    best: bool = False

    @property
    def text(self) -> str:
        """The formatted value, empty if there is none; a rounded zero has no sign."""
        text = "" if self.value is None else format(self.value, self.form)
        signless = text.lstrip("+-")
        return signless if self.form and not signless.strip("0.") else text


class Table(NamedTuple):
    """Heads of columns, and rows of cells."""

    head: tuple[str, ...]
    rows: list[list[Cell]]

    def as_text(self) -> str:
        """Align the columns."""
        rows = [[f"{cell.text}{'*' * cell.best}" for cell in row] for row in self.rows]
        return aligned_table([self.head, *rows])


def tables_of(result: ComparisonResult) -> list[Table]:
    """Return the tables of variants and of source lengths that are not empty."""
    tables = [variant_table(result), length_table(result)]
    return [table for table in tables if table.rows and len(table.head) > 1]


def variant_table(result: ComparisonResult) -> Table:
    """Return scores and costs of the variants, one per row; last, why others failed."""
    head = (
        *("variant", "BLEU", "sd", "chrF2", "ensemble", "difference", "sd of difference", "p"),
        *("parameters", "tokens/s", "minutes", *(["note"] if result.failed else [])),
    )
    rows = [[*_variant(variant), Cell(None)][: len(head)] for variant in result.variants]
    _mark_best(rows, [1, 3, 4])
    empty = [Cell(None)] * (len(head) - 2)
    rows += [
        [Cell(name), *empty, Cell(f"failed: {reason}")] for name, reason in result.failed.items()
    ]
    return Table(head, rows)


def _variant(result: VariantResult) -> Iterator[Cell]:
    scores, costs = bleu_scores(result.runs), [run.cost for run in result.runs]
    speeds = [cost.tokens_per_second for cost in costs if cost.tokens_per_second is not None]
    tested = result.difference
    yield Cell(result.variant.name)
    yield Cell(mean(scores), ".1f")
    yield Cell(deviation(scores), ".2f")
    yield Cell(mean(run.output.scores["chrf"].score for run in result.runs), ".1f")
    yield Cell(result.ensemble and result.ensemble.scores["bleu"].score, ".1f")
    yield Cell(tested and tested.mean, "+.1f")
    yield Cell(tested and tested.deviation, ".2f")
    yield Cell(tested and tested.p_value, ".3f")
    yield Cell(result.parameters, ",")
    yield Cell(mean(speeds) if speeds else None, ",.0f")
    yield Cell(mean(cost.minutes for cost in costs), ".1f")


def length_table(result: ComparisonResult) -> Table:
    """Return BLEU by source length, one variant per row, below the numbers of sentences."""
    head = (f"source {result.task.unit.name}", *(bucket.label for bucket in result.buckets))
    counts = [Cell("sentences"), *(Cell(len(bucket.rows), ",") for bucket in result.buckets)]
    rows = [
        [Cell(variant.variant.name), *(Cell(score, ".1f") for score in variant.by_length)]
        for variant in result.variants
    ]
    _mark_best(rows, range(1, len(head)))
    return Table(head, [counts, *rows])


def _mark_best(rows: Sequence[list[Cell]], columns: Iterable[int]) -> None:
    """Mark the highest values of columns, and others of equal format; not of a single row."""
    for column in columns if len(rows) > 1 else ():
        numbers = [row[column] for row in rows if isinstance(row[column].value, float)]
        if not numbers:
            continue
        best = max(numbers, key=lambda cell: float(cell.value or 0)).text
        for row in rows:
            row[column] = row[column]._replace(best=row[column].text == best)


def _curves(result: ComparisonResult) -> list[Curve]:
    """Return the curve of each training, with the names of the variants that share it.

    It is the mean of the curves of the seeds, over the steps at which all were validated.
    """
    plan, curves = result.plan, []
    for variant in result.variants:
        names = [v.name for v in plan.variants if plan.trained_as(v) == variant.variant]
        scores = [dict(run.curve) for run in variant.runs if run.curve]
        steps = sorted(set(scores[0]).intersection(*scores)) if scores else []
        if names and steps:
            points = [(float(step), mean(curve[step] for curve in scores)) for step in steps]
            curves.append(Curve(", ".join(names), points))
    return curves


def write_figures(result: ComparisonResult, form: str = "png") -> list[str]:
    """Write the curves and the lengths into the folder, as png, svg or pdf; return messages.

    Raises RunError if they cannot be written.
    """
    if (note := matplotlib_note()) is not None:
        return [f"note: {note}"]
    notes: list[str] = []
    curves, buckets = _curves(result), result.buckets
    figures = {}
    if curves:
        title = "Validation BLEU (greedy), mean of seeds"
        figures[result.plan.figure_path(CURVES, form)] = line_chart(title, curves)
    if buckets:
        title = f"BLEU by source length ({result.task.split}), in {result.task.unit.name}"
        ticks = [f"{bucket.label}\n{len(bucket.rows):,}" for bucket in buckets]
        lines = [
            Curve(
                variant.variant.name,
                [(float(n), score) for n, score in enumerate(variant.by_length)],
            )
            for variant in result.variants
        ]
        figures[result.plan.figure_path(LENGTHS, form)] = line_chart(title, lines, ticks)
    for path, figure in figures.items():
        content, more = save(figure, f".{form}")
        notes += more
        with write_errors(path):
            atomic_write(path, content)
    paths = f"Figures: {' and '.join(map(str, figures))}"
    return [paths, *(f"note: {note}" for note in dict.fromkeys(notes))]
