"""Tables of `seq2seq compare` in all forms: the same values, bold as each form has it."""

import csv
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from seq2seq.evaluation.bootstrap import Difference, SystemScores
from seq2seq.tools.analysis.compare import tables
from seq2seq.tools.analysis.compare.scoring import VariantPair
from seq2seq.tools.analysis.compare.tables import Cell, Table
from seq2seq.tools.analysis.compare.variants import Plan
from seq2seq.tools.analysis.scored_text import WORDS, Bucket

TESTED = Difference(-0.04, 0.2, (-0.5, 0.4), 0.8, (-1.25, 1.17), 0.9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.04, "0.0"),
        (-0.04, "0.0"),
        (-0.0, "0.0"),
        (0.06, "+0.1"),
        (-0.06, "-0.1"),
        (-10.0, "-10.0"),
    ],
)
def test_a_difference_that_rounds_to_zero_has_no_sign(value: float, text: str) -> None:
    assert Cell(value, "+.1f").text == text


def variant(name: str, bleu: list[float], errors: list[float]) -> SimpleNamespace:
    """Return the result of a variant with some seeds, whose chrF2 is 20 more than its BLEU."""
    chrf = [score + 20 for score in bleu]
    return SimpleNamespace(
        variant=SimpleNamespace(name=name),
        runs=[SimpleNamespace(tokens_per_second=1234.5, minutes=1.5) for _ in bleu],
        ensemble=None,
        alignment_errors=errors,
        parameters=1_234_567,
        scores={"bleu": SystemScores(bleu, [], None), "chrf": SystemScores(chrf, [], None)},
        by_length=[[score, score + 1] for score in bleu],
    )


@pytest.fixture
def result(tmp_path: Path) -> SimpleNamespace:
    """Return results of three variants, one without attention, and a fourth that failed."""
    variants = [
        variant("none", [30.0, 31.0], []),
        variant("wide_1", [33.04, 33.0], [20.0, 22.0]),
        variant("deep", [33.0, 33.04], [25.0, 25.0]),
    ]
    differences = {"bleu": TESTED, "chrf": TESTED}
    pairs = [VariantPair("none", name, differences) for name in ("wide_1", "deep")]
    return SimpleNamespace(
        plan=Plan((), (1, 2), tmp_path, ()),
        request=SimpleNamespace(split="test"),
        task=SimpleNamespace(unit=WORDS),
        buckets=[Bucket(1, 5, [0, 1], False), Bucket(6, 9, [2], True)],
        variants=variants,
        pairs=pairs,
        failed={"wild": "seed 1: step 2: 10% & more"},
    )


def test_the_best_values_of_a_column_are_marked_with_ties(result: SimpleNamespace) -> None:
    table = tables.variant_table(result)
    best = {
        head: [row[0].value for row in table.rows if row[column].is_best]
        for column, head in enumerate(table.head)
    }
    assert best["BLEU"] == ["wide_1", "deep"]  # equal as they are printed
    assert best["AER"] == ["wide_1"], "the lowest"
    assert best["parameters"] == []


def test_columns_without_values_are_left_out(result: SimpleNamespace) -> None:
    assert "ensemble" not in tables.variant_table(result).head
    assert "AER" in tables.variant_table(result).head
    result.variants = result.variants[:1]
    assert "AER" not in tables.variant_table(result).head


def test_differences_of_all_pairs_are_listed_by_metric(result: SimpleNamespace) -> None:
    rows = [[cell.text for cell in row] for row in tables.difference_table(result).rows]
    ends = ["0.0", "0.20", "-0.5 to 0.4", "0.800", "-1.2 to 1.2", "0.900"]
    assert rows == [
        ["BLEU", "wide_1", "none", *ends],
        ["BLEU", "deep", "none", *ends],
        ["chrF2", "wide_1", "none", *ends],
        ["chrF2", "deep", "none", *ends],
    ]


def read_latex(text: str) -> list[list[str]]:
    """Return the cells of a LaTeX table; raises AssertionError if its rows differ in length."""
    lines = [line for line in text.splitlines() if line.rstrip().endswith(r"\\")]
    rows = [re.split(r"(?<!\\)&", line.rstrip().removesuffix(r"\\")) for line in lines]
    assert len({len(row) for row in rows}) == 1
    return [[cell.strip() for cell in row] for row in rows]


def test_latex_has_bold_and_escaped_cells(result: SimpleNamespace) -> None:
    text = tables.variant_table(result).as_latex()
    assert text.startswith(r"\begin{tabular}{l")
    assert text.endswith(r"\end{tabular}")
    rows = {row[0]: row for row in read_latex(text)}
    assert rows[r"wide\_1"][1] == r"\textbf{33.0}"
    assert rows["none"][1] == "30.5"
    assert rows["wild"][-1] == r"failed: seed 1: step 2: 10\% \& more"
    (_, difference, *_) = read_latex(tables.difference_table(result).as_latex())
    assert difference[3:6] == ["0.0", "0.20", "$-$0.5 to 0.4"]
    assert r"95\% interval" in text or "AER" in text
    (head, *_) = read_latex(tables.length_table(result).as_latex())
    assert head == ["source words", "1--5", "6--9*"]


def test_markdown_has_bold_and_escaped_cells(result: SimpleNamespace) -> None:
    lines = tables.variant_table(result).as_markdown().splitlines()
    wide = next(line for line in lines if "wide" in line)
    assert wide.startswith(r"| wide\_1 ")
    assert " **33.0** |" in wide
    assert len({line.count("|") for line in lines}) == 1


def test_csv_has_unrounded_numbers_and_the_bounds_of_intervals(result: SimpleNamespace) -> None:
    rows = list(csv.DictReader(io.StringIO(tables.variant_table(result).as_csv())))
    assert float(rows[1]["BLEU"]) == (33.04 + 33.0) / 2
    assert float(rows[1]["chrF2 sd"]) == pytest.approx(0.04 / 2**0.5)
    assert rows[0]["AER"] == ""
    pairs = list(csv.DictReader(io.StringIO(tables.difference_table(result).as_csv())))
    assert float(pairs[0]["difference 95% interval, low"]) == -0.5
    assert float(pairs[0]["95% interval with seeds, high"]) == 1.17


@pytest.mark.parametrize(("form", "suffix"), [("latex", "tex"), ("markdown", "md"), ("csv", "csv")])
def test_each_table_is_a_file(
    result: SimpleNamespace, tmp_path: Path, form: str, suffix: str
) -> None:
    paths = tables.write_tables(result, form, "test: 3 sentences", "p: two-sided\nBLEU nrefs:1|x")
    names = [f"{name}.test.{suffix}" for name in ("variants", "differences", "lengths")]
    assert [path.name for path in paths] == names
    assert set(paths) <= set(result.plan.output_paths("test", form))
    text = (tmp_path / names[0]).read_text(encoding="utf-8")
    assert ("test: 3 sentences" in text) == (form != "csv")
    if form == "latex":
        assert text.startswith("% test: 3 sentences\n% p: two-sided\n% BLEU nrefs:1|x\n\\begin")


def test_the_interval_of_one_row_leaves_that_of_another_empty() -> None:
    table = Table(
        "x", ["a", "95% interval"], [[Cell("b"), Cell((1.0, 2.0))], [Cell("c"), Cell(None)]]
    )
    assert table.as_csv().splitlines()[1:] == ["b,1.0,2.0", "c,,"]
