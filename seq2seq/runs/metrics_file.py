"""Files of metrics: read, truncate and tabulate them, and restore metrics.jsonl on resume."""

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.runs.layout import METRICS
from seq2seq.runtime.files import atomic_write, read_bounded

if TYPE_CHECKING:
    from seq2seq.runs.training_state import Progress

_MAX_BYTES = 1 << 30  # maximum size of metrics.jsonl, far above that of any run
_LARGEST = 1e18  # number in a line; larger ones are damage
_SHOWN_LINES = 5  # maximum number of line numbers in a note


class LineCount:
    """Number and checksum of the lines of a file, updated with each line that is written."""

    def __init__(self, lines: Sequence[bytes] = ()) -> None:
        self.lines, self._digest = 0, hashlib.sha256()
        for line in lines:
            self.add(line)

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()

    def add(self, line: bytes) -> None:
        """Count a line, given without its line end."""
        self.lines += 1
        self._digest.update(line + b"\n")


def read_metrics(folder: Path, name: str = METRICS) -> list[dict[str, float]]:
    """Return the lines of a run's metrics.jsonl or timing.jsonl, without what is damaged.

    There are none if the file is missing. Every line has a step; its other values are numbers.
    """
    path, intact = folder / name, []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError, RecursionError):
            values = json.loads(line)
            if isinstance(values, dict) and type(values.get("step")) is int:
                intact.append({key: value for key, value in values.items() if _is_number(value)})
    return [line for line in intact if "step" in line]  # no integer beyond all bounds


def _is_number(value: object) -> bool:
    """Return whether a value is a number that training may have written, finite or not."""
    if isinstance(value, float):
        return abs(value) < _LARGEST or not math.isfinite(value)
    return type(value) is int and abs(value) < _LARGEST


def truncate_metrics(path: Path, step: int) -> list[bytes]:
    """Remove lines of later steps and damaged lines from a JSON-lines file; return the others."""
    lines: list[bytes] = []
    if not path.exists():
        return lines
    for line in read_bounded(path, _MAX_BYTES).split(b"\n"):
        try:
            if json.loads(line)["step"] <= step:
                lines.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    atomic_write(path, b"".join(line + b"\n" for line in lines))
    return lines


def metrics_table(lines: Sequence[Mapping[str, float]]) -> str:
    """Return CSV with a row for each step, and a column for each figure in alphabetical order."""
    rows: dict[float, dict[str, float]] = {}
    for line in lines:
        rows.setdefault(line["step"], {}).update(line)
    figures = {name for row in rows.values() for name in row} - {"step"}
    text = io.StringIO()
    writer = csv.DictWriter(text, ["step", *sorted(figures)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    return text.getvalue()


class SavedMetrics(NamedTuple):
    """The lines of metrics.jsonl that a state counts, as far as they are there."""

    lines: list[bytes]
    lost: str | None  # description of the damage; None if all of them are intact
    damaged_behind: list[int]  # numbers of damaged lines behind them


def restore_metrics(folder: Path, progress: "Progress") -> str | None:
    """Leave in metrics.jsonl only the lines that a state counts; return a note on any damage.

    Lines written after the state was saved are removed: training writes them again. Raises OSError.
    """
    path, saved = folder / METRICS, read_saved_metrics(folder, progress)
    if path.exists():
        atomic_write(path, b"".join(line + b"\n" for line in saved.lines))
    if saved.lost is not None:
        return (
            f"warning: {path}: {saved.lost}. Damaged lines were removed; the weights are intact, "
            "and later figures follow"
        )
    if saved.damaged_behind:
        return (
            f"note: {path}: removed {_listed(saved.damaged_behind)}, damaged or incomplete; the "
            f"figures up to step {progress.step} are intact, and training writes later ones again"
        )
    return None


def read_saved_metrics(folder: Path, progress: "Progress") -> SavedMetrics:
    """Read the lines of metrics.jsonl that a state counts. Raises OSError."""
    path = folder / METRICS
    content = read_bounded(path, _MAX_BYTES) if path.exists() else b""
    lines = content.split(b"\n")
    if not lines[-1]:
        del lines[-1]  # the last line is complete
    steps = [_step_of(line) for line in lines]
    damaged = [number for number, step in enumerate(steps, start=1) if step is None]
    counted, checksum = progress.metrics_lines, progress.metrics_checksum
    count = LineCount(lines[:counted])
    if (count.lines, count.checksum) == (counted, checksum):
        return SavedMetrics(lines[:counted], None, damaged)
    intact = [
        line
        for line, step in zip(lines, steps, strict=True)
        if step is not None and step <= progress.step
    ]
    faults = [f"{_listed(damaged)} damaged"] if damaged else []
    if checksum and len(intact) < counted:
        faults.append(f"{counted - len(intact):,} of {counted:,} lines lost")
    elif checksum and not damaged:
        faults.append("lines were edited or added")
    lost = f"not as it was saved at step {progress.step} ({', '.join(faults)})" if faults else None
    return SavedMetrics(intact, lost, [])


def _step_of(line: bytes) -> int | None:
    """Return the step of a line of metrics; None if the line is damaged."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = values.get("step") if isinstance(values, dict) else None
    return step if type(step) is int else None


def _listed(numbers: Sequence[int]) -> str:
    first = ", ".join(map(str, numbers[:_SHOWN_LINES]))
    more = f" and {len(numbers) - _SHOWN_LINES:,} more" if len(numbers) > _SHOWN_LINES else ""
    return f"line{'s' * (len(numbers) > 1)} {first}{more}"
