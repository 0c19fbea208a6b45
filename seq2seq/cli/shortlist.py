"""`seq2seq shortlist`: train the lexical table of `translate --shortlist`."""

import argparse
import shlex
from pathlib import Path

from seq2seq.cli.loading import frozen_objects
from seq2seq.cli.output import open_output
from seq2seq.runtime.console import logger, size_in_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train IBM Model 1 on the training text of a run, and write the most probable target\n"
        "tokens of each source token into the run folder. With --shortlist, translate, evaluate\n"
        "and serve search only the few hundred tokens that it has for a line: faster with tens of\n"
        "thousands of tokens."
    )
    parser.epilog = """examples:
  seq2seq shortlist -m runs/my-run
  seq2seq translate -m runs/my-run --shortlist -i new.en"""
    text = "run folder"
    parser.add_argument(
        "-m", "--model", dest="run_folder", type=Path, required=True, metavar="RUN", help=text
    )


def run(options: argparse.Namespace) -> int:
    """Write the table and print its size."""
    path, tokens = make_shortlist(options.run_folder)
    size = size_in_bytes(path.stat().st_size)
    with open_output(None) as output:
        output.write(f"{path}  {size}, {tokens:.1f} target tokens per source token\n")
    run_folder = shlex.quote(str(options.run_folder))
    logger.info(f"Translate:  seq2seq translate -m {run_folder} --shortlist -i FILE")
    return 0


def make_shortlist(folder: Path) -> tuple[Path, float]:
    """Write the table; return its path and the mean number of target tokens in a row.

    Raises UserError if the run has no weights yet, or if its training text cannot be read.
    """
    with frozen_objects():
        from seq2seq.data.lexical_table import train_lexical_table
        from seq2seq.data.training_data import training_data
        from seq2seq.runs.run_config import read_config, read_vocabularies
        from seq2seq.runs.shortlist_file import save_shortlist

    config, vocabularies = read_config(folder), read_vocabularies(folder)
    with training_data(config.data.train, folder) as data:
        pairs = data.pairs(vocabularies, config.data.max_length)
        sizes = len(vocabularies.src), len(vocabularies.tgt)
        table = train_lexical_table(pairs.src, pairs.tgt, *sizes)
        checksum = data.checksum
    path = save_shortlist(folder, table, vocabularies, checksum, len(pairs))
    return path, len(table.tokens) / len(table.ends)
