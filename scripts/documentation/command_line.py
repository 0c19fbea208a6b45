"""The page of all commands and options, from the argparse parsers."""

import argparse
from collections.abc import Iterator

from documentation.markdown import escape
from seq2seq.__main__ import GROUPS
from seq2seq.cli.parser import Parser, command_module, commands_of, describe

_INTRODUCTION = """# Command line

`seq2seq help COMMAND` and `seq2seq COMMAND --help` print what this page lists. Write options in
full: abbreviations are refused. Options may precede or follow other arguments.

| command | |
| --- | --- |
"""


def command_line_page() -> str:
    """Return the page in Markdown: a section for each command."""
    rows = [
        f"| [`{name}`](#seq2seq-{name}) | {summary} |"
        for name, (_, summary) in commands_of(GROUPS).items()
    ]
    sections = [_section(name, parser) for name, parser in command_parsers()]
    return _INTRODUCTION + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def command_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command with its parser, in the order of `seq2seq --help`."""
    for name, (package, _) in commands_of(GROUPS).items():
        parser = Parser(prog=f"seq2seq {name}", add_help=False)
        describe(parser, command_module(name, package))
        yield name, parser


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    """Return heading, description, usage, arguments and examples of a command."""
    parts = [f"## seq2seq {name}"]
    if parser.description:
        parts.append(escape(parser.description))
    parts.append(f"```text\n{_usage(parser)}\n```")
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        parts += [_definition(parser, action) for action in actions]
    if parser.epilog:
        parts.append(_epilog(parser.epilog))
    return "\n\n".join(parts)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage lines, of the same width on any terminal."""
    formatter = argparse.HelpFormatter(parser.prog, width=90)
    groups = parser._mutually_exclusive_groups
    formatter.add_usage(parser.usage, parser._actions, groups, prefix="")
    return formatter.format_help().strip()


def _definition(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return an argument and its help as an entry of a definition list."""
    formatter = parser._get_formatter()
    names = formatter._format_action_invocation(action).split(", ")
    text = formatter._expand_help(action) if action.help else ""
    return ", ".join(f"`{name}`" for name in names) + f"\n:   {escape(text)}"


def _epilog(text: str) -> str:
    """Return the text after the options: indented lines are commands, the others prose."""
    parts = []
    for block in text.strip().split("\n\n"):
        head, *paragraph = block.splitlines()
        if paragraph and all(line.startswith("  ") for line in paragraph):
            parts.append(f"{escape(head).capitalize()}\n")
            parts.append("```bash\n" + "\n".join(line[2:] for line in paragraph) + "\n```\n")
        else:
            parts.append(escape(block) + "\n")
    return "\n".join(parts).strip()
