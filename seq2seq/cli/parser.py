"""The parser of the `seq2seq` command: its subcommands and mistakes in options."""

import argparse
import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from seq2seq import __version__
from seq2seq.cli.arguments import is_override
from seq2seq.runtime.errors import UserError, did_you_mean
from seq2seq.runtime.files import check_paths

GROUPS = {  # headings and their commands: modules beside this one, with _ for -
    "start": {
        "demo": "train, translate and evaluate on the corpora that come with the package",
        "download": "fetch a public parallel corpus",
        "split": "divide a parallel text into train, valid and test without leaks",
        "init": "write a config that suits a text, this machine and the time for training",
        "check": "inspect the data and the training cost of a config",
        "configs": "list the configs that come with the package, or copy some",
        "explain": "describe a key of the config",
        "schema": "print the JSON schema of a config, for editors",
    },
    "train": {
        "train": "train a model from a YAML config",
        "compare": "train and score variants of a config on the same data and seeds",
        "runs": "list the runs in a folder with their scores",
        "average": "average the weights of several checkpoints",
        "distill": "translate training text by a teacher, for a student (knowledge distillation)",
        "back-translate": "make a training corpus from monolingual text of the target language",
    },
    "translate and evaluate": {
        "translate": "translate text, line by line",
        "evaluate": "compute BLEU, chrF and TER of a run or of existing translations",
        "score": "compute the log-probabilities of given translations",
        "attention": "plot the attention weights of translations",
        "report": "write one page about a run: scores, curves, sentences, attention",
    },
    "share": {
        "serve": "serve a web page and an HTTP API that translate",
        "export": "write a trained model as ONNX, to translate without torch",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

_SIMILAR = 0.75  # minimum ratio of matching characters of an option and the suggested one
_KEYS = "`seq2seq explain` lists all keys, `seq2seq explain training.decay` describes one."
_DECODING = re.compile(r"decoding\.\w*=")


class Parser(argparse.ArgumentParser):
    """Argument parser that raises UserError and refuses abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        """Create a parser, also for a subcommand: those inherit no settings."""
        formatter = argparse.RawDescriptionHelpFormatter
        settings["formatter_class"] = partial(formatter, max_help_position=30)
        super().__init__(**settings, allow_abbrev=False)

    def format_help(self) -> str:
        """Return the help, with the command that lists all keys if this one takes overrides."""
        text = super().format_help()
        return f"{text}\n{_KEYS}\n" if self._takes_overrides() else text

    def error(self, message: str) -> NoReturn:
        """Raise UserError with the message, and where to find help unless it suggests a word."""
        raise UserError(message if message.endswith("?") else f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is no choice; suggest a similar one."""
        choices = list(action.choices or ())
        if value not in choices and (hint := did_you_mean(str(value).lower(), choices)):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")
        super()._check_value(action, value)

    def refuse(self, arguments: Sequence[str]) -> NoReturn:
        """Report unrecognized arguments, with what the first option among them seems to mean."""
        first = next(filter(_is_option, arguments), None)
        hint = (first and self._option_hint(first)) or f"; see {self.prog} --help"
        raise UserError(f"unrecognized arguments: {' '.join(arguments)}{hint}")

    def _option_hint(self, argument: str) -> str:
        """Suggest the option or, for a command with overrides, the key of the config."""
        name, options = argument.partition("=")[0].replace("_", "-"), self._option_string_actions
        if meant := [text for text in options if text.startswith(name) and name != "-"]:
            return f"; did you mean '{meant[0]}'?"
        if self._takes_overrides():
            from seq2seq.config.errors import suggest_override
            from seq2seq.config.schema import Config

            if meant_key := suggest_override(argument, Config):
                return meant_key
        return did_you_mean(name, options, _SIMILAR)

    def _takes_overrides(self) -> bool:
        return any(action.dest == "overrides" for action in self._actions)


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and " " not in argument


def command_module(name: str) -> ModuleType:
    return import_module(f"seq2seq.cli.{name.replace('-', '_')}")


def describe(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """Give the parser of a subcommand its arguments, and the docstring of its module as help."""
    parser.description, start, examples = (module.__doc__ or "").strip().partition("\nexamples")
    parser.epilog = f"{start}{examples}".strip()
    module.add_arguments(parser)


class _MainParser(Parser):
    """Parser of `seq2seq` itself, whose help lists the commands in groups."""

    def format_help(self) -> str:
        """Return the help, with a heading above the first command of each group."""
        text = super().format_help().replace("\ncommands:\n  COMMAND\n", "")
        for heading, group in GROUPS.items():
            text = re.sub(rf"^(?=    {next(iter(group))} )", f"\n{heading}:\n", text, flags=re.M)
        return text


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; `run` is the function of the subcommand. Raises UserError."""
    if not arguments or arguments[0] == "help":
        arguments = [*(word for word in arguments[1:2] if word != "help"), "--help"]
    parser = _MainParser(
        prog="seq2seq",
        description="Attention-based recurrent machine translation.",
        epilog="`seq2seq help COMMAND` describes a command.",
    )
    parser.add_argument("--version", action="version", version=f"seq2seq {__version__}")
    commands = parser.add_subparsers(
        title="commands", required=True, dest="command", metavar="COMMAND", parser_class=Parser
    )
    called = next((word for word in arguments if word in COMMANDS), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == called:  # others may need packages that are not installed
            module = command_module(name)
            describe(command, module)
            command.set_defaults(run=module.run)
    options, unread = parser.parse_known_args(arguments)
    options.arguments = list(arguments)
    if "decoding" in options:
        options.decoding = [word for word in arguments if _DECODING.match(word)]
        unread = [word for word in unread if not _DECODING.match(word)]
        if "text" in options:
            options.text = [word for word in options.text if not _DECODING.match(word)]
    repeated = next((name for name in ("overrides", "text") if name in options), None)
    if any(map(_is_option, unread)) or (unread and repeated is None):
        commands.choices[options.command].refuse(unread)
    if unread and repeated:  # after an option
        setattr(options, repeated, [*getattr(options, repeated), *unread])
    check_paths(*_paths(options))
    return options


def _paths(options: argparse.Namespace) -> list[Path]:
    values: list[object] = []
    for value in vars(options).values():
        values += value if isinstance(value, list) else [value]
    configs = [value for value in getattr(options, "overrides", ()) if not is_override(value)]
    runs = getattr(options, "model", None) or ()
    return [*(value for value in values if isinstance(value, Path)), *map(Path, (*configs, *runs))]
