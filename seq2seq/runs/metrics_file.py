"""Files of metrics, a JSON object on each line: read and truncate them."""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seq2seq.runs.layout import METRICS
from seq2seq.runtime.files import atomic_write, read_bounded

_MAX_BYTES = 1 << 30  # maximum size of metrics.jsonl, far above that of any run
_LARGEST = 1e18  # number in a line; larger ones are damage


class LineCount:
    """Number and checksum of the lines of a file, updated with each line that is written."""

    def __init__(self, lines: Sequence[bytes] = ()) -> None:
        self.lines = 0
        self._digest = hashlib.sha256()
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
    """Return the intact lines of metrics.jsonl or timing.jsonl: their steps and other numbers."""
    lines = (_values(line) for line in raw_lines(folder / name))
    numbers = ({k: v for k, v in line.items() if _is_number(v)} for line in lines if line)
    return [line for line in numbers if "step" in line]  # no integer beyond all bounds


def raw_lines(path: Path) -> list[bytes]:
    """Return the lines of a file without their line ends; none if it is missing."""
    lines = read_bounded(path, _MAX_BYTES).split(b"\n") if path.exists() else [b""]
    return lines if lines[-1] else lines[:-1]


def lines_up_to(lines: Sequence[bytes], step: int) -> list[bytes]:
    """Return the lines that are intact and not of later steps."""
    return [line for line in lines if (values := _values(line)) and values["step"] <= step]


def write_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Replace the lines of a file, if it is there. Raises OSError."""
    if path.exists():
        atomic_write(path, b"".join(line + b"\n" for line in lines))


def _values(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_intact = isinstance(values, dict) and type(values.get("step")) is int
    return values if is_intact else None


def _is_number(value: Any) -> bool:
    """Return whether a value is a number that training may have written, finite or not."""
    return type(value) in (int, float) and not _LARGEST <= abs(value) < math.inf


def truncate_metrics(path: Path, step: int) -> list[bytes]:
    """Remove lines of later steps and damaged lines from a JSON-lines file; return the others."""
    lines = lines_up_to(raw_lines(path), step)
    write_lines(path, lines)
    return lines
