"""Arguments that several subcommands share, and the types of arguments."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import LONE_SURROGATE

if TYPE_CHECKING:
    from seq2seq.config.schema import ParallelFiles
    from seq2seq.inference.loaded_model import ModelOptions

MAX_COUNT = 1_000_000  # upper limit of every count on the command line
_OPTIONS = {  # by arguments with another name
    "beam_size": "-b",
    "head_attention": "--heads",
    "output": "-o",
    "sampling": "--sample",
    "samples": "--sample",
}


def option(name: str, value: object = None) -> str:
    """Spell an argument of a Python function as an option, with its value unless it is a flag."""
    text = _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
    return text if value is None or value is True else f"{text} {value}"


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="YAML config, see configs/")
    text = "override a key of the config"
    parser.add_argument(  # the default makes it optional
        "overrides", nargs="*", default=[], metavar="section.key=value", help=text
    )


def add_init_from(parser: argparse.ArgumentParser) -> None:
    text = "initialise from another run's vocabulary and best weights"
    parser.add_argument("--init-from", type=Path, metavar="RUN", help=text)


def add_model(parser: argparse.ArgumentParser, required: bool = True) -> None:
    text = "run folder; repeat for an ensemble, which decodes as the first run's config says"
    parser.add_argument(
        "-m", "--model", action="append", default=[], required=required, metavar="RUN", help=text
    )


def add_input(parser: argparse.ArgumentParser, default: str = "stdin") -> None:
    text = f"source text, one sentence per line, also .gz or .bz2 (default: {default})"
    parser.add_argument("-i", "--input", type=Path, metavar="FILE", help=text)


def add_output(
    parser: argparse.ArgumentParser, text: str = "output file (default: stdout)"
) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)


def add_output_folder(parser: argparse.ArgumentParser, text: str, required: bool = False) -> None:
    parser.add_argument(
        "-o", "--output", type=folder, required=required, metavar="FOLDER", help=text
    )


def add_beam(parser: argparse.ArgumentParser) -> None:
    text = "beam size; 1 is greedy search (default: decoding.beam_size of the config)"
    parser.add_argument("-b", "--beam", type=count, metavar="N", help=text)


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """Accept overrides of the config's decoding section: see `parser.parse`."""
    parser.set_defaults(decoding=[])
    text = "decoding.KEY=VALUE arguments override keys of the config's decoding section."
    parser.epilog = f"{parser.epilog}\n\n{text}" if parser.epilog else text


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Accept at most one precision of the weights other than float32."""
    choice = parser.add_mutually_exclusive_group()
    text = "int8 weights: faster on a CPU, nearly identical output"
    choice.add_argument("--int8", action="store_true", help=text)
    text = "float16 weights and states: faster on a CUDA GPU, nearly identical output"
    choice.add_argument("--float16", action="store_true", help=text)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Accept all options of loading a model; see `model_options`."""
    add_precision(parser)
    add_device(parser)
    add_decoding(parser)


def model_options(options: argparse.Namespace) -> "ModelOptions":
    """Return how to load a model, by those options that the command has."""
    from seq2seq.inference.loaded_model import ModelOptions

    return ModelOptions(
        device=options.device,
        int8=getattr(options, "int8", False),
        float16=getattr(options, "float16", False),
        overrides=options.decoding,
    )


def add_lowercase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lowercase", action="store_true", help="ignore case when scoring")


def add_json_report(parser: argparse.ArgumentParser) -> None:
    text = "also write the report as JSON; - prints JSON instead of the tables"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)


def add_device(parser: argparse.ArgumentParser) -> None:
    text = "auto, cpu, cuda, cuda:N or mps (default: auto)"
    parser.add_argument("--device", default="auto", metavar="DEVICE", help=text)


def count(text: str) -> int:
    """Parse an integer from 1 to MAX_COUNT."""
    if not text.isdecimal() or int(text[:20]) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, not {text!r}")
    if int(text[:20]) > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_COUNT}, not {text}")
    return int(text)


def count_or_zero(text: str) -> int:
    """Parse an integer from 0 to MAX_COUNT."""
    return 0 if text.isdecimal() and not int(text[:20]) else count(text)


def shard(text: str) -> tuple[int, int]:
    """Parse `I/N`, the I-th of N shards, from 1."""
    number, slash, shards = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"must be I/N, such as 1/8, not {text!r}")
    if count(number) > count(shards):
        raise argparse.ArgumentTypeError(
            f"must be from 1/{shards} to {shards}/{shards}, not {text}"
        )
    return int(number), int(shards)


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return number


def folder(text: str) -> Path:
    """Parse the name of a folder to write, which has to be valid UTF-8."""
    if LONE_SURROGATE.search(text):
        raise argparse.ArgumentTypeError("is not UTF-8; choose another name")
    return Path(text)


def is_file(text: str) -> bool:
    """Return whether a text is the name of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a NUL character
        return False


def is_override(text: str) -> bool:
    """Return whether a text is an override `section.key=value`, not the name of a file."""
    return "=" in text and not is_file(text)


def parallel_files(
    command: str, option: str, paths: Sequence[Path], columns: str | None, read_twice: bool = False
) -> "ParallelFiles":
    """Return the parallel text of an option; raise UserError for files that cannot be one."""
    from pydantic import ValidationError

    from seq2seq.config.schema import ParallelFiles

    if len(paths) > 2:
        raise UserError(f"{command}: give two files, source and target, or one with both sides")
    for path in paths if read_twice else ():
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path}: is read twice; give a regular file")
    tree = dict(zip(("src", "tgt") if len(paths) == 2 else ("file",), paths, strict=True))
    try:
        files = ParallelFiles.model_validate({**tree, "columns": columns})
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        place = "--columns" if columns else option
        raise UserError(f"{command} {place}: {reason}") from None
    if files.file is not None and not files.is_table and files.columns is None:
        raise UserError(
            f"{command}: {files.file} needs --columns SRC,TGT, the names of two columns"
        )
    return files
