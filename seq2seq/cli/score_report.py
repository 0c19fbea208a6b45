"""Scores for reading, and as JSON."""

from collections.abc import Sequence
from typing import Any

from seq2seq.evaluation.metrics import METRIC_NAMES, Comparison, Scores


def as_json(scores: Scores, comparison: Comparison | None = None) -> dict[str, Any]:
    """Arrange scores for `json.dumps`: one object a metric and, after a test, `paired`."""
    tree: dict[str, Any] = {key: value._asdict() for key, value in scores._asdict().items()}
    if comparison is not None:
        tree["paired"] = {
            key: {
                **pair._asdict(),
                "baseline": pair.baseline._asdict(),
                "system": pair.system._asdict(),
            }
            for key, pair in comparison._asdict().items()
        }
    return tree


def as_table(scores: Scores, comparison: Comparison | None = None) -> str:
    """Lay scores out for reading, a line a metric; after a test, a second table follows."""
    rows = [("", "score", "95 % interval", "signature")]
    for name, value in zip(METRIC_NAMES, scores, strict=True):
        rows.append((name, f"{value.score:.1f}", _interval(value.ci), value.signature))
    if comparison is None:
        return _aligned(rows)
    return f"{_aligned(rows)}\n\n{_comparison_table(comparison)}"


def _comparison_table(comparison: Comparison) -> str:
    rows = [("", "baseline", "95 % interval", "system", "95 % interval", "p", "signature")]
    for name, pair in zip(METRIC_NAMES, comparison, strict=True):
        baseline, system = (
            (f"{side.score:.1f}", _interval(side.ci)) for side in (pair.baseline, pair.system)
        )
        rows.append((name, *baseline, *system, f"{pair.p_value:.4f}", pair.signature))
    return _aligned(rows)


def _interval(ci: tuple[float, float] | None) -> str:
    return "-" if ci is None else f"{ci[0]:.1f} to {ci[1]:.1f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
