"""Arguments that several subcommands share, their types, and the config or model they name."""

import argparse
import gc
import math
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os.path import isfile  # which, unlike Path.is_file, is False for impossible names
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.cli.options import (
    DecodingOverrides,
    Models,
    PathName,
    Repeated,
    ScoreName,
    Words,
    override_or_path,
)
from seq2seq.config.search_options import (
    CallOptions,
    Decoding,
    Item,
    Kind,
    Sampling,
    choices_of,
    item_of,
    kind_of,
    option_of,
    plain_options,
)
from seq2seq.model.trusted_scores import is_score_name
from seq2seq.runtime import console, process_group
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import is_table
from seq2seq.runtime.files import check_paths

if TYPE_CHECKING:
    from seq2seq.config.schema import Config, ParallelFiles
    from seq2seq.inference.loaded_model import ModelOptions
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.inference.translator import Translator

MAX_COUNT = 1_000_000  # upper limit of every count on the command line
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


def add_beam(parser: argparse.ArgumentParser) -> None:
    add_option(parser, item_of(Decoding, "beam_size"))


def add_option(parser: argparse._ActionsContainer, item: Item) -> None:
    """Accept an option of search as its record has it; None: not given."""
    parser.add_argument(*_names(item), **_reading(item))


def _add_given(
    parser: argparse._ActionsContainer, item: Item, dest: str, text: str | None = None
) -> None:
    """Accept an option of search into a dictionary, also with another help."""
    reading = _reading(item, text)
    parser.add_argument(
        *_names(item), action=_Given, dest=dest, const=item.name, default={}, **reading
    )


class _Given(argparse.Action):
    """Collects the options of search that the command line has, by name, in one dictionary."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Add a value; `const` is the name of the option."""
        value = True if self.nargs == 0 else values
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), self.const: value})


def _names(item: Item) -> tuple[str, ...]:
    """Return the spellings of an option of search."""
    flag = option_of(item).flag
    assert flag is not None, f"{item.name} has no flag"
    return flag.names or (option(item.name),)


def _reading(item: Item, text: str | None = None) -> dict[str, Any]:
    """Return how argparse reads an option of search, also with another help."""
    flag = option_of(item).flag
    description = option_of(item).description
    assert flag is not None, f"{item.name} has no flag"
    help_text = text or flag.text.format(description, default=item.default)
    if kind_of(item) is bool:
        return {"nargs": 0, "help": help_text}
    if choices := choices_of(item):
        return {"choices": choices, "metavar": flag.metavar, "help": help_text}
    return {"type": _reader(item), "metavar": flag.metavar, "help": help_text}


def _reader(item: Item) -> Callable[[str], Any]:
    """Return the function that reads an option of search on the command line."""
    kind = kind_of(item)
    flag = option_of(item).flag
    if kind is not int:
        return float if kind is float else Path
    least = option_of(item).bounds.least if flag is None or flag.least is None else flag.least
    return int if least is None else partial(count, least=least)


def _flagged(kind: Kind) -> list[Item]:
    """Return the plain options with a flag."""
    return [item for item in plain_options(kind) if option_of(item).flag is not None]


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


def model_options(given: ModelArguments) -> "ModelOptions":
    from seq2seq.inference.loaded_model import ModelOptions

    return ModelOptions(given.device, given.int8, given.float16, given.decoding)


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


def jobs_conflicts(command: str) -> "tuple[Conflict, ...]":
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


def count(text: str, least: int = 1) -> int:
    """Parse an integer from `least` to MAX_COUNT."""
    if not text.isdecimal() or int(text[:20]) < least:
        raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, not {text!r}")
    if int(text[:20]) > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_COUNT}, not {text}")
    return int(text)


count_or_zero = partial(count, least=0)


def shard(text: str) -> tuple[int, int]:
    """Parse `I/N`, the I-th of N shards, from 1."""
    number, slash, shards = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"must be I/N, such as 1/8, not {text!r}")
    if count(number) > count(shards):
        bounds = f"from 1/{shards} to {shards}/{shards}"
        raise argparse.ArgumentTypeError(f"must be {bounds}, not {text}")
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


# What of the options is given: names of fields with spaces between, of which one has a value; a
# function that says so; "" holds for every call.
Condition = str | Callable[[Any], object]


class Conflict(NamedTuple):
    """Row of a table: options that cannot be given together."""

    this: Condition
    that: Condition
    text: str  # for the user, with the remedy; {options} are those of the call


class Need(NamedTuple):
    """Row of a table: an option that needs another one."""

    this: Condition
    that: Condition
    text: str


Rows = tuple[Conflict | Need, ...]


