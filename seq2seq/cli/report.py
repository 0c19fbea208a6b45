"""`seq2seq report`: one page about a run, and its model card."""

import argparse
import shlex
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.loading import frozen_objects
from seq2seq.cli.output import check_output, open_output
from seq2seq.cli.progress import progress
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one self-contained HTML page about a run: scores with intervals, curves, BLEU by\n"
        "length, the best and the worst sentences with attention, data, config, versions. The\n"
        "model card, README.md in the run folder, is written with it, unless --split names\n"
        "another text than the default."
    )
    parser.epilog = """examples:
  seq2seq report runs/demo
  seq2seq report runs/demo --split valid -o demo.html"""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="run folder")
    text = "the page (default: report.html in the run folder)"
    arguments.add_output(parser, text)
    text = "text to translate and score (default: test, or valid if the config has no test text)"
    parser.add_argument("--split", choices=("valid", "test"), help=text)
    arguments.add_beam(parser)
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Score the run and write page and card."""
    run_folder = options.run_folder
    with frozen_objects():
        from seq2seq.analysis.report.facts import gather
        from seq2seq.analysis.report.model_card import write_model_card
        from seq2seq.analysis.report.page import page
        from seq2seq.runs.layout import PAGE
        from seq2seq.runs.run_config import read_config

    path = options.output or run_folder / PAGE
    config = read_config(run_folder)
    if str(path) == "-" or path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path}: the report is an HTML page; give -o FILE.html")
    check_output(path, *config.data.paths(), runs=[run_folder])
    with progress("translated", None) as advance:
        facts = gather(run_folder, options.split, options.beam, options.device, advance)
    with open_output(path) as output:
        output.write(page(facts))
    if options.split in (None, "test" if config.data.test else "valid"):
        logger.info(write_model_card(facts))
    if facts.unscored:
        logger.info(f"note: no scores: {facts.unscored}")
    logger.info(f"Open {shlex.quote(str(path))} in a browser.")
    return 0
