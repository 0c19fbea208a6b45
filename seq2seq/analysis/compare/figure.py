"""Figures of a comparison: validation curves, and BLEU by source length."""

import importlib.util
from collections.abc import Iterator, Sequence
from io import BytesIO
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seq2seq.analysis.compare.scoring import ComparisonResult, VariantResult
from seq2seq.analysis.compare.variants import CURVES, LENGTHS
from seq2seq.runs.layout import METRICS
from seq2seq.runtime.extras import install_command
from seq2seq.runtime.files import atomic_write, write_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito, distinct for the colour-blind; repeated with other line styles.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX"
GREY, SHADE = "#5c636e", "#eef0f3"
GAP = 0.052  # between labels, as a share of the axes height

Curve = Sequence[tuple[int, float]]  # step and validation BLEU


class Line(NamedTuple):
    """A labelled line in the colour of its variant."""

    name: str
    variant: int  # index of the variant
    xs: Sequence[float]
    ys: Sequence[float]


def write_figures(result: ComparisonResult, form: str = "png") -> list[str]:
    """Write the curves and the lengths into the folder, as png, svg or pdf; return messages.

    Raises RunError if they cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return [f"note: figures need matplotlib. Run: {install_command('plot')}"]
    drawn = [(result.plan.figure_path(CURVES, form), _curves(result))]
    if result.buckets:
        drawn.append((result.plan.figure_path(LENGTHS, form), _lengths(result)))
    for path, figure in drawn:
        content = BytesIO()
        figure.savefig(content, format=form, dpi=150)
        with write_errors(path):
            atomic_write(path, content.getvalue())
    return [f"Figures: {' and '.join(str(path) for path, _ in drawn)}"]


def _curves(result: ComparisonResult) -> "Figure":
    """Plot validation BLEU by step: thin lines for seeds, a thick one for their mean."""
    seeds = len(result.plan.seeds)
    drawn = [(*each, [run.curve for run in each[2].runs if run.curve]) for each in _trained(result)]
    means = [mean_curve(curves) for *_, curves in drawn]
    figure, axes = _axes(_curves_title(seeds, [curves for *_, curves in drawn]), "step")
    lines = []
    for (name, index, _, curves), (steps, scores) in zip(drawn, means, strict=True):
        colour, line_style = _style(index)
        for curve in curves if seeds > 1 else ():
            xs, ys = zip(*curve, strict=True)
            single = "." if len(xs) == 1 else ""
            axes.plot(xs, ys, line_style, color=colour, linewidth=0.7, alpha=0.5, marker=single)
        single = "o" if len(steps) == 1 else ""
        axes.plot(steps, scores, line_style, color=colour, linewidth=2, marker=single)
        lines.append(Line(name, index, steps, scores))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _label_ends(axes, lines)
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
    if any(len(each) > 1 for each in steps):
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
        own, scores = zip(*curve, strict=True)
        rows.append(np.interp(steps, own, scores, left=np.nan, right=np.nan))
    table = np.array(rows)  # [seeds, steps]; nan outside a seed's validations
    common = ~np.isnan(table).any(axis=0)
    chosen = common if common.any() else np.ones(len(steps), dtype=bool)
    means = np.nanmean(table[:, chosen], axis=0)
    return [step for step, keep in zip(steps, chosen, strict=True) if keep], means.tolist()


def _trained(result: ComparisonResult) -> Iterator[tuple[str, int, VariantResult]]:
    """Yield each training once: the names of the variants that share it, index and result."""
    plan = result.plan
    for index, found in enumerate(result.variants):
        own = found.variant
        if plan.trained_as(own) == own:
            sharing = [each.name for each in plan.variants if plan.trained_as(each) == own]
            yield ", ".join(sharing), index, found


def _lengths(result: ComparisonResult) -> "Figure":
    """Plot BLEU by source length, with a band of one standard deviation over seeds.

    Lengths beyond those in training are shaded.
    """
    task, cut = result.task, result.buckets
    several = len(result.plan.seeds) > 1
    band = ": mean and standard deviation over seeds" * several
    figure, axes = _axes(f"BLEU by source length ({task.split}){band}", f"source {task.unit.name}")
    positions = list(range(len(cut)))
    lines = []
    for index, each in enumerate(result.variants):
        colour, line_style = _style(index)
        marker = MARKERS[index % len(MARKERS)]
        axes.plot(positions, each.by_length, line_style, color=colour, linewidth=2, marker=marker)
        if several:
            means, spreads = np.array(each.by_length), np.array(each.by_length_deviation)
            low, high = np.maximum(means - spreads, 0.0), means + spreads
            axes.fill_between(positions, low, high, color=colour, alpha=0.15, linewidth=0)
        lines.append(Line(each.variant.name, index, positions, each.by_length))
    axes.set_xticks(
        positions,
        [f"{each.label.rstrip('*')}\nn = {len(each.rows):,}" for each in cut],
    )
    axes.set_xlim(-0.4, len(cut) - 0.6)
    axes.set_ylim(bottom=0)
    known = sum(not bucket.beyond for bucket in cut)
    if known < len(cut):
        axes.axvspan(known - 0.5, len(cut) - 0.5, color=SHADE, zorder=0)
        axes.text(
            known - 0.45,
            0.98,
            f"longer than any source in training ({task.longest} {task.unit.name})",
            transform=axes.get_xaxis_transform(),
            va="top",
            color=GREY,
            fontsize=8,
        )
    _label_ends(axes, lines)
    return figure


def _axes(title: str, x_label: str) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x_label, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dfe2e7", linewidth=0.7)
    axes.tick_params(colors=GREY, labelsize=8)
    return figure, axes


def _style(index: int) -> tuple[str, str]:
    colours = len(COLOURS)
    return COLOURS[index % colours], LINE_STYLES[index // colours % len(LINE_STYLES)]


def _label_ends(axes: "Axes", lines: Sequence[Line]) -> None:
    """Label each line at its end, and spread labels that would overlap."""
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    ends = sorted((line for line in lines if line.ys), key=lambda line: line.ys[-1])
    heights = spread([(line.ys[-1] - low) / (high - low) for line in ends], GAP)
    for line, height in zip(ends, heights, strict=True):
        axes.annotate(
            line.name.replace("$", r"\$"),
            (line.xs[-1], line.ys[-1]),
            xytext=(1.03, height),
            textcoords="axes fraction",
            annotation_clip=False,
            va="center",
            fontsize=9,
            arrowprops={
                "arrowstyle": "-",
                "color": _style(line.variant)[0],
                "linewidth": 1,
                "linestyle": (0, (1, 3)),  # dots: where a curve ends early, this is no part of it
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 4,
            },
        )
    axes.set_xlim(right=right)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights at least `gap` apart; each group keeps its mean."""
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _top(groups[-2], gap) + gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, gap) + gap * i for group in groups for i in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return mean(group) - gap * (len(group) - 1) / 2


def _top(group: Sequence[float], gap: float) -> float:
    return mean(group) + gap * (len(group) - 1) / 2
