"""Arguments that several subcommands share, and the config, text or model that they name."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import isfile  # which, unlike Path.is_file, is False for impossible names
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli.conflicts import Conflict
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.number_types import count
from seq2seq.cli.options import (
    DecodingOverrides,
    Models,
    PathName,
    Repeated,
    ScoreName,
    Words,
    override_or_path,
)
from seq2seq.model.trusted_scores import is_score_name
from seq2seq.runtime import console, process_group
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import is_table
from seq2seq.runtime.files import check_paths

if TYPE_CHECKING:
    from seq2seq.config.schema import Config, ParallelFiles
    from seq2seq.inference.loaded_model import ModelOptions
    from seq2seq.inference.translator import Translator

MOST_JOBS = 16
MAX_THREADS = 1_024  # OpenMP ends the process where the system refuses it a thread
_OPTIONS = {  # by arguments with another name
    "beam_size": "-b",
    "head_attention": "--heads",
    "output": "-o",
    "sampling": "--sample",
    "samples": "--sample",
    "scores": "--score",
}


def option(name: str, value: object = None) -> str:
    """Spell an argument of a Python function as an option, with its value unless it is a flag.

    An option is repeated for the values of a list.
    """
    text = _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
    if isinstance(value, list):
        return " ".join(f"{text} {entry}" for entry in value)
    return text if value is None or value is True else f"{text} {value}"


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="YAML, see `seq2seq configs`")
    add_overrides(parser, "override a key of the config")


def add_overrides(parser: argparse.ArgumentParser, text: str) -> None:
    """Accept overrides of a config, also after an option."""
    parser.add_argument(
        "overrides",
        action=Words,
        nargs="*",
        default=[],
        type=override_or_path,
        metavar="section.key=value",
        help=text,
    )


def add_text(parser: argparse.ArgumentParser, text: str) -> None:
    """Accept sentences in place of a file, also after an option."""
    parser.add_argument("text", action=Words, nargs="*", default=[], metavar="TEXT", help=text)


def add_init_from(parser: argparse.ArgumentParser) -> None:
    text = "initialise from another run's vocabulary and best weights"
    parser.add_argument("--init-from", type=Path, metavar="RUN", help=text)


_ENSEMBLE = "an ensemble, which decodes as the first run does"


def add_model(
    parser: argparse.ArgumentParser, required: bool = True, repeated: str = _ENSEMBLE
) -> None:
    """Accept models that translate."""
    text = f"run folder, exported model or en-fr, the package's; repeat for {repeated}"
    _add_model(parser, Models, text, required)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Accept run folders, whose configs and weights a command needs."""
    _add_model(parser, Repeated, f"run folder; repeat for {_ENSEMBLE}", required=True)


def _add_model(
    parser: argparse.ArgumentParser, action: type[Repeated], text: str, required: bool
) -> None:
    parser.add_argument(
        "-m",
        "--model",
        action=action,
        default=[],
        required=required,
        type=PathName,
        metavar="RUN",
        help=text,
    )


def add_input(parser: argparse.ArgumentParser, default: str = "stdin") -> None:
    text = f"source text, one sentence per line, also .gz or .bz2 (default: {default})"
    parser.add_argument("-i", "--input", type=Path, metavar="FILE", help=text)


def add_output(
    parser: argparse.ArgumentParser, text: str = "output file (default: stdout)"
) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)


def add_output_folder(parser: argparse.ArgumentParser, text: str, **settings: Any) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help=text, **settings)


@dataclass(frozen=True)
class ModelArguments:
    """Arguments of loading models, as `add_model_options` accepts them."""

    device: str
    int8: bool
    float16: bool
    decoding: list[str]
    scores: list[str]  # trusted while the command runs


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Accept the options of loading a model, and overrides of `decoding`: see `parser.parse`."""
    choice = parser.add_mutually_exclusive_group()
    text = "int8 weights: faster on a CPU, nearly identical output"
    choice.add_argument("--int8", action="store_true", help=text)
    text = "float16 weights and states: faster on a CUDA GPU, nearly identical output"
    choice.add_argument("--float16", action="store_true", help=text)
    add_device(parser)
    add_scores(parser)
    parser.set_defaults(decoding=DecodingOverrides())
    text = "decoding.KEY=VALUE arguments override keys of the config's decoding section."
    parser.epilog = f"{parser.epilog or ''}\n\n{text}".strip()


def model_options(loading: ModelArguments) -> "ModelOptions":
    from seq2seq.inference.loaded_model import ModelOptions

    return ModelOptions(loading.device, loading.int8, loading.float16, loading.decoding)


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Accept names of scores outside of the package; `main` trusts them while a command runs."""
    text = "attention score outside of seq2seq that may be imported; repeat for more"
    parser.add_argument(
        "--score",
        action=Repeated,
        type=_score_name,
        default=[],
        dest="scores",
        metavar="MODULE:CLASS",
        help=text,
    )


