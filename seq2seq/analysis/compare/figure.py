"""The curves of a comparison, and BLEU against source length, as PNG by matplotlib."""

import importlib.util
from collections.abc import Iterator, Sequence
from io import BytesIO
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.analysis.compare.compare import Outcome, Result
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by the colour-blind too; then again with other strokes.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
STROKES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX"
SOFT, SHADE = "#5c636e", "#eef0f3"
GAP = 0.052  # between two labels, of the height of the axes


class Line(NamedTuple):
    """A line with its name behind its end; `place` is its variant's, which gives the colour."""

    name: str
    place: int
    xs: Sequence[float]
    ys: Sequence[float]


def write_pictures(result: Result) -> list[str]:
    """Write curves.png and lengths.png into the folder; returns what to say of them.

    Raises RunError where they cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return ["note: no pictures without matplotlib: pip install matplotlib"]
    drawn = [(result.plan.folder / "curves.png", _curves(result))]
    if result.buckets:
        drawn.append((result.plan.folder / "lengths.png", _lengths(result)))
    for path, figure in drawn:
        content = BytesIO()
        figure.savefig(content, format="png", dpi=150)
        try:
            atomic_write(path, content.getvalue())
        except OSError as error:
            raise RunError(f"{path}: cannot be written ({error.strerror or error})") from None
    return [f"Pictures: {' and '.join(str(path) for path, _ in drawn)}"]


def _curves(result: Result) -> "Figure":
    """Validation BLEU by update: a thin line a seed, a thick one their mean."""
    seeds = len(result.plan.seeds)
    title = "Validation BLEU (greedy)" + (f": mean of {seeds} seeds, each thin" * (seeds > 1))
    figure, axes = _axes(title, "updates")
    lines = []
    for name, place, outcome in _trained(result):
        colour, stroke = _look(place)
        curves = [dict(run.curve) for run in outcome.runs]
        for curve in curves if seeds > 1 else ():
            axes.plot(
                list(curve), list(curve.values()), stroke, color=colour, linewidth=0.7, alpha=0.5
            )
        steps = [step for step in curves[0] if all(step in curve for curve in curves)]
        means = [mean(curve[step] for curve in curves) for step in steps]
        single = "o" if len(steps) == 1 else ""
        axes.plot(steps, means, stroke, color=colour, linewidth=2, marker=single)
        lines.append(Line(name, place, steps, means))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _label_ends(axes, lines)
    return figure


def _trained(result: Result) -> Iterator[tuple[str, int, Outcome]]:
    """Each training once, with the names of all variants that share it, and its place."""
    for place, outcome in enumerate(result.outcomes):
        if result.plan.trained_as(outcome.variant) == outcome.variant:
            sharing = [
                each.name
                for each in result.plan.variants
                if result.plan.trained_as(each) == outcome.variant
            ]
            yield ", ".join(sharing), place, outcome


def _lengths(result: Result) -> "Figure":
    """BLEU by words of the source; what is longer than any in training is shaded."""
    task, cut = result.task, result.buckets
    figure, axes = _axes(f"BLEU by length of the source ({task.split})", "words of the source")
    places = list(range(len(cut)))
    lines = []
    for place, outcome in enumerate(result.outcomes):
        colour, stroke = _look(place)
        marker = MARKERS[place % len(MARKERS)]
        axes.plot(places, outcome.by_length, stroke, color=colour, linewidth=2, marker=marker)
        lines.append(Line(outcome.variant.name, place, places, outcome.by_length))
    axes.set_xticks(
        places,
        [f"{each.label.rstrip('*')}\nn = {len(each.rows):,}" for each in cut],
    )
    axes.set_xlim(-0.4, len(cut) - 0.6)
    axes.set_ylim(bottom=0)
    known = sum(not bucket.beyond for bucket in cut)
    if known < len(cut):
        axes.axvspan(known - 0.5, len(cut) - 0.5, color=SHADE, zorder=0)
        axes.text(
            known - 0.45,
            0.02,
            f"longer than any in training ({task.longest} words)",
            transform=axes.get_xaxis_transform(),
            color=SOFT,
            fontsize=8,
        )
    _label_ends(axes, lines)
    return figure


def _axes(title: str, across: str) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(across, color=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dfe2e7", linewidth=0.7)
    axes.tick_params(colors=SOFT, labelsize=8)
    return figure, axes


def _look(place: int) -> tuple[str, str]:
    colours = len(COLOURS)
    return COLOURS[place % colours], STROKES[place // colours % len(STROKES)]


def _label_ends(axes: "Axes", lines: Sequence[Line]) -> None:
    """Write each name behind the end of its line, moved apart where lines end close together."""
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
                "color": _look(line.place)[0],
                "linewidth": 1,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 4,
            },
        )
    axes.set_xlim(right=right)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Rising heights at least `gap` apart, each group about where it was."""
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
