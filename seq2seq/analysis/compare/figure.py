"""Figures of a comparison: validation curves, and BLEU by source length."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seq2seq.analysis.compare.scoring import ComparisonResult, VariantResult
from seq2seq.analysis.compare.variants import CURVES, LENGTHS
from seq2seq.runs.layout import METRICS
from seq2seq.runtime.figures import add_legend, matplotlib_note, new_axes, save, style_of
from seq2seq.runtime.files import atomic_write, write_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vPX"
SHADE = "#eef0f3"

Curve = Sequence[tuple[int, float]]  # step and validation BLEU


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
    seeds = len(result.plan.seeds)
    trained = [
        (names, index, [run.curve for run in variant.runs if run.curve])
        for names, index, variant in _trained(result)
    ]
    figure, axes = new_axes(_curves_title(seeds, [curves for *_, curves in trained]), "step")
    for names, index, curves in trained:
        for curve in curves if seeds > 1 else ():
            xs, ys = zip(*curve, strict=True)
            single = "." if len(xs) == 1 else ""
            axes.plot(xs, ys, linewidth=0.7, alpha=0.5, marker=single, **style_of(index))
        steps, scores = mean_curve(curves)
        single = "o" if len(steps) == 1 else ""
        axes.plot(steps, scores, linewidth=2, marker=single, label=names, **style_of(index))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    add_legend(figure)
    return figure


def _curves_title(seeds: int, drawn: Sequence[Sequence[Curve]]) -> str:
    """Describe the lines of the figure of curves: `drawn` has the curves of each training."""
    title, runs = "Validation BLEU (greedy)", seeds * len(drawn)
    missing = runs - sum(map(len, drawn))
    if seeds > 1:
        title += f": mean {'over' if missing else f'of {seeds}'} seeds (thin: each seed)"
    if missing:
        title += f".\nRuns without a curve: {missing} of {runs} ({METRICS} is lost or damaged)"
    steps = [{tuple(step for step, _ in curve) for curve in curves} for curves in drawn]
    if any(len(different) > 1 for different in steps):
        title += ".\nSeeds validated at different steps: interpolated linearly in between"
    return title


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


def _trained(result: ComparisonResult) -> Iterator[tuple[str, int, VariantResult]]:
    """Yield each training once: the names of the variants that share it, index and result."""
    plan = result.plan
    for index, trained in enumerate(result.variants):
        if plan.trained_as(trained.variant) == trained.variant:
            sharing = [
                variant.name
                for variant in plan.variants
                if plan.trained_as(variant) == trained.variant
            ]
            yield ", ".join(sharing), index, trained


def _lengths(result: ComparisonResult) -> "Figure":
    """Plot BLEU by source length, with a band of one standard deviation over seeds.

    Lengths beyond those in training are shaded.
    """
    buckets, variants = result.buckets, result.variants
    x_label = f"source {result.task.unit.name}, and number of sentences"
    figure, axes = new_axes(_lengths_title(result), x_label)
    for index, variant in enumerate(variants):
        marker, name = MARKERS[index % len(MARKERS)], variant.variant.name
        xs = _positions(len(buckets), index, len(variants))
        axes.plot(xs, variant.by_length, linewidth=2, marker=marker, label=name, **style_of(index))
        if len(result.plan.seeds) > 1:
            _deviations(axes, xs, variant, style_of(index)["color"])
    ticks = [f"{bucket.label.rstrip('*')}\n{len(bucket.rows):,}" for bucket in buckets]
    axes.set_xticks(range(len(buckets)), ticks)
    axes.set_xlim(-0.4, len(buckets) - 0.6)
    axes.set_ylim(bottom=0)
    within = sum(not bucket.beyond for bucket in buckets)
    if within < len(buckets):
        axes.axvspan(within - 0.5, len(buckets) - 0.5, color=SHADE, zorder=0)
    figure.set_figwidth(max(figure.get_figwidth(), 0.7 * len(buckets) + 2))
    add_legend(figure)
    return figure


def _lengths_title(result: ComparisonResult) -> str:
    task, several = result.task, len(result.plan.seeds) > 1
    title = f"BLEU by source length ({task.split})"
    title += ": mean and standard deviation over seeds" * several
    if any(bucket.beyond for bucket in result.buckets):
        title += f"\nShaded: longer than any source in training ({task.longest} {task.unit.name})"
    return title


def _positions(buckets: int, index: int, variants: int) -> list[float]:
    """Return the place of each bucket; the points of a single one are beside each other."""
    beside = (index - (variants - 1) / 2) * min(0.05, 0.6 / variants) if buckets == 1 else 0.0
    return [bucket + beside for bucket in range(buckets)]


def _deviations(axes: "Axes", xs: Sequence[float], result: VariantResult, colour: str) -> None:
    """Draw the standard deviation over seeds: a band, or a bar for a single bucket."""
    means, spreads = np.array(result.by_length), np.array(result.by_length_deviation)
    low, high = np.maximum(means - spreads, 0.0), means + spreads
    if len(xs) == 1:
        axes.errorbar(xs, means, [means - low, high - means], fmt="none", ecolor=colour, capsize=3)
    else:
        axes.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