def _score_name(text: str) -> ScoreName:
    if not is_score_name(text):
        form = "must have the form package.module:Class, such as my_scores:Cosine"
        raise argparse.ArgumentTypeError(f"{form}, not {text!r}")
    return ScoreName(text)


def add_lowercase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lowercase", action="store_true", help="ignore case when scoring")


def add_json_report(parser: argparse.ArgumentParser) -> None:
    text = "also write the report as JSON; - prints JSON instead of the tables"
    parser.add_argument("--json", type=Path, metavar="FILE", help=text)


def add_device(parser: argparse.ArgumentParser) -> None:
    text = "auto, cpu, cuda, cuda:N or mps (default: auto)"
    parser.add_argument("--device", default="auto", metavar="DEVICE", help=text)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that train: device, threads and trusted scores."""
    add_device(parser)
    add_threads(parser)
    add_scores(parser)


def add_threads(parser: argparse.ArgumentParser) -> None:
    text = "CPU threads (default: one or all, whichever is faster at the start)"
    parser.add_argument("--threads", type=_thread_count, metavar="N", help=text)


def add_jobs(parser: argparse.ArgumentParser, noun: str) -> None:
    """Add the number of processes that a command trains in; see `jobs_conflicts`."""
    text = f"{noun} at once, each with one CPU thread (default: one, with --threads)"
    parser.add_argument("--jobs", type=count, default=1, metavar="N", help=text)


def jobs_conflicts(command: str) -> tuple[Conflict, ...]:
    """Return what does not go together with several jobs."""
    return (
        Conflict(
            lambda options: options.jobs > 1,
            "threads",
            f"{command}: each of --jobs {{options.jobs}} has one thread; leave --threads out",
        ),
        Conflict(
            lambda options: options.jobs > MOST_JOBS,
            "",
            f"{command}: --jobs {{options.jobs}}: at most {MOST_JOBS}",
        ),
    )


def _thread_count(text: str) -> int:
    number = count(text)
    if number > MAX_THREADS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_THREADS}, not {text}")
    return number


def check_sentences(command: str, texts: Sequence[str]) -> None:
    """Raise UserError for a file in place of sentences."""
    if len(texts) == 1 and isfile(texts[0]):  # noqa: PTH113
        name = shlex.quote(texts[0])
        raise UserError(f"{command}: {name} is a file; did you mean -i {name}?")


def parallel_files(
    command: str, option: str, paths: Sequence[Path], columns: str | None
) -> "ParallelFiles":
    """Return the parallel text of an option, which is read twice; raises UserError."""
    from pydantic import ValidationError

    from seq2seq.config.schema import ParallelFiles

    if len(paths) > 2:
        raise UserError(f"{command}: give two files, source and target, or one with both sides")
    for path in paths:
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
        text = f"{files.file} needs --columns SRC,TGT, the names of two columns"
        raise UserError(f"{command}: {text}")
    return files


def check_named_languages(paths: Sequence[Path], codes: tuple[str, str]) -> None:
    """Raise UserError for a file of one language whose name ends in the code of the other one."""
    for path, code, wrong in zip(paths, codes, codes[::-1], strict=False):
        endings = {suffix[1:].lower() for suffix in path.suffixes}
        if wrong.lower() in endings and code.lower() not in endings and not is_table(path):
            text = f"has to be in {code} here, but its name ends in {wrong}"
            remedy = "Exchange the files or the languages"
            raise UserError(f"{path}: {text}. {remedy}")


def resolve_config(path: Path, overrides: Sequence[str]) -> "Config":
    """Load a config with overrides and log notes on keys that have no effect."""
    from seq2seq.config.schema import read_config_file

    config, notes = read_config_file(path, overrides)
    for note in notes if process_group.is_main_process() else ():
        console.logger.info(f"note: {note}")
    check_paths(config.run_dir, *config.data.paths())
    return config


def load_translator(
    models: Sequence[str], loading: ModelArguments, beam: int | None = None, n_best: int = 1
) -> "Translator":
    """Load the models of a command; raise UserError if its beam is smaller than `n_best`."""
    with frozen_objects():
        from seq2seq.inference.translator import Translator

        translator = Translator.load_with(models, model_options(loading))
    translator.beam_size(beam, n_best)  # raises before any input is read
    return translator
