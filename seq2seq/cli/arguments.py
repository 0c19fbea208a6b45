"""The arguments of the `seq2seq` command: what may be given, and its help."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from seq2seq import __version__
from seq2seq.cli.streams import BATCH_LINES
from seq2seq.runtime.errors import UserError

MOST = 1_000_000  # of whatever is counted


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments; `command` is the subcommand. Raises UserError where they are wrong."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if options.command == "compare" and not any(each.startswith("-") for each in rest):
        return _sorted_words(options, [*options.words, *rest], arguments)
    takes_overrides = options.command in ("train", "check")
    if rest and takes_overrides and not any(each.startswith("-") for each in rest):
        options.overrides = [*options.overrides, *rest]  # those given after an option
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def _sorted_words(
    options: argparse.Namespace, words: list[str], given: Sequence[str]
) -> argparse.Namespace:
    """Tell the configs of a comparison from the overrides, which have an equals sign."""
    options.overrides = [word for word in words if "=" in word]
    options.configs = [Path(word) for word in words if "=" not in word]
    options.given = list(given)
    if not options.configs:
        raise UserError("compare: give a config, or several; see seq2seq compare --help")
    return options


def _parser() -> _Parser:
    parser = _Parser(
        prog="seq2seq", description="Train, use and score attention-based recurrent translation."
    )
    parser.add_argument("--version", action="version", version=f"seq2seq {__version__}")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    _add_check(commands)
    _add_train(commands)
    _add_compare(commands)
    _add_translate(commands)
    _add_evaluate(commands)
    _add_score(commands)
    _add_average(commands)
    _add_attention(commands)
    return parser


def _add_check(commands: Any) -> None:
    command = commands.add_parser("check", help="look at a config's data and cost before training")
    _add_config(command)
    _add_init_from(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write all of it; - is stdout")
    _add_device(command)


def _add_train(commands: Any) -> None:
    command = commands.add_parser("train", help="train a model from a YAML config")
    _add_config(command)
    again = command.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    again.add_argument("--overwrite", action="store_true", help="replace the run in run_dir")
    _add_init_from(command)
    _add_device(command)


def _add_compare(commands: Any) -> None:
    command = commands.add_parser(
        "compare", help="train variants on the same data and seeds, and score them"
    )
    command.add_argument(
        "words",
        nargs="+",
        metavar="CONFIG",
        help="a YAML that lists variants, or several configs; and section.key=value for all",
    )
    command.add_argument("--seeds", metavar="N,N,...", help="default: the YAML's, or 1,2,3")
    command.add_argument(
        "-o",
        "--output",
        type=_folder,
        metavar="FOLDER",
        help="of all runs, translations and pictures (default: the YAML's, or runs/compare)",
    )
    command.add_argument(
        "--split",
        choices=("valid", "test"),
        default="valid",
        help="what is scored: valid to choose by (default), test at the very end",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write all of it; - is stdout")
    _add_beam(command)
    command.add_argument("--lowercase", action="store_true", help="ignore case")
    _add_device(command)


def _add_translate(commands: Any) -> None:
    command = commands.add_parser("translate", help="translate lines of text")
    _add_model(command, required=True)
    _add_input(command)
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")
    _add_beam(command)
    command.add_argument(
        "--n-best",
        type=_count,
        metavar="N",
        help="N lines an input: index (from 0) ||| text ||| score, best first",
    )
    command.add_argument(
        "--batch-size",
        type=_count,
        metavar="N",
        help=f"lines translated together (default: {BATCH_LINES}); never changes what comes out",
    )
    command.add_argument(
        "--json", action="store_true", help="one object a line: text, score, pieces, attention"
    )
    command.add_argument(
        "--stream", action="store_true", help="translate lines as they arrive, as of `tail -f`"
    )
    command.add_argument(
        "--prefix-file",
        type=Path,
        metavar="FILE",
        help="line n is the prefix of line n, blank for none; all input is read first",
    )
    command.add_argument(
        "--prefix",
        metavar="TEXT",
        help="how every translation begins; its last word may grow (Ein Hau: Ein Haus), unless a "
        "space ends it; blank lines stay blank",
    )
    _add_int8(command)
    _add_device(command)


def _add_evaluate(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="score a run, or existing translations")
    _add_model(command, required=False)
    _add_input(command, default="the config's test set")
    command.add_argument("-o", "--output", type=Path, metavar="HYP", help="keep the translations")
    command.add_argument(
        "--hyp",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="score this file instead; given twice: test the second against the first",
    )
    command.add_argument(
        "-r",
        "--ref",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="reference of -i or --hyp, may be repeated (default with -m: the config's test set)",
    )
    _add_beam(command)
    command.add_argument("--lowercase", action="store_true", help="ignore case")
    command.add_argument(
        "--tokenize",
        metavar="T",
        help="sacrebleu's (default: 13a, or of RUN's language zh or char)",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the scores; - is stdout")
    _add_int8(command)
    _add_device(command)


def _add_score(commands: Any) -> None:
    command = commands.add_parser("score", help="tell how likely given translations are")
    _add_model(command, required=True)
    _add_input(command)
    command.add_argument(
        "-r",
        "--ref",
        type=Path,
        required=True,
        metavar="FILE",
        help="the translations, line by line; each is scored whole",
    )
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")
    command.add_argument(
        "--json",
        action="store_true",
        help="one object a line: score, log_prob, perplexity, pieces and their log_probs",
    )
    _add_int8(command)
    _add_device(command)


def _add_average(commands: Any) -> None:
    command = commands.add_parser("average", help="average the weights of checkpoints")
    command.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="alone: the snapshots that it keeps (training.keep); several: the best weights of "
        "each; or single files, step-N.safetensors",
    )
    command.add_argument(
        "-o", "--output", type=_folder, required=True, metavar="NEW", help="run folder to write"
    )
    command.add_argument(
        "--last", type=_count, metavar="N", help="of one RUN the newest N snapshots (default: all)"
    )
    command.add_argument("--overwrite", action="store_true", help="replace the run in NEW")
    _add_device(command)


def _add_attention(commands: Any) -> None:
    command = commands.add_parser("attention", help="draw where the decoder looked")
    _add_model(command, required=True)
    _add_input(command)
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="FILE.png, .svg, .html (right for every script) or .json",
    )
    _add_beam(command)
    _add_device(command)


def _add_config(command: Any) -> None:
    command.add_argument("config", type=Path, metavar="CONFIG", help="YAML file, as in configs/")
    command.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="set a key of the config"
    )


def _add_model(command: Any, required: bool) -> None:
    command.add_argument(
        "-m",
        "--model",
        action="append",
        default=[],
        required=required,
        metavar="RUN",
        help="run folder; several make an ensemble, whose first run's config says how to search",
    )


def _add_input(command: Any, default: str = "stdin") -> None:
    command.add_argument(
        "-i",
        "--input",
        type=Path,
        metavar="FILE",
        help=f"source text, .gz is read too (default: {default})",
    )


def _add_beam(command: Any) -> None:
    command.add_argument(
        "-b",
        "--beam",
        type=_count,
        metavar="N",
        help="beam size, 1 = greedy (default: the config's)",
    )


def _add_int8(command: Any) -> None:
    command.add_argument(
        "--int8",
        action="store_true",
        help="weights of eight bits: faster on a CPU, nearly the same",
    )


def _add_init_from(command: Any) -> None:
    command.add_argument(
        "--init-from",
        type=Path,
        metavar="RUN",
        help="begin with the vocabulary and the best weights of another run",
    )


def _add_device(command: Any) -> None:
    command.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:N")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text[:20]) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    if int(text[:20]) > MOST:
        raise argparse.ArgumentTypeError(f"must be at most {MOST}, not {text}")
    return int(text)


def _folder(text: str) -> Path:
    if not text.isprintable() and any("\ud800" <= char <= "\udfff" for char in text):
        raise argparse.ArgumentTypeError("is not UTF-8; give it another name")
    return Path(text)
