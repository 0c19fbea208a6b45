"""Figures of `seq2seq compare`: titles, labels and files, drawn without any training."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from seq2seq.tools.analysis.compare import charts
from seq2seq.tools.analysis.compare.variants import Plan
from seq2seq.tools.analysis.scored_text import WORDS, Bucket


def comparison(
    folder: Path, names: list[str], buckets: int, beyond: int = 0, sharing: int = 1
) -> SimpleNamespace:
    """Return results of variants, the first ones sharing a training, with two seeds each."""
    variants = [SimpleNamespace(name=name) for name in names]
    cut = [
        Bucket(5 * n + 1, 5 * n + 5, list(range(1234)), n >= buckets - beyond)
        for n in range(buckets)
    ]
    scored = []
    for index, variant in enumerate(variants):
        curves = [[(step, 30.0 + index / 9 + n) for step in (100, 200)] for n in range(2)]
        bleu = [[30 + index / 9 - n / 2, 31 - n / 2] for n in range(buckets)]
        runs = [SimpleNamespace(curve=curve) for curve in curves]
        scored.append(SimpleNamespace(variant=variant, runs=runs, by_length=bleu))
    paths = Plan((), (1, 2), folder, ())
    plan = SimpleNamespace(
        seeds=(1, 2),
        variants=variants,
        trained_as=lambda variant_of_run: (
            variants[0] if variant_of_run in variants[:sharing] else variant_of_run
        ),
        figure_path=paths.figure_path,
    )
    task = SimpleNamespace(longest=5 * (buckets - beyond), unit=WORDS)
    request = SimpleNamespace(split="valid")
    return SimpleNamespace(plan=plan, task=task, request=request, buckets=cut, variants=scored)


NAMES = ["none", "bahdanau", "luong"]


@pytest.mark.thorough
def test_equal_results_have_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = comparison(tmp_path, NAMES, 4, 1)
    contents = []
    for _ in range(2):
        charts.write_figures(result)
        contents.append([(tmp_path / f"{name}.svg").read_bytes() for name in ("curves", "lengths")])
    assert contents[0] == contents[1]
    assert all(
        b">BLEU, valid</text>" in content or b">validation BLEU" in content
        for content in contents[0]
    )
    for content in contents[0]:
        assert b"Date" not in content
        assert all(f">{name}</text>".encode() in content for name in NAMES)


def test_names_may_be_in_other_scripts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = comparison(tmp_path, ["注意力", "plain"], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert charts.write_figures(result).startswith("Figures: ")
    assert ">注意力</text>" in (tmp_path / "lengths.svg").read_text(encoding="utf-8")


def test_a_curve_is_the_mean_of_its_seeds_where_all_were_validated() -> None:
    def variant(name: str, *curves: list[tuple[int, float]]) -> SimpleNamespace:
        runs = [SimpleNamespace(curve=curve) for curve in curves]
        return SimpleNamespace(variant=SimpleNamespace(name=name), runs=runs)

    same = variant("same", [(2, 1.0), (4, 3.0)], [(2, 2.0), (4, 5.0), (6, 9.0)])
    at_other_steps = variant("apart", [(4, 1.0)], [(6, 2.0)])
    single = variant("single", [(2, 1.0)], [])
    variants = [same, at_other_steps, single]
    plan = SimpleNamespace(
        variants=[entry.variant for entry in variants], trained_as=lambda entry: entry
    )
    bands = charts.curve_bands(SimpleNamespace(plan=plan, variants=variants))
    assert [(band.name, band.places, band.means) for band in bands] == [
        ("same", [2, 4], [1.5, 4.0]),
        ("single", [2], [1.0]),
    ]
    assert bands[0].seeds == [[1.0, 3.0], [2.0, 5.0]]
    assert bands[0].spreads == pytest.approx([0.5**0.5, 2**0.5])
    assert bands[1].spreads == [0.0]


def test_each_seed_has_a_line_and_the_deviation_an_area(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = charts.figures_of(comparison(tmp_path, NAMES, 4))
    for figure in figures.values():
        (axes,) = figure.axes
        assert len(axes.lines) == len(NAMES) * (1 + 2)
        assert len(axes.collections) == len(NAMES)
        assert axes.get_xlabel()
        assert axes.get_ylabel()
