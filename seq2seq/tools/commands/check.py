"""Inspect the data, the vocabulary and the training cost of a config. Writes no
files except for --json.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.cli import arguments
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.output import check_output, write_json
from seq2seq.runtime.console import say
from seq2seq.runtime.threads import set_threads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_init_from(parser)
    arguments.add_json_report(parser)
    arguments.add_training_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    config: Path
    overrides: list[str]
    init_from: Path | None
    json: Path | None
    device: str
    threads: int | None
    scores: list[str]


def run(options: Options) -> int:
    """Check a config; print each part of the report once it is known, above the progress bar."""
    config = arguments.resolve_config(options.config, options.overrides)
    runs = [config.run_dir, *([options.init_from] if options.init_from else [])]
    check_output(options.json, options.config, *config.data.paths(), runs=runs)
    set_threads(options.threads)
    with frozen_objects():
        from seq2seq.tools.analysis.check.check import check

    tree: dict[str, Any] = {"name": config.name}
    printed = str(options.json) != "-"
    for part in check(config, options.device, options.init_from):
        tree[part.key] = part.value
        if part.text and printed:
            say("\n" * (part.key != "texts") + part.text)
    write_json(tree, options.json)
    return 0
