"""Train a model from a YAML config. The run is written to its run_dir, encoded text to
.token-cache beside it.

examples:
  seq2seq train configs/demo.yaml
  seq2seq train configs/demo.yaml run_dir=runs/large model.hidden_size=512
  seq2seq train configs/demo.yaml --resume
"""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.options import CommandLine
from seq2seq.runtime.console import logger
from seq2seq.runtime.process_group import is_main_process, world_size
from seq2seq.runtime.threads import set_threads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    existing = parser.add_mutually_exclusive_group()
    text = "resume an interrupted run; start it if run_dir is absent or empty"
    existing.add_argument("--resume", action="store_true", help=text)
    existing.add_argument("--overwrite", action="store_true", help="replace the run in run_dir")
    arguments.add_init_from(parser)
    arguments.add_training_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    config: Path
    overrides: list[str]
    resume: bool
    overwrite: bool
    init_from: Path | None
    device: str
    threads: int | None
    scores: list[str]
    command_line: CommandLine


def run(options: Options) -> int:
    config = arguments.resolve_config(options.config, options.overrides)
    set_threads(options.threads)
    with frozen_objects():
        from seq2seq.training.loop import Interrupted, train

    how = options.device, options.resume, options.overwrite, options.init_from
    try:
        run_dir = train(config, *how)
    except Interrupted as stop:
        if is_main_process() and not stop.done:
            typed_words = options.command_line.words
            words = [word for word in typed_words if word not in ("--overwrite", "--resume")]
            start = "seq2seq" if world_size() == 1 else "torchrun ... -m seq2seq"
            logger.info(f"Resume with: {start} {shlex.join([*words, '--resume'])}")
        raise
    if is_main_process():
        name = shlex.quote(str(run_dir))
        score = config.model.score
        score_option = ""
        if score is not None and score.is_external:
            score_option = f" {arguments.option('scores', [score.name])}"
        logger.info(f"Translate:  seq2seq translate -m {name} -i FILE{score_option}")
        if config.data.test is not None:
            logger.info(f"Evaluate:   seq2seq evaluate -m {name}{score_option}")
        logger.info(f"Report:     seq2seq report {name}{score_option}")
    return 0
