"""Write one self-contained HTML page about a run: scores with intervals, curves, BLEU by
length, the worst sentences with attention, samples over training, config;
or about two runs side by side.

examples:
  seq2seq report runs/demo
  seq2seq report runs/demo --split valid -o demo.html
  seq2seq report runs/demo runs/demo-luong -o both.html
"""

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seq2seq.cli import arguments, conflicts, search_arguments
from seq2seq.cli.conflicts import Need
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.output import check_output, open_output, progress
from seq2seq.runtime import console, errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    text = "another one, to show beside it; both have one test text"
    parser.add_argument("against", type=Path, nargs="?", metavar="RUN2", help=text)
    text = "the page (default: report.html in the run folder; required with two)"
    arguments.add_output(parser, text)
    text = "text to translate and score (default: test, or valid if the config has no test text)"
    parser.add_argument("--split", choices=("valid", "test"), help=text)
    text = "show sentences of a text that lies outside of the run and the current folder"
    parser.add_argument("--quote-outside", action="store_true", help=text)
    search_arguments.add_beam(parser)
    arguments.add_device(parser)
    arguments.add_scores(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    run: Path
    against: Path | None
    output: Path | None
    split: Literal["valid", "test"] | None
    quote_outside: bool
    beam: int | None
    device: str
    scores: list[str]


CONFLICTS = (Need("against", "output", "report RUN RUN2: needs -o FILE.html, a page of both"),)


def run(options: Options) -> int:
    with frozen_objects():
        from seq2seq.runs.layout import PAGE
        from seq2seq.runs.run_config import read_config
        from seq2seq.tools.analysis.report.facts import Scoring, gather
        from seq2seq.tools.analysis.report.page import page
        from seq2seq.tools.distillation.summary import summary_of

    path = options.output or options.run / PAGE
    config = read_config(options.run)
    if str(path) == "-" or path.suffix.lower() not in (".html", ".htm"):
        raise errors.UserError(f"{path}: the report is an HTML page; give -o FILE.html")
    folders = [options.run, *filter(None, [options.against])]
    check_output(path, *config.data.paths(), runs=folders)
    conflicts.check_together(options, CONFLICTS)
    if options.against and options.against.resolve() == options.run.resolve():
        raise errors.UserError(f"{options.against}: is the first run again; name another")
    with errors.argument_spelled("overwrite", "--overwrite to distill-train"):
        summaries = [summary_of(folder) for folder in folders]
    with progress("translated", None) as advance:
        quotes = options.quote_outside
        how = Scoring(options.split, options.beam, options.device, quotes, advance)
        runs = [gather(folder, how) for folder in folders]
    runs = [
        facts._replace(distillation=summary) for facts, summary in zip(runs, summaries, strict=True)
    ]
    content = page(*runs)
    with open_output(path) as output:
        output.write(content)
    for facts in (facts for facts in runs if facts.unscored):
        console.logger.info(f"note: no scores: {facts.unscored}")
    for facts in runs:
        for file in facts.outside:
            remedy = "" if options.quote_outside else "; --quote-outside shows its sentences"
            text = f"reads {file}, which the config of {facts.run} names{remedy}"
            console.logger.info(f"note: {text}")
    console.logger.info(f"Open {shlex.quote(str(path))} in a browser.")
    return 0