def check_together(options: object, rows: Rows) -> None:
    """Raise UserError for the first row that the options break."""
    for row in rows:
        refused = isinstance(row, Conflict)
        if _is_given(options, row.this) and _is_given(options, row.that) == refused:
            raise UserError(row.text.format(options=options))


def _is_given(options: object, condition: Condition) -> bool:
    """Return whether a condition holds for the options."""
    if callable(condition):
        return bool(condition(options))
    return not condition or any(getattr(options, name) for name in condition.split())


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


def add_search_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    text = "line n of FILE has phrases that the translation of line n contains, separated by tabs"
    group.add_argument("--constraints", type=Path, metavar="FILE", help=text)
    add_requirements(group)
    add_sampling_options(group)
    for item in _flagged(CallOptions):
        _add_given(group, item, "call")


@dataclass(frozen=True)
class RequirementArguments:
    """Requirements on all translations, as `add_requirements` accepts them."""

    glossary: Path | None
    forbidden: Path | None


@dataclass(frozen=True)
class SearchArguments:
    """Arguments of search, as `add_search_options` accepts them."""

    constraints: Path | None
    required: RequirementArguments
    sampling: dict[str, Any]  # options of `Sampling` that are given
    call: dict[str, Any]  # options of `CallOptions` that are given


def add_requirements(parser: argparse._ActionsContainer) -> None:
    """Add the options that hold for all translations; see `requirements`."""
    add_option(parser, item_of(CallOptions, "glossary"))
    add_option(parser, item_of(CallOptions, "forbidden"))


def requirements(given: RequirementArguments, **more: Any) -> "SearchSettings":
    """Return the settings with the glossary, the forbidden phrases and more; raises UserError."""
    from seq2seq.inference.search.forbidden import checked_phrase
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.text.glossary import Glossary
    from seq2seq.text.text_files import read_lines

    glossary = Glossary.read(given.glossary) if given.glossary else None
    path = given.forbidden
    lines = enumerate(read_lines(path) if path else (), start=1)
    forbidden = tuple(checked_phrase(line, f"{path}:{number}") for number, line in lines)
    return SearchSettings(glossary, forbidden, **more)


def add_sampling_options(parser: argparse._ActionsContainer, text: str | None = None) -> None:
    """Add the options of sampling, also with another help for the number of samples."""
    samples, *details = _flagged(Sampling)
    _add_given(parser, samples, "sampling", text)
    for item in details:
        _add_given(parser, item, "sampling")


def search_settings(given: SearchArguments, beam: int | None) -> "SearchSettings":
    """Return the settings that the options and a beam size make; raises UserError."""
    from seq2seq.inference.settings import check_together

    if "diversity" in given.call and given.call.get("groups", 1) == 1:
        raise UserError("--diversity: needs --groups G of at least 2")
    sampling = sampling_options(given.sampling)
    settings = requirements(given.required, sampling=sampling, **given.call)
    check_together(settings, beam_size=beam, constraints=given.constraints)
    return settings


def sampling_options(given: Mapping[str, Any]) -> Sampling | None:
    """Return how to sample, or None for beam search; raises UserError."""
    if "samples" in given:
        return Sampling(**given)
    for item in _flagged(Sampling):
        if item.name in given:
            raise UserError("needs --sample N, which draws translations", argument=item.name)
    return None


def glossary_places(
    given: RequirementArguments, settings: "SearchSettings"
) -> Iterator[tuple[str, list[str]]]:
    """Yield the target phrases of a glossary after the file and the source phrase."""
    for src, tgt in settings.glossary.terms() if settings.glossary else ():
        yield f"{given.glossary}: {src[:60]!r}", [tgt]


def resolve_config(path: Path, overrides: Sequence[str]) -> "Config":
    """Load a config with overrides and log notes on keys that have no effect."""
    from seq2seq.config.schema import read_config_file

    config, notes = read_config_file(path, overrides)
    for note in notes if process_group.is_main_process() else ():
        console.logger.info(f"note: {note}")
    check_paths(config.run_dir, *config.data.paths())
    return config


def load_translator(
    models: Sequence[str], given: ModelArguments, beam: int | None = None, n_best: int = 1
) -> "Translator":
    """Load the models of a command; raise UserError if its beam is smaller than `n_best`."""
    with frozen_objects():
        from seq2seq.inference.translator import Translator

        translator = Translator.load_with(models, model_options(given))
    translator.beam_size(beam, n_best)  # raises before any input is read
    return translator


@contextmanager
def frozen_objects() -> Iterator[None]:
    """Keep the garbage collector from what is loaded: it would take a quarter of a second.

    Ctrl-C waits: torch's initialisation in C++ would ignore it, or fail.
    """
    noted: list[int] = []
    waits = threading.current_thread() is threading.main_thread()  # which alone receives signals
    handler = waits and signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
        if waits:
            signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)
