"""Measure how start-up time, memory and time per token grow with the corpus; print a table.

    python scripts/scaling.py data/multi30k/train.en.gz data/multi30k/train.de.gz
    python scripts/scaling.py SRC TGT --json scaling.json vocabulary.sampling=0.5

Corpora of each size repeat the given lines, with a number appended to both sides so that all lines
are distinct. Each size is measured in separate processes; the first builds the cache. The model is
small, so that the costs of the corpus dominate. Memory is the private memory of a process (RssAnon
in /proc), without the files that the system keeps in its cache. Freed memory is returned at once
here; training keeps it for up to 64 steps, and its size depends on the order of batch shapes.
Training is in float32: in bf16 oneDNN keeps a kernel for each of many sizes of products.

Of 30 million pairs (`--sizes 30000000`), text and cache take 13 GB in the temporary folder, whose
parent --folder sets, and to build the cache takes ten minutes of CPU time.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seq2seq.runtime.console import logger, say
from seq2seq.runtime.errors import UserError

SETTINGS = """\
name: scaling
run_dir: {folder}/run
data:
  src_lang: src
  tgt_lang: tgt
  train: {{src: {folder}/train.src, tgt: {folder}/train.tgt}}
  valid: {{src: {folder}/valid.src, tgt: {folder}/valid.tgt}}
vocabulary: {{size: 4000}}
model: {{embedding_size: 32, hidden_size: 64}}
training: {{max_epochs: 1, precision: float32}}
"""
ROWS = {  # key: label and format
    "pairs": ("pairs", "{:,}"),
    "text_seconds": ("copy text, s", "{:.1f}"),
    "vocabulary_seconds": ("train vocabulary, s", "{:.1f}"),
    "ids_seconds": ("encode text, s", "{:.1f}"),
    "division_seconds": ("count batches, s", "{:.1f}"),
    "build_cpu_seconds": ("CPU time of these, all processes, s", "{:.1f}"),
    "build_rate": ("pairs per CPU second", "{:,.0f}"),
    "cache_mb": ("cache, MB", "{:,.0f}"),
    "first_batch_seconds": ("first batch with warm cache, s", "{:.1f}"),
    "first_batch_cpu_seconds": ("first batch, CPU time, s", "{:.1f}"),
    "first_mb": ("memory at step 1, MB", "{:,.0f}"),
    "last_mb": ("memory at the last step, MB", "{:,.0f}"),
    "tokens_per_second": ("batches, target tokens per CPU second", "{:,.0f}"),
}


def main() -> None:
    """Generate the corpora, measure each in separate processes, and print the table."""
    options = _options()
    if options.measure:
        print(json.dumps(_measured(options.measure, options)))
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for size in options.sizes:
            folder = Path(temporary) / str(size)
            config = make_corpus(options.src, options.tgt, size, folder)
            row = {"pairs": size}
            for part in ("build", "train"):
                row |= _measure(part, config, options)
            rows.append(row)
            logger.info(f"{size:,} pairs measured")
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    say(table(rows))


def make_corpus(src: Path, tgt: Path, size: int, folder: Path) -> Path:
    """Write a corpus of `size` pairs and its config; return the config."""
    from seq2seq.config.schema import ParallelFiles
    from seq2seq.data.corpus import read_pairs

    text = read_pairs(ParallelFiles(src=src, tgt=tgt))
    folder.mkdir()
    for side, lines in (("src", text.src), ("tgt", text.tgt)):
        numbered = (
            f"{line} ({n})\n" if n else f"{line}\n" for n in itertools.count() for line in lines
        )
        with (folder / f"train.{side}").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(itertools.islice(numbered, size))
        valid = "".join(f"{line}\n" for line in lines[:100])
        (folder / f"valid.{side}").write_text(valid, encoding="utf-8", newline="\n")
    config = folder / "config.yaml"
    config.write_text(SETTINGS.format(folder=folder.as_posix()), encoding="utf-8")
    return config


def build(config: Path, overrides: Sequence[str]) -> dict[str, float]:
    """Build the cache; return its seconds and megabytes."""
    from seq2seq.config.schema import load_config
    from seq2seq.data.batching import EpochOrder
    from seq2seq.data.training_data import (
        cache_of,
        cached_text,
        cached_vocabularies,
        encoded_text,
        open_cache,
    )

    settings = load_config(config, overrides)
    marks = [time.perf_counter()]
    with open_cache(settings.data.train, settings.run_dir) as cache:
        text, _ = cached_text(settings.data.train, cache)
        marks.append(time.perf_counter())
        vocabularies, _ = cached_vocabularies(text, settings.vocabulary)
        marks.append(time.perf_counter())
        pairs = encoded_text(text, vocabularies, settings.data.max_length)[0].pairs
        marks.append(time.perf_counter())
        EpochOrder(pairs, settings.training.batch_tokens, settings.seed, 0)
        marks.append(time.perf_counter())
    cpu_seconds = sum(os.times()[:4])  # worker processes included
    files = [path for path in cache_of(settings.run_dir).rglob("*") if path.is_file()]
    names = ("text_seconds", "vocabulary_seconds", "ids_seconds", "division_seconds")
    seconds = {name: b - a for name, (a, b) in zip(names, itertools.pairwise(marks), strict=True)}
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    rate = len(pairs) / cpu_seconds
    figures = {"build_cpu_seconds": cpu_seconds, "build_rate": rate, "cache_mb": megabytes}
    return {**seconds, **figures}


def train(
    config: Path, overrides: Sequence[str], started: float, steps: int, batches: int
) -> dict[str, float]:
    """Train some steps with a warm cache, then make batches only; return the costs."""
    import torch

    from seq2seq.config.schema import load_config
    from seq2seq.data.batching import EpochOrder
    from seq2seq.runtime.device import derive_seed
    from seq2seq.training.batches import batch_of
    from seq2seq.training.preparation import prepare
    from seq2seq.training.step import train_step
    from seq2seq.training.stopping import last_step_of

    settings = load_config(config, overrides)
    run, _ = prepare(settings, torch.device("cpu"))
    last_step_of(settings, run.data.train)  # counts the batches, as training does first
    pairs, budget = run.data.train, settings.training.batch_tokens
    memory: list[float] = []
    first_batch = first_batch_cpu = 0.0
    for epoch in itertools.count():
        for rows in EpochOrder(pairs, budget, settings.seed, epoch):
            run.progress.step += 1
            batch = batch_of(run, rows, derive_seed(settings.seed, run.progress.step, 0))
            first_batch = first_batch or time.time() - started
            first_batch_cpu = first_batch_cpu or time.process_time()
            train_step(run, [batch], 1e-3)
            memory.append(private_mb())
            if len(memory) == steps:
                break
        if len(memory) == steps:
            break
    tokens = made = 0
    cpu_started = time.process_time()
    for epoch in itertools.count():
        for rows in EpochOrder(pairs, budget, settings.seed, epoch):
            tokens += len(batch_of(run, rows, made).tgt_out)
            made += 1
            if made == batches:
                break
        if made == batches:
            break
    return {
        "first_batch_seconds": first_batch,
        "first_batch_cpu_seconds": first_batch_cpu,
        "first_mb": memory[0],
        "last_mb": memory[-1],
        "most_mb": max(memory),
        "after_stream_mb": private_mb(),
        "tokens_per_second": tokens / (time.process_time() - cpu_started),
    }


def private_mb() -> float:
    """Return the private memory of this process; NaN without /proc."""
    status = Path("/proc/self/status")
    match = re.search(r"RssAnon:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(match[1]) * 1024 / 1e6 if match else float("nan")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Format a row for each figure, a column for each size."""
    from seq2seq.runtime.console import aligned_table

    cells = [
        [name, *(figure_format.format(row[key]) for row in rows)]
        for key, (name, figure_format) in ROWS.items()
    ]
    return aligned_table(cells)


