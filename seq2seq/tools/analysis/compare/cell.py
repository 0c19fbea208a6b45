"""Train one run of a comparison, as a process of its own."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.main import main as run_command
from seq2seq.runtime import files

GROUPS = {"train": {"cell": (__package__, "train one run of a comparison")}}


def main(words: Sequence[str]) -> int:
    """Run the command `cell`, and return its exit code."""
    return run_command(GROUPS, words)


def words_of_cell(config: Path, reason: Path, device: str, scores: Sequence[str]) -> list[str]:
    """Return the words of the command; names of `scores` outside of the package are trusted."""
    trusted = [word for name in scores for word in ("--score", name)]
    return ["cell", str(config), str(reason), "--device", device, *trusted]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "config of the run"
    parser.add_argument("config", type=Path, metavar="CONFIG", help=text)
    text = "file that receives the reason if the run fails by its config"
    parser.add_argument("reason", type=Path, metavar="FILE", help=text)
    arguments.add_training_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    config: Path
    reason: Path
    device: str
    threads: int | None
    scores: list[str]


def run(options: Options) -> int:
    config = arguments.resolve_config(options.config, [])
    with frozen_objects():
        from seq2seq.tools.analysis.compare.single_run import UNSUITABLE, train_run

    reason = train_run(config, options.device)
    if reason is None:
        return 0
    files.atomic_write(options.reason, reason.encode())
    return UNSUITABLE
