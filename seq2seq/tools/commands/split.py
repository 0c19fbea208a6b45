"""Divide a parallel text into train, valid and test. No source and no target occurs in two
parts, also if it differs in case or white space: pairs that share one stay together.
Missing folders of the outputs are made.

examples:
  seq2seq split -i all.en all.de -o data/{}.en data/{}.de
  seq2seq split -i all.tsv.gz -o data/{}.tsv.gz --valid 500 --test 0
  seq2seq split -i all.csv --columns english,german -o data/{}.en.gz data/{}.de.gz
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.number_types import count_or_zero
from seq2seq.cli.output import check_output, check_replaced, check_sides
from seq2seq.runtime.console import aligned_table, counted, logger, say
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import made_folders

_LEAST_SHARE = 0.8  # minimum share of the pairs for train, below which a note says so
PLACE = "{}"  # in the name of an output, the name of the part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "two line-aligned files, or one with both sides, in the format of its ending"
    parser.add_argument(
        "-i", "--input", type=Path, nargs="+", required=True, metavar="FILE", help=text
    )
    text = "files to write, {} in a name is the part; two, or one in the format of its ending"
    parser.add_argument("-o", "--output", nargs="+", required=True, metavar="NAME", help=text)
    text = "columns of one input, by name or number, such as english,german or 2,1"
    parser.add_argument("--columns", metavar="SRC,TGT", help=text)
    for part in ("valid", "test"):
        text = f"pairs of {part} (default: 1,000, or a twentieth of a small text)"
        parser.add_argument(f"--{part}", type=count_or_zero, metavar="N", help=text)
    text = "seed of the choice (default: 1)"
    parser.add_argument("--seed", type=count_or_zero, default=1, metavar="N", help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    input: list[Path]
    output: list[str]
    columns: str | None
    valid: int | None
    test: int | None
    seed: int
    overwrite: bool


def run(options: Options) -> int:
    from seq2seq.data.corpus import iter_pairs, source_name
    from seq2seq.tools.corpora.splitting import PARTS, divide, write_parts

    files = arguments.parallel_files("split", "-i", options.input, options.columns)
    sizes = {"valid": options.valid, "test": options.test}
    parts = [part for part in PARTS if sizes.get(part) != 0]
    outputs = {part: [Path(name.replace(PLACE, part)) for name in options.output] for part in parts}
    with made_folders([path for paths in outputs.values() for path in paths]):
        _check_outputs(options, outputs)
        division = divide(iter_pairs(files), sizes, options.seed, source_name(files))
        write_parts(files, division, outputs, files.column_names or ("src", "tgt"))
    rows = [("part", "pairs", "files")]
    for part in parts:
        count = division.count(PARTS.index(part))
        rows.append((part, f"{count:,}", " ".join(map(str, outputs[part]))))
    say(aligned_table(rows, "left"))
    if blank := division.count(-1):
        logger.info(f"note: in no part: {counted(blank, 'pair')} with a blank side")
    _note_sizes(sizes, [division.count(number) for number in range(len(PARTS))])
    return 0


def _note_sizes(sizes: Mapping[str, int | None], pairs: list[int]) -> None:
    train, *held_out = pairs
    if options := [f"--{part}" for part, size in sizes.items() if size is None]:
        text = "a twentieth, at most 1,000 pairs; choose with"
        logger.info(f"note: held out by default: {text} {' and '.join(options)}")
    if (share := train / (train + sum(held_out))) < _LEAST_SHARE:
        logger.info(f"note: {share:.0%} of the pairs are left for train; hold out fewer")


def _check_outputs(options: Options, outputs: dict[str, list[Path]]) -> None:
    """Raise UserError for outputs that cannot be written or would replace a file."""
    if not all(PLACE in name for name in options.output):
        raise UserError(f"split -o: each name needs {PLACE}, the place of train, valid and test")
    for sides in outputs.values():
        check_sides(sides)
    paths = [path for part in outputs.values() for path in part]
    for number, path in enumerate(paths):
        check_output(path, *options.input, *paths[:number], compressed=True)
        check_replaced(path, options.overwrite)