def _measure(part: str, config: Path, options: argparse.Namespace) -> dict[str, float]:
    """Run this script with --measure in a separate process."""
    command = [sys.executable, __file__, str(options.src), str(options.tgt), *options.overrides]
    command += ["--measure", part, "--config", str(config), "--started", str(time.time())]
    command += ["--steps", str(options.steps), "--batches", str(options.batches)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _measured(part: str, options: argparse.Namespace) -> dict[str, float]:
    if part == "build":
        return build(options.config, options.overrides)
    return train(options.config, options.overrides, options.started, options.steps, options.batches)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return int(text)


def _numbers(text: str) -> list[int]:
    return [_count(number) for number in text.split(",")]


def _options() -> argparse.Namespace:
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
    parser.add_argument("src", type=Path, help="source text to repeat")
    parser.add_argument("tgt", type=Path, help="its translation")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="as of train")
    sizes = "29000,290000,2900000"
    parser.add_argument(
        "--sizes", type=_numbers, default=sizes, help=f"in pairs (default: {sizes})"
    )
    parser.add_argument("--steps", type=_count, default=200, help="until memory is measured again")
    parser.add_argument("--batches", type=_count, default=3000, help="number of batches to time")
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--measure", choices=("build", "train"), help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    try:
        main()
    except (UserError, OSError) as error:
        sys.exit(f"scaling.py: error: {error}")
