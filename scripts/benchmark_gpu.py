"""Measure seq2seq on a GPU with random text of WMT's lengths, next to the GPU's own peak.

    python scripts/benchmark_gpu.py --json runs/gpu.json

Every result is printed and saved at once; parts that the file already has are not repeated. It
takes about seven minutes. `--device cpu --small` tries the script itself.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarking.machine import isolated, machine_name, matmul_gflops
from benchmarking.random_text import MODELS, profile_step, search_speed, training_speed
from seq2seq.runtime.console import say
from seq2seq.runtime.files import atomic_write

Row = dict[str, Any]
BATCH_TOKENS = (16_384, 65_536)
PRECISION = "bf16"


def main(arguments: Sequence[str]) -> None:
    """Measure what the file lacks."""
    options = _options(arguments)
    machine = machine_name(options.device)
    saved = _read(options.json, machine)
    say(f"{date.today()}, {machine}")
    for name, measure in parts(options):
        if name not in saved:
            saved[name] = {"date": str(date.today()), **measure()}
            content = {"machine": machine, "parts": saved}
            options.json.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(options.json, (json.dumps(content, indent=2) + "\n").encode())
        say(_line(name, saved[name], saved.get(f"peak, {PRECISION}")))


def parts(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield every measurement with its name."""
    device, tokens = options.device, (256, 512) if options.small else BATCH_TOKENS
    seconds, sentences = (0.2, 8) if options.small else (8.0, 1024)
    for precision in ("float32", PRECISION):
        yield (
            f"peak, {precision}",
            lambda each=precision: {  # type: ignore[misc]
                "gflops": isolated(matmul_gflops, each, device)
            },
        )
    names = ["luong"] if options.small else list(MODELS)
    for name in names:
        for size in tokens:
            yield (
                f"training, {name}, {size:,} tokens a batch",
                _call(training_speed, name, PRECISION, size, seconds, device),
            )
    precisions = ["float32"] if device == "cpu" else ["float32", "float16"]
    for name, precision, beam in itertools.product(names, precisions, (1, 5)):
        yield (
            f"search, {name}, {precision}, beam {beam}",
            _call(search_speed, name, precision, beam, sentences, device),
        )
    for name in names:
        trace = options.json.with_name(f"{options.json.stem}-{name.split(',')[0]}.trace.json")
        yield (
            f"one step, {name}, {tokens[0]:,} tokens",
            _call(profile_step, name, PRECISION, tokens[0], device, trace),
        )


def _call(function: Callable[..., Any], *arguments: Any) -> Callable[[], Row]:
    """Return a measurement that runs in a process of its own."""
    return lambda: dict(isolated(function, *arguments)._asdict())


def _line(name: str, row: Row, peak: Row | None) -> str:
    """Format a result; the share of the peak is that of products in the same precision."""
    figures = {
        key: f"{value:,.0f}" if isinstance(value, int) or value >= 10 else f"{value:.4f}"
        for key, value in row.items()
        if key != "date" and value
    }
    if peak is not None and row.get("gflops") and not name.startswith("peak"):
        figures["of peak"] = f"{row['gflops'] / peak['gflops']:.0%}"
    if row.get("wall_seconds"):
        figures["idle"] = f"{max(0, 1 - row['busy_seconds'] / row['wall_seconds']):.0%}"
    return f"{name:<48} {'  '.join(f'{key} {value}' for key, value in figures.items())}"


def _read(path: Path, machine: str) -> dict[str, Row]:
    """Return the parts that a file of this machine already has."""
    if not path.exists():
        return {}
    figures = json.loads(path.read_text(encoding="utf-8"))
    if figures["machine"] != machine:
        raise SystemExit(f"{path}: measured on {figures['machine']}; choose another file")
    return dict(figures["parts"])


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure seq2seq on a GPU.", allow_abbrev=False)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
