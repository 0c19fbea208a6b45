"""Print a script by which a shell completes commands, options and their values.

examples:
  seq2seq completion bash > ~/.local/share/bash-completion/completions/seq2seq
  seq2seq completion zsh > ~/.zfunc/_seq2seq

It takes effect in a new terminal; zsh needs the folder in fpath.
"""

import argparse
from dataclasses import dataclass

from seq2seq.cli.options import CommandLine
from seq2seq.runtime.errors import is_installed, not_installed

_SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS))


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    shell: str
    line: CommandLine


def run(options: Options) -> int:
    if not is_installed("shtab"):
        raise not_installed("completion needs shtab", "completion")
    import shtab

    from seq2seq.cli.parser import complete_parser

    print(shtab.complete(complete_parser(options.line.groups), options.shell))
    return 0
