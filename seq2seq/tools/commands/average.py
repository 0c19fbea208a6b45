"""Write a run folder with the mean of the weights of several checkpoints."""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments, number_types
from seq2seq.cli.interruption import frozen_objects
from seq2seq.runtime.console import logger, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "one run: average its checkpoints step-N.safetensors (see training.keep); several runs: "
        "their best weights; also single checkpoint files"
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=text)
    arguments.add_output_folder(parser, "run folder to write", required=True)
    text = "average the newest N checkpoints of a single run (default: all)"
    parser.add_argument("--last", type=number_types.count, metavar="N", help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace the run in FOLDER")
    arguments.add_device(parser)
    arguments.add_scores(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    runs: list[Path]
    output: Path
    last: int | None
    overwrite: bool
    device: str
    scores: list[str]


def run(options: Options) -> int:
    with frozen_objects():
        from seq2seq.tools.averaging import average
    how = options.device, options.last, options.overwrite, say
    for note in average(options.runs, options.output, *how):
        logger.info(note)
    logger.info(f"Translate:  seq2seq translate -m {shlex.quote(str(options.output))} -i FILE")
    return 0
