"""Figures of a comparison: curves of training, and BLEU by source length, with single seeds."""

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from seq2seq.evaluation.bootstrap import deviation
from seq2seq.runtime import files
from seq2seq.runtime.figures import Axes, Band, matplotlib_note, save, seed_chart
from seq2seq.tools.analysis.compare.scoring import ComparisonResult
from seq2seq.tools.analysis.compare.variants import CURVES, FIGURE_SUFFIXES, LENGTHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve_bands(result: ComparisonResult) -> list[Band]:
    """Return the curves of each training, named after variants that share it.

    The mean is taken at the steps at which all seeds were validated.
    """
    plan = result.plan
    bands = list[Band]()
    for variant in result.variants:
        names = [v.name for v in plan.variants if plan.trained_as(v) == variant.variant]
        curves = [dict(run.curve) for run in variant.runs if run.curve]
        steps = sorted(set(curves[0]).intersection(*curves)) if curves else []
        if names and steps:
            values = [[curve[step] for curve in curves] for step in steps]
            bands.append(band(", ".join(names), list(map(float, steps)), values))
    return bands


def length_bands(result: ComparisonResult) -> list[Band]:
    """Return the BLEU of each variant by source length."""
    places = [float(place) for place in range(len(result.buckets))]
    return [band(entry.variant.name, places, entry.by_length) for entry in result.variants]


def band(name: str, places: list[float], values: Sequence[Sequence[float]]) -> Band:
    """Return the mean and deviation of the values of several seeds at each place."""
    means = [mean(of_seeds) for of_seeds in values]
    spreads = [deviation(list(of_seeds)) or 0.0 for of_seeds in values]
    seeds = [list(of_seed) for of_seed in zip(*values, strict=True)]
    return Band(name, places, means, spreads, seeds)


def figures_of(result: ComparisonResult) -> dict[str, "Figure"]:
    """Return the figures of a comparison by the names of their files, without suffixes."""
    several = len(result.plan.seeds) > 1
    what = "mean, ± deviation, and each seed" if several else "one seed"
    figures = {}
    if curves := curve_bands(result):
        axes = Axes(f"Training: {what}", "step", "validation BLEU, greedy search")
        figures[CURVES] = seed_chart(axes, curves)
    if buckets := result.buckets:
        unit = result.task.unit.name
        ticks = [f"{bucket.label}\n{len(bucket.rows):,}" for bucket in buckets]
        label = f"{unit} of the source, and number of sentences"
        title = f"Source length: {what}"
        axes = Axes(title, label, f"BLEU, {result.request.split}", ticks)
        figures[LENGTHS] = seed_chart(axes, length_bands(result))
    return figures


def write_figures(result: ComparisonResult) -> str:
    """Write the figures into the folder; return a message. Raises RunError if that fails."""
    if (note := matplotlib_note()) is not None:
        return f"note: {note}"
    names = []
    for name, figure in figures_of(result).items():
        for suffix in FIGURE_SUFFIXES:
            path = result.plan.figure_path(name, suffix)
            with files.write_errors(path):
                files.atomic_write(path, save(figure, suffix)[0])
        names.append(str(result.plan.figure_path(name, "")))
    suffixes = ", ".join(FIGURE_SUFFIXES)
    return f"Figures: {' and '.join(names)} ({suffixes})"
