"""Write a trained model as ONNX graphs, vocabularies and one JSON file. Give the folder to
translate, score and serve like a run folder, where torch is not installed.
"""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.interruption import frozen_objects
from seq2seq.runtime.console import logger, say, size_in_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_run(parser)
    arguments.add_output_folder(parser, "folder to write", required=True)
    text = "int8 weights: a quarter of the size, faster, nearly identical output"
    parser.add_argument("--int8", action="store_true", help=text)
    arguments.add_scores(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    model: list[str]
    output: Path
    int8: bool
    scores: list[str]


def run(options: Options) -> int:
    with frozen_objects():
        from seq2seq.runs.graphs import export_runs

    files = export_runs([Path(run) for run in options.model], options.output, options.int8)
    for path in files:
        size = sum(file.stat().st_size for file in [path, *path.glob("*")] if file.is_file())
        say(f"{path}  {size_in_bytes(size)}")
    logger.info(f"Translate:  seq2seq translate -m {shlex.quote(str(options.output))} -i FILE")
    return 0
