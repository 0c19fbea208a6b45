"""`seq2seq train`: train a model from a config."""

import argparse
import shlex

from seq2seq.cli import arguments
from seq2seq.cli.loading import frozen_objects, resolve_config
from seq2seq.runtime.console import logger
from seq2seq.runtime.process_group import is_main_process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Train a model from a YAML config. Everything is written to its run_dir."
    parser.epilog = """examples:
  seq2seq train configs/demo.yaml
  seq2seq train configs/demo.yaml run_dir=runs/large model.hidden_size=512
  seq2seq train configs/demo.yaml --resume"""
    arguments.add_config(parser)
    existing = parser.add_mutually_exclusive_group()
    text = "resume an interrupted run; start it if run_dir is absent or empty"
    existing.add_argument("--resume", action="store_true", help=text)
    existing.add_argument("--overwrite", action="store_true", help="replace the run in run_dir")
    arguments.add_init_from(parser)
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Train and log the commands that use the new run."""
    config = resolve_config(options.config, options.overrides)
    with frozen_objects():
        from seq2seq.training.loop import Interrupted, train

    try:
        run_dir = train(
            config, options.device, options.resume, options.overwrite, options.init_from
        )
    except Interrupted as stop:
        if is_main_process() and not stop.done:
            logger.info("Resume with the same command and --resume.")
        raise
    if is_main_process():
        name = shlex.quote(str(run_dir))
        logger.info(f"Translate:  seq2seq translate -m {name} -i FILE")
        if config.data.test is not None:
            logger.info(f"Evaluate:   seq2seq evaluate -m {name}")
        logger.info(f"Report:     seq2seq report {name}")
    return 0
