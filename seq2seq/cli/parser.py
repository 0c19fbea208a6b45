"""The parser of the `seq2seq` command: its subcommands, mistakes in options, shell completion."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from seq2seq import __version__
from seq2seq.runtime.errors import UserError

COMMANDS = {  # each a module beside this one
    "check": "inspect the data and the training cost of a config",
    "train": "train a model from a YAML config",
    "compare": "train and score variants of a config on the same data and seeds",
    "translate": "translate text, line by line",
    "evaluate": "compute BLEU, chrF and TER of a run or of existing translations",
    "score": "compute the log-probabilities of given translations",
    "average": "average the weights of several checkpoints",
    "attention": "plot the attention weights of translations",
}


class Parser(argparse.ArgumentParser):
    """Argument parser that raises UserError and refuses abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        """Create a parser, also for a subcommand: those inherit no settings."""
        settings["formatter_class"] = partial(
            argparse.RawDescriptionHelpFormatter, max_help_position=30
        )
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise UserError with the message and the command that prints the help."""
        raise UserError(f"{message}; see {self.prog} --help")

    def refuse(self, arguments: Sequence[str]) -> NoReturn:
        """Report unrecognized arguments; suggest the option that the first one seems to mean."""
        from seq2seq.config.errors import did_you_mean

        first = next((each for each in arguments if each.startswith("-")), arguments[0])
        name, known = first.partition("=")[0], list(self._option_string_actions)
        abbreviated = [option for option in known if option.startswith(name)]
        hint = did_you_mean(next(iter(abbreviated), name), known)
        message = f"unrecognized arguments: {' '.join(arguments)}"
        raise UserError(f"{message}{hint}" if hint else f"{message}; see {self.prog} --help")


class _PrintCompletion(argparse.Action):
    """Option that prints the completion script of a shell and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> NoReturn:
        """Print the script; raise UserError if shtab is not installed."""
        try:
            import shtab
        except ImportError:
            raise UserError(
                "--print-completion needs shtab: pip install 'seq2seq[completion]'"
            ) from None
        (commands,) = (each.choices for each in parser._actions if each.dest == "command")
        assert isinstance(commands, dict)
        for action in (action for command in commands.values() for action in command._actions):
            if action.option_strings and action.metavar in ("RUN", "FOLDER"):
                action.complete = shtab.DIRECTORY
            elif action.type is Path:
                action.complete = shtab.FILE
        print(shtab.complete(parser, values[1]))
        parser.exit()


def command_modules() -> dict[str, ModuleType]:
    """Import the modules of all subcommands."""
    from seq2seq.cli import attention, average, check, compare, evaluate, score, train, translate

    modules = (attention, average, check, compare, evaluate, score, train, translate)
    return {module.__name__.rpartition(".")[2]: module for module in modules}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; `run` is the function of the subcommand. Raises UserError."""
    parser = Parser(
        prog="seq2seq",
        description="Attention-based recurrent machine translation.",
        epilog="`seq2seq COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="version", version=f"seq2seq {__version__}")
    text, shells = "print the completion script of a shell", ("bash", "zsh", "tcsh")
    parser.add_argument("--print-completion", action=_PrintCompletion, choices=shells, help=text)
    commands = parser.add_subparsers(
        title="commands", required=True, dest="command", metavar="COMMAND"
    )
    words = {each.partition("=")[0] for each in arguments}
    needed = bool(words & {*COMMANDS, "--print-completion"})
    modules = command_modules() if needed else {}  # `seq2seq --help` needs none
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if needed:
            modules[name].add_arguments(command)
            command.set_defaults(run=modules[name].run)
    options, rest = parser.parse_known_args(arguments)
    options.arguments = list(arguments)
    if any(each.startswith("-") for each in rest) or (rest and "overrides" not in options):
        commands.choices[options.command].refuse(rest)
    if rest:  # overrides after an option
        options.overrides = [*options.overrides, *rest]
    return options
