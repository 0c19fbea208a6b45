"""Figures of a comparison: validation curves, and BLEU by source length."""

import importlib.util
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seq2seq.analysis.compare.scoring import ComparisonResult, VariantResult
from seq2seq.analysis.compare.variants import CURVES, LENGTHS
from seq2seq.analysis.figures import choose_fonts, save, widest
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
WIDTH, HEIGHT = 7.5, 4.2  # least size of a figure in inches, like all lengths below
PLOT = 5.9  # width for the axes at least
BESIDE, AROUND = 0.8, 1.0  # room for the tick labels, and for title and tick labels
LABEL = 0.18  # from line to line of labels
TICK_GAP = 0.12
GAP = 0.052  # between labels, at most, as a share of the axes height
LABEL_SIZE, TICK_SIZE = 9, 8  # points
WRAPPED = 40  # characters of a label's line; a single name may be longer
INSTEAD = "write figures as svg"

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
    names = [each.variant.name for each in result.variants]
    fonts, notes = choose_fonts(names, f".{form}", INSTEAD)
    drawn = [(result.plan.figure_path(CURVES, form), _curves(result, fonts))]
    if result.buckets:
        drawn.append((result.plan.figure_path(LENGTHS, form), _lengths(result, fonts)))
    for path, figure in drawn:
        content, more = save(figure, f".{form}", INSTEAD)
        notes += more
        with write_errors(path):
            atomic_write(path, content)
    shown = f"Figures: {' and '.join(str(path) for path, _ in drawn)}"
    return [shown, *(f"note: {note}" for note in dict.fromkeys(notes))]


def _curves(result: ComparisonResult, fonts: list[str]) -> "Figure":
    """Plot validation BLEU by step: thin lines for seeds, a thick one for their mean."""
    seeds = len(result.plan.seeds)
    drawn = [(*each, [run.curve for run in each[2].runs if run.curve]) for each in _trained(result)]
    means = [mean_curve(curves) for *_, curves in drawn]
    title = _curves_title(seeds, [curves for *_, curves in drawn])
    figure, axes = _axes(title, "step", [name for name, *_ in drawn], fonts)
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
    _label_ends(axes, lines, fonts)
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


def _lengths(result: ComparisonResult, fonts: list[str]) -> "Figure":
    """Plot BLEU by source length, with a band of one standard deviation over seeds.

    Lengths beyond those in training are shaded.
    """
    cut, several = result.buckets, len(result.plan.seeds) > 1
    ticks = [f"{each.label.rstrip('*')}\n{len(each.rows):,}" for each in cut]
    x_label = f"source {result.task.unit.name}, and number of sentences"
    names = [each.variant.name for each in result.variants]
    figure, axes = _axes(_lengths_title(result), x_label, names, fonts, ticks)
    lines = []
    for index, each in enumerate(result.variants):
        colour, line_style = _style(index)
        marker = MARKERS[index % len(MARKERS)]
        xs = _positions(len(cut), index, len(names))
        axes.plot(xs, each.by_length, line_style, color=colour, linewidth=2, marker=marker)
        if several:
            _deviations(axes, xs, each, colour)
        lines.append(Line(each.variant.name, index, xs, each.by_length))
    axes.set_xticks(range(len(cut)), ticks)
    axes.set_xlim(-0.4, len(cut) - 0.6)
    axes.set_ylim(bottom=0)
    known = sum(not bucket.beyond for bucket in cut)
    if known < len(cut):
        axes.axvspan(known - 0.5, len(cut) - 0.5, color=SHADE, zorder=0)
    _label_ends(axes, lines, fonts)
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


def _axes(
    title: str, x_label: str, names: Sequence[str], fonts: list[str], ticks: Sequence[str] = ()
) -> "tuple[Figure, Axes]":
    """Return a figure with room for the names of all lines, and for ticks at equal distances."""
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    rows = [row for name in names for row in _rows(name)]
    tick_rows = [row for tick in ticks for row in tick.splitlines()]
    plot = len(ticks) * (widest(tick_rows, FontProperties(size=TICK_SIZE)) + TICK_GAP) + BESIDE
    beside = widest(rows, FontProperties(family=fonts, size=LABEL_SIZE))
    around = AROUND + LABEL * title.count("\n")
    size = max(WIDTH, max(PLOT, plot) + beside), max(HEIGHT, LABEL * len(rows) + around)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x_label, color=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dfe2e7", linewidth=0.7)
    axes.tick_params(colors=GREY, labelsize=TICK_SIZE)
    return figure, axes


def _rows(name: str) -> list[str]:
    """Wrap the label of a line, which may have the names of several variants."""
    return textwrap.wrap(name, WRAPPED, break_long_words=False, break_on_hyphens=False)


def _style(index: int) -> tuple[str, str]:
    colours = len(COLOURS)
    return COLOURS[index % colours], LINE_STYLES[index // colours % len(LINE_STYLES)]


def _label_ends(axes: "Axes", lines: Sequence[Line], fonts: list[str]) -> None:
    """Label each line at its end, and spread labels that would overlap."""
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    ends = sorted((line for line in lines if line.ys), key=lambda line: line.ys[-1])
    heights = [(line.ys[-1] - low) / (high - low) for line in ends for _ in _rows(line.name)]
    places = iter(spread(heights, min(GAP, 1 / max(1, len(heights) - 1))))
    for line in ends:
        rows = _rows(line.name)
        height = mean(islice(places, len(rows)))
        axes.annotate(
            "\n".join(rows),
            (line.xs[-1], line.ys[-1]),
            xytext=(1.03, height),
            textcoords="axes fraction",
            annotation_clip=False,
            va="center",
            fontsize=LABEL_SIZE,
            fontfamily=fonts,
            parse_math=False,
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
    """Move ascending heights at least `gap` apart, within 0 and 1 if they have room.

    The squares of the moves have the least sum (isotonic regression by pool adjacent violators).
    """
    groups: list[list[float]] = []  # heights above the room of the labels below them
    for index, height in enumerate(heights):
        groups.append([height - gap * index])
        while len(groups) > 1 and mean(groups[-1]) < mean(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    room = 1 - gap * (len(heights) - 1)
    lowest = [min(max(mean(group), 0.0), room) for group in groups for _ in group]
    return [low + gap * index for index, low in enumerate(lowest)]
