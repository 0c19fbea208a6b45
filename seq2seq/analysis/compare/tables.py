"""Tables of a comparison: variants, pairs of variants and source lengths, in several formats."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tabulate import tabulate

from seq2seq.analysis.compare.scoring import ComparisonResult, VariantResult, bleu_scores
from seq2seq.evaluation.bootstrap import deviation
from seq2seq.runtime.console import aligned_table
from seq2seq.runtime.errors import UserError

FORMATS = (".md", ".tex", ".csv")
_LATEX_SPECIAL = re.compile(r"[&%$#_{}]|[~^\\]")
_LATEX_NAMES = {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}


class Cell(NamedTuple):
    """Value of a table, None if there is none, with its format and whether it is the best."""

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
        """Align the columns; a star marks the best values of a column."""
        rows = [[f"{cell.text}{'*' * cell.best}" for cell in row] for row in self.rows]
        return aligned_table([self.head, *rows])

    def as_markdown(self) -> str:
        """Format as a Markdown table, the best values in bold."""
        rows = [
            [f"**{cell.text}**" if cell.best else cell.text.replace("|", r"\|") for cell in row]
            for row in self.rows
        ]
        return _tabulated(self.head, rows, "github")

    def as_latex(self) -> str:
        r"""Format as a LaTeX `tabular`, the best values in `\textbf`."""
        rows = [
            [rf"\textbf{{{_latex(cell.text)}}}" if cell.best else _latex(cell.text) for cell in row]
            for row in self.rows
        ]
        return _tabulated([*map(_latex, self.head)], rows, "latex_raw")

    def as_csv(self) -> str:
        """Format as comma-separated values, with unrounded numbers."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows(
            [["" if cell.value is None else cell.value for cell in row] for row in self.rows]
        )
        return text.getvalue()


def check_table_path(path: Path) -> None:
    """Raise UserError for a file name that names no format."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(
            f"must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}", argument="table", value=path
        )


def formatted(result: ComparisonResult, suffix: str) -> str:
    """Format all tables of a comparison for a file with this suffix, one of FORMATS."""
    if suffix == ".csv":  # one table in a file: the lengths are more columns of the variants
        variants, lengths = variant_table(result), length_table(result)
        nothing = [Cell(None)] * len(lengths.head)  # for failed variants, which are last
        joined = [
            [*row, *more[1:]]
            for row, more in zip_longest(variants.rows, lengths.rows[1:], fillvalue=nothing)
        ]
        unit = result.task.unit.name
        heads = [f"BLEU, {head.rstrip('*')} {unit}" for head in lengths.head[1:]]
        return Table((*variants.head, *heads), joined).as_csv()
    tables = [variant_table(result), pair_table(result), length_table(result)]
    form = Table.as_markdown if suffix == ".md" else Table.as_latex
    return "\n\n".join(form(table) for table in tables if table.rows and len(table.head) > 1) + "\n"


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


def _tabulated(head: Sequence[str], rows: Sequence[Sequence[str]], form: str) -> str:
    align = ("left", *["right"] * (len(head) - 1))
    return str(tabulate(rows, head, tablefmt=form, disable_numparse=True, colalign=align))


def _latex(text: str) -> str:
    return _LATEX_SPECIAL.sub(lambda match: _LATEX_NAMES.get(match[0], rf"\{match[0]}"), text)
