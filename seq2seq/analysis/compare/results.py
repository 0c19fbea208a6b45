"""Tables of a comparison as text, Markdown or LaTeX, and its figures: curves, BLEU by length."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tabulate import tabulate

from seq2seq.analysis.compare.scoring import ComparisonResult, VariantResult, bleu_scores
from seq2seq.analysis.compare.variants import CURVES, LENGTHS
from seq2seq.evaluation.bootstrap import deviation
from seq2seq.runtime.console import aligned_table
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.figures import add_legend, matplotlib_note, new_axes, save, style_of
from seq2seq.runtime.files import atomic_write, write_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {".md": "github", ".tex": "latex"}  # formats of tabulate, by ending
MARKERS = "osD^vPX"
SHADE = "#eef0f3"

Curve = Sequence[tuple[int, float]]  # step and validation BLEU


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

    def as_text(self, form: str | None = None) -> str:
        """Align the columns, or write them in a format of tabulate."""
        rows = [[f"{cell.text}{'*' * cell.best}" for cell in row] for row in self.rows]
        if form is None:
            return aligned_table([self.head, *rows])
        align = ("left", *["right"] * (len(self.head) - 1))
        return str(tabulate(rows, self.head, form, disable_numparse=True, colalign=align))


def check_table_path(path: Path) -> None:
    """Raise UserError for a file name that names no format."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"must end in {' or '.join(FORMATS)}", argument="table", value=path)


def tables_of(result: ComparisonResult) -> list[Table]:
    """Return the tables of variants, of their pairs and of source lengths that are not empty."""
    tables = [variant_table(result), pair_table(result), length_table(result)]
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


def pair_table(result: ComparisonResult) -> Table:
    """Return the differences of all pairs of variants but those of the table of variants."""
    head = ("baseline", "variant", "difference", "sd of difference", "p")
    first = result.variants[0].variant.name
    rows = [
        [
            *(Cell(pair.baseline), Cell(pair.variant), Cell(pair.difference.mean, "+.1f")),
            *(Cell(pair.difference.deviation, ".2f"), Cell(pair.difference.p_value, ".3f")),
        ]
        for pair in result.pairs
        if pair.baseline != first
    ]
    return Table(head, rows)


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


def write_figures(result: ComparisonResult, form: str = "png") -> list[str]:
    """Write the curves and the lengths into the folder, as png, svg or pdf; return messages.

    Raises RunError if they cannot be written.
    """
    if (note := matplotlib_note()) is not None:
        return [f"note: {note}"]
    notes: list[str] = []
    figures = {result.plan.figure_path(CURVES, form): _curves(result)}
    if result.buckets:
        figures[result.plan.figure_path(LENGTHS, form)] = _lengths(result)
    for path, figure in figures.items():
        content, more = save(figure, f".{form}")
        notes += more
        with write_errors(path):
            atomic_write(path, content)
    paths = f"Figures: {' and '.join(map(str, figures))}"
    return [paths, *(f"note: {note}" for note in dict.fromkeys(notes))]


def _curves(result: ComparisonResult) -> "Figure":
    """Plot validation BLEU by step: thin lines for seeds, a thick one for their mean."""
    plan, several = result.plan, len(result.plan.seeds) > 1
    title = "Validation BLEU (greedy)" + ": mean of seeds (thin: each seed)" * several
    figure, axes = new_axes(title, "step")
    for index, variant in enumerate(result.variants):
        if plan.trained_as(variant.variant) != variant.variant:
            continue  # drawn with the variant that is trained
        curves = [run.curve for run in variant.runs if run.curve]
        for curve in curves if several else ():
            axes.plot(*zip(*curve, strict=True), linewidth=0.7, alpha=0.5, **style_of(index))
        names = [v.name for v in plan.variants if plan.trained_as(v) == variant.variant]
        steps, scores = mean_curve(curves)
        label = ", ".join(names)
        axes.plot(steps, scores, linewidth=2, marker=".", label=label, **style_of(index))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    add_legend(figure)
    return figure


def mean_curve(curves: Sequence[Curve]) -> tuple[list[int], list[float]]:
    """Return the steps and the mean scores of several seeds' curves, each sorted by step.

    Between two validations of a seed, its score is interpolated linearly. The mean extends over the
    steps at which some seed was validated and all seeds have a score. If there are none, it is
    that of the seeds which have a score at the step.
    """
    steps = sorted({step for curve in curves for step, _ in curve})
    if not steps:
        return [], []
    rows = []
    for curve in curves:
        places, scores = zip(*curve, strict=True)
        rows.append(np.interp(steps, places, scores, left=np.nan, right=np.nan))
    table = np.array(rows)  # [seeds, steps]; nan outside a seed's validations
    common = ~np.isnan(table).any(axis=0)
    chosen = common if common.any() else np.ones(len(steps), dtype=bool)
    means = np.nanmean(table[:, chosen], axis=0)
    return [step for step, keep in zip(steps, chosen, strict=True) if keep], means.tolist()


def _lengths(result: ComparisonResult) -> "Figure":
    """Plot BLEU by source length, with bars of one standard deviation over seeds.

    Lengths beyond those in training are shaded.
    """
    buckets, task, several = result.buckets, result.task, len(result.plan.seeds) > 1
    title = f"BLEU by source length ({task.split})"
    title += ": mean and standard deviation over seeds" * several
    within = sum(not bucket.beyond for bucket in buckets)
    if within < len(buckets):
        title += f"\nShaded: longer than any source in training ({task.longest} {task.unit.name})"
    figure, axes = new_axes(title, f"source {task.unit.name}, and number of sentences")
    count = len(result.variants)
    for index, variant in enumerate(result.variants):
        shift = (index - (count - 1) / 2) * min(0.05, 0.6 / count)  # beside the other variants
        axes.errorbar(
            [bucket + shift for bucket in range(len(buckets))],
            variant.by_length,
            [value or 0.0 for value in variant.by_length_deviation] if several else None,
            marker=MARKERS[index % len(MARKERS)],
            label=variant.variant.name,
            capsize=3,
            **style_of(index),
        )
    ticks = [f"{bucket.label.rstrip('*')}\n{len(bucket.rows):,}" for bucket in buckets]
    axes.set_xticks(range(len(buckets)), ticks)
    axes.set_xlim(-0.4, len(buckets) - 0.6)
    axes.set_ylim(bottom=0)
    if within < len(buckets):
        axes.axvspan(within - 0.5, len(buckets) - 0.5, color=SHADE, zorder=0)
    figure.set_figwidth(max(figure.get_figwidth(), 0.7 * len(buckets) + 2))
    add_legend(figure)
    return figure
