"""The parser of the `seq2seq` command: its subcommands and mistakes in options."""

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, NoReturn

from seq2seq import __version__
from seq2seq.cli.arguments import option
from seq2seq.cli.options import (
    CommandLine,
    DecodingOverrides,
    Groups,
    Models,
    PathName,
    Words,
    filled,
    named_scores,
    nonempty_path,
    override_or_path,
    paths_of,
)
from seq2seq.runtime.errors import UserError, did_you_mean
from seq2seq.runtime.files import check_paths

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
        for kind in (Path, PathName, override_or_path):
            self.register("type", kind, partial(nonempty_path, kind))

    def format_help(self) -> str:
        """Return the help, with the command that lists all keys if this one takes overrides."""
        text = super().format_help()
        return f"{text}\n{_KEYS}\n" if self._takes_overrides() else text

    def error(self, message: str) -> NoReturn:
        """Raise UserError with the message, and where to find help unless it suggests a word."""
        if message.endswith("?"):
            raise UserError(message)
        raise UserError(f"{message}{self._model_hint(message)}; see {self.prog} --help")

    def _model_hint(self, message: str) -> str:
        """Name the models of the package if the message says that a command needs a model."""
        models = [action for action in self._actions if isinstance(action, Models)]
        if not any("/".join(action.option_strings) in message for action in models):
            return ""
        from seq2seq.runs.packaged_models import packaged_hint

        return packaged_hint()

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
        name = argument.partition("=")[0].replace("_", "-")
        options = self._option_string_actions
        if meant := [text for text in options if text.startswith(name) and name != "-"]:
            return f"; did you mean '{meant[0]}'?"
        action = self._option_string_actions.get(option(name.lstrip("-").replace("-", "_")))
        if action is not None:  # an argument of Python, as keys and requests have it
            return f"; did you mean '{action.option_strings[-1]}'?"
        if self._takes_overrides():
            from seq2seq.config.schema import Config
            from seq2seq.config.suggestions import suggest_override

            if meant_key := suggest_override(argument, Config):
                return meant_key
        return did_you_mean(name, options, _SIMILAR)

    def _takes_overrides(self) -> bool:
        return any(action.type is override_or_path for action in self._actions)

    def words(self) -> Words | None:
        """Return the positional arguments that may stand after an option, if there are any."""
        return next((action for action in self._actions if isinstance(action, Words)), None)


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and " " not in argument


def commands_of(groups: Groups) -> dict[str, tuple[str, str]]:
    """Return the commands of all groups."""
    return {name: command for group in groups.values() for name, command in group.items()}


def command_module(name: str, package: str) -> ModuleType:
    """Import the module of a command."""
    return import_module(f"{package}.{name.replace('-', '_')}")


def describe(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """Give the parser of a subcommand its arguments, and the docstring of its module as help."""
    parser.description, start, examples = (module.__doc__ or "").strip().partition("\nexamples")
    parser.epilog = f"{start}{examples}".strip()
    module.add_arguments(parser)


class _MainParser(Parser):
    """Parser of `seq2seq` itself, whose help lists the commands in groups."""

    groups: Groups = MappingProxyType({})

    def format_help(self) -> str:
        """Return the help, with a heading above the first command of each group."""
        text = super().format_help().replace("\ncommands:\n  COMMAND\n", "")
        for heading, group in self.groups.items():
            text = re.sub(rf"^(?=    {next(iter(group))} )", f"\n{heading}:\n", text, flags=re.M)
        return text


class Call(NamedTuple):
    """A command that was called, apart from the arguments of the user."""

    run: Callable[[Any], int]
    options: Any  # the `Options` of its module
    scores: list[str]  # outside of the package, that the words of the user name


def parse(arguments: Sequence[str], groups: Groups) -> Call:
    """Parse the arguments into the options of a command; raises UserError."""
    line = CommandLine(list(arguments), groups)
    if not arguments or arguments[0] == "help":
        arguments = [*(word for word in arguments[1:2] if word != "help"), "--help"]
    parser = _main_parser(groups)
    subparsers = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=Parser
    )
    commands = commands_of(groups)
    called = next((word for word in arguments if word in commands), None)
    # A command that is the first word reads all others; only the help and mistakes list the rest.
    names = [called] if called is not None and arguments[0] == called else list(commands)
    for name in names:
        package, summary = commands[name]
        subparser = subparsers.add_parser(name, help=summary)
        if name == called:  # others may need packages that are not installed
            module = command_module(name, package)
            describe(subparser, module)
    namespace, unread = parser.parse_known_args(arguments)
    assert called is not None, "the parser requires a command"
    values = vars(namespace)
    _assign_words(values, subparsers.choices[called], arguments, unread)
    check_paths(*paths_of(values.values()))
    options = filled(module.Options, values, line)
    return Call(module.run, options, named_scores(values.values()))


def complete_parser(groups: Groups) -> Parser:
    """Return the parser of `seq2seq` with the arguments of all commands."""
    parser = _main_parser(groups)
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for name, (package, summary) in commands_of(groups).items():
        describe(subparsers.add_parser(name, help=summary), command_module(name, package))
    return parser


def _main_parser(groups: Groups) -> _MainParser:
    """Return the parser of `seq2seq`, without its commands."""
    parser = _MainParser(
        prog="seq2seq",
        description="Attention-based recurrent machine translation.",
        epilog="`seq2seq help COMMAND` describes a command.",
    )
    parser.groups = groups
    parser.add_argument("--version", action="version", version=f"seq2seq {__version__}")
    return parser


def _assign_words(
    values: dict[str, Any], parser: Parser, arguments: Sequence[str], unread: Sequence[str]
) -> None:
    """Give overrides of `decoding`, and words after an option, to the arguments that receive them.

    Raises UserError for words that no argument receives.
    """
    words = parser.words()
    positional = [] if words is None else values[words.dest]
    for name, value in values.items():
        if isinstance(value, DecodingOverrides):
            values[name] = [word for word in arguments if _DECODING.match(word)]
            positional = [word for word in positional if not _DECODING.match(word)]
            unread = [word for word in unread if not _DECODING.match(word)]
    if any(map(_is_option, unread)) or (unread and words is None):
        parser.refuse(unread)
    if words is not None:
        values[words.dest] = [*positional, *words.typed(unread)]
