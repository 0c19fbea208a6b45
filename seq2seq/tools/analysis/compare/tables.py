"""Tables of a comparison: variants, their differences, source lengths; for a terminal or a paper.

Files of tables are named after what they show and the text that was scored: `variants.test.tex`.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tabulate import tabulate

from seq2seq.evaluation.bootstrap import deviation
from seq2seq.evaluation.metrics import METRICS
from seq2seq.runtime import console, files
from seq2seq.tools.analysis.compare.scoring import COMPARED, ComparisonResult, VariantResult
from seq2seq.tools.analysis.compare.variants import TABLES

_LATEX_SPECIAL = re.compile(r"[&%$#_{}~^\\]")
_LATEX_NAMES = {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
_RANGE = re.compile(r"(?<=[0-9])-(?=[0-9])")  # of source lengths
_MINUS = re.compile(r"(?<![\w.])-(?=[0-9])")
_MARKDOWN_SPECIAL = re.compile(r"([|*_`\\])")
DEVIATION = "sd"
INTERVAL = "95% interval"


class Cell(NamedTuple):
    """Value of a table, None if there is none, with its format."""

    value: float | str | tuple[float, float] | None
    form: str = ""
    is_best: bool = False

    @property
    def text(self) -> str:
        """Return the formatted value, empty if there is none; a rounded zero has no sign."""
        if self.value is None or isinstance(self.value, str):
            return self.value or ""
        if isinstance(self.value, tuple):
            return " to ".join(rounded(bound, self.form) for bound in self.value)
        return rounded(self.value, self.form)


class Table(NamedTuple):
    """Heads of columns, and rows of cells."""

    name: str
    head: list[str]
    rows: list[list[Cell]]

    def as_text(self) -> str:
        """Align the columns; a star marks the best values of a column."""
        return console.aligned_table([self.head, *self._formatted("{}*".format, str)])

    def as_markdown(self) -> str:
        """Format as a Markdown table, the best values in bold."""
        rows = self._formatted("**{}**".format, _markdown)
        return _tabulated(self.head, rows, "github", self._alignment())

    def as_latex(self) -> str:
        r"""Format as a LaTeX `tabular`, the best values in `\textbf`."""
        rows = self._formatted(r"\textbf{{{}}}".format, _latex)
        head = [_RANGE.sub("--", _latex(text)) for text in self.head]
        return _tabulated(head, rows, "latex_raw", self._alignment())

    def as_csv(self) -> str:
        """Format as comma-separated values, with unrounded numbers; an interval is two columns."""
        intervals = [
            any(isinstance(row[column].value, tuple) for row in self.rows)
            for column in range(len(self.head))
        ]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = list[str]()
        for name, is_interval in zip(self._full_names(), intervals, strict=True):
            names += [f"{name}, low", f"{name}, high"] if is_interval else [name]
        writer.writerow(names)
        for row in self.rows:
            writer.writerow(_values(row, intervals))
        return text.getvalue()

    def _full_names(self) -> list[str]:
        """Return the heads, those of a deviation or interval after the column that has it."""
        names = list[str]()
        of_column = ""
        for head in self.head:
            if head in (DEVIATION, INTERVAL):
                names.append(f"{of_column} {head}")
            else:
                names.append(head)
                of_column = head
        return names

    def _alignment(self) -> list[str]:
        """Return the sides at which the columns are aligned: left for texts."""
        columns = zip(*self.rows, strict=True)
        return [
            "left" if all(isinstance(cell.value, str) for cell in column) else "right"
            for column in columns
        ]

    def _formatted(
        self, bold: Callable[[str], str], escape: Callable[[str], str]
    ) -> list[list[str]]:
        return [
            [bold(escape(cell.text)) if cell.is_best else escape(cell.text) for cell in row]
            for row in self.rows
        ]


def _values(row: Sequence[Cell], intervals: Sequence[bool]) -> list[object]:
    """Return the values of a row, of intervals both bounds, for a file."""
    values = list[object]()
    for cell, is_interval in zip(row, intervals, strict=True):
        if not is_interval:
            values.append("" if cell.value is None else cell.value)
        elif isinstance(cell.value, tuple):
            values += cell.value
        else:
            values += ["", ""]
    return values


def rounded(value: float, form: str) -> str:
    """Format a number; one that rounds to zero has no sign."""
    text = format(value, form)
    signless = text.lstrip("+-")
    return text if signless.strip("0.") else signless


def _tabulated(
    head: Sequence[str], rows: Sequence[Sequence[str]], form: str, alignment: Sequence[str]
) -> str:
    return str(tabulate(rows, head, tablefmt=form, disable_numparse=True, colalign=alignment))


def _markdown(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(r"\\\1", text)


def _latex(text: str) -> str:
    escaped = _LATEX_SPECIAL.sub(lambda match: _LATEX_NAMES.get(match[0], rf"\{match[0]}"), text)
    return _MINUS.sub("$-$", escaped)


def tables_of(result: ComparisonResult) -> list[Table]:
    """Return the tables of variants, of their differences if there are several, and of lengths."""
    tables = [variant_table(result)]
    if result.pairs:
        tables.append(difference_table(result))
    if result.buckets:
        tables.append(length_table(result))
    return tables


def variant_table(result: ComparisonResult) -> Table:
    """Return scores and costs of the variants, one per row; last, why others failed."""
    scores = ["BLEU", DEVIATION, INTERVAL, "chrF2", DEVIATION, INTERVAL, "ensemble"]
    head = ["variant", *scores, "AER", DEVIATION, "parameters", "tokens/s", "minutes", "note"]
    rows = [list(_variant_cells(variant)) for variant in result.variants]
    _mark_best(rows, (1, 4, 7))
    _mark_best(rows, (8,), min)
    empty = [Cell(None)] * (len(head) - 2)
    for name, reason in result.failed.items():
        rows.append([Cell(name), *empty, Cell(f"failed: {reason}")])
    return _without_empty_columns(Table("variants", head, rows))


def _variant_cells(result: VariantResult) -> Iterator[Cell]:
    runs = result.runs
    errors = result.alignment_errors
    speeds = [run.tokens_per_second for run in runs if run.tokens_per_second is not None]
    yield Cell(result.variant.name)
    for key in COMPARED:
        system = result.scores[key]
        yield Cell(system.mean, ".1f")
        yield Cell(system.deviation, ".2f")
        yield Cell(system.ci, ".1f")
    yield Cell(result.ensemble and result.ensemble.text.scores["bleu"].score, ".1f")
    yield Cell(mean(errors) if errors else None, ".1f")
    yield Cell(deviation(errors), ".1f")
    yield Cell(result.parameters, ",")
    yield Cell(mean(speeds) if speeds else None, ",.0f")
    yield Cell(mean(run.minutes for run in runs), ".1f")
    yield Cell(None)


def difference_table(result: ComparisonResult) -> Table:
    """Return the differences of all pairs of variants, by metric."""
    head = ["metric", "variant", "minus", "difference", DEVIATION, INTERVAL, "p"]
    rows = []
    for key in COMPARED:
        for pair in result.pairs:
            tested = pair.differences[key]
            row = [Cell(METRICS[key].name), Cell(pair.variant), Cell(pair.baseline)]
            row += [
                Cell(tested.mean, "+.1f"),
                Cell(tested.deviation, ".2f"),
                Cell(tested.ci, ".1f"),
            ]
            row += [Cell(tested.p_value, ".3f"), Cell(tested.seeds_ci, ".1f")]
            rows.append([*row, Cell(tested.seeds_p_value, ".3f")])
    head += [f"{INTERVAL} with seeds", "p with seeds"]
    return _without_empty_columns(Table("differences", head, rows))


def length_table(result: ComparisonResult) -> Table:
    """Return BLEU by source length, one variant per row, below the numbers of sentences."""
    unit = result.task.unit.name
    head = [f"source {unit}", *(bucket.label for bucket in result.buckets)]
    counts = [Cell("sentences"), *(Cell(len(bucket.rows), ",") for bucket in result.buckets)]
    rows = [
        [Cell(variant.variant.name), *(Cell(mean(scores), ".1f") for scores in variant.by_length)]
        for variant in result.variants
    ]
    _mark_best(rows, range(1, len(head)))
    return Table("lengths", head, [counts, *rows])


def _mark_best(
    rows: Sequence[list[Cell]],
    columns: Iterable[int],
    choose: Callable[[Iterable[float]], float] = max,
) -> None:
    """Mark the best values of columns, and others of equal format; not of a single row."""
    for column in columns if len(rows) > 1 else ():
        values = [row[column].value for row in rows]
        numbers = [value for value in values if isinstance(value, float | int)]
        if not numbers:
            continue
        best = rounded(choose(numbers), rows[0][column].form)
        for row in rows:
            row[column] = row[column]._replace(is_best=row[column].text == best)


def _without_empty_columns(table: Table) -> Table:
    """Leave out the columns that no row has a value for."""
    columns = [
        column
        for column in range(len(table.head))
        if any(row[column].value is not None for row in table.rows)
    ]
    head = [table.head[column] for column in columns]
    return Table(table.name, head, [[row[column] for column in columns] for row in table.rows])


def write_tables(result: ComparisonResult, form: str, title: str, legend: str) -> list[Path]:
    """Write a file for each table in a form of TABLES, and return their paths; raises RunError.

    LaTeX has the title and the legend as comments, Markdown around the table.
    """
    paths = []
    for table in tables_of(result):
        if form == "csv":
            text = table.as_csv()
        elif form == "latex":
            comments = "".join(f"% {line}\n" for line in [title, *legend.splitlines()])
            text = f"{comments}{table.as_latex()}\n"
        else:
            notes = "\n".join(f"- {_markdown(line)}" for line in legend.splitlines())
            text = f"{_markdown(title)}\n\n{table.as_markdown()}\n\n{notes}\n"
        path = result.plan.table_path(table.name, result.request.split, TABLES[form])
        with files.write_errors(path):
            files.atomic_write(path, text.encode())
        paths.append(path)
    return paths
