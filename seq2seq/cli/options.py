"""Options of a command: the record that its parsed arguments become, and how its words are typed.

A type says what a word is: files are checked and scores are trusted by type, whatever the names of
the arguments are.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from os.path import isfile  # which, unlike Path.is_file, is False for impossible names
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from seq2seq.model.trusted_scores import is_score_name

# Headings, and their commands by name: the package of each, and what it does. Its module there has
# `add_arguments(parser)`, a dataclass `Options` and `run(options)`.
Groups = Mapping[str, Mapping[str, tuple[str, str]]]
Record = TypeVar("Record")

_SCORE_KEYS = ("model", "model.score", "model.score.name")


class CommandLine(NamedTuple):
    """The call of a command; a field of `Options` with this type receives it."""

    words: list[str]  # of the command, itself included
    groups: Groups


class PathName(str):
    """Name of a file or folder in the spelling of the user, which messages repeat."""


class Override(str):
    """Word `section.key=value`, which sets a key of the config."""


class ScoreName(str):
    """Attention score outside of the package that may be imported."""


class DecodingOverrides(list[str]):
    """Default of an argument that receives the words `decoding.KEY=VALUE`; see `parser.parse`."""


class Words(argparse._StoreAction):
    """Stores positional arguments, of which some may stand after an option."""

    def typed(self, words: Iterable[str]) -> list[str]:
        """Return further words in the type of the argument."""
        typed: Any = self.type or str
        return list(map(typed, words))


class Repeated(argparse._AppendAction):
    """Collects the values of a repeated option in place of its default, not after that."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Append a value; the first one begins a new list."""
        if getattr(namespace, self.dest) is self.default:
            setattr(namespace, self.dest, [])
        super().__call__(parser, namespace, values, option_string)


class Models(Repeated):
    """Collects the models that translate: run folders, exports, and names of the package's."""


def is_override(text: str) -> bool:
    """Return whether a text is an override `section.key=value`, not the name of a file."""
    return "=" in text and not isfile(text)  # noqa: PTH113


def nonempty_path(kind: Callable[[str], Any], text: str) -> Any:
    """Return a path of a kind; an empty name, as of a variable that is not set, is refused.

    To `Path` it is the working folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("is empty; give a name")
    return kind(text)


def override_or_path(text: str) -> Override | PathName:
    """Type a word that is an override, or else the name of a config."""
    return Override(text) if is_override(text) else PathName(text)


def filled(kind: type[Record], values: Mapping[str, Any], line: CommandLine) -> Record:
    """Return a record of parsed values by name; raises TypeError unless the names are the same."""
    remaining = dict(values)
    record: Record = _filled(kind, remaining, line)
    if remaining:
        names = ", ".join(remaining)
        raise TypeError(f"{kind.__module__}.{kind.__name__} has no field for: {names}")
    return record


def _filled(kind: Any, remaining: dict[str, Any], line: CommandLine) -> Any:
    """Move values to the fields of a record, and of the records in it."""
    field_values: dict[str, Any] = {}
    for field in fields(kind):
        if field.type is CommandLine:
            field_values[field.name] = line
        elif is_dataclass(field.type):
            field_values[field.name] = _filled(field.type, remaining, line)
        elif field.name in remaining:
            field_values[field.name] = remaining.pop(field.name)
        else:
            raise TypeError(f"{kind.__module__}.{kind.__name__}: no argument is {field.name}")
    return kind(**field_values)


def paths_of(values: Iterable[object]) -> list[Path]:
    """Return the files and folders among parsed values, those that are named by words last."""
    entries = _entries(values)
    paths = [entry for entry in entries if isinstance(entry, Path)]
    return [*paths, *(Path(entry) for entry in entries if isinstance(entry, PathName))]


def named_scores(values: Iterable[object]) -> list[str]:
    """Return the scores outside of the package that options and overrides name."""
    entries = _entries(values)
    scores: list[str] = [entry for entry in entries if isinstance(entry, ScoreName)]
    for word in entries:
        if isinstance(word, Override):
            key, _, value = word.partition("=")
            texts = re.findall(r"[\w.]+:\w+", value) if key.strip() in _SCORE_KEYS else []
            scores += filter(is_score_name, texts)
    return scores


def _entries(values: Iterable[object]) -> Sequence[object]:
    """Return the values, and the entries of lists in place of these."""
    entries: list[object] = []
    for value in values:
        entries += value if isinstance(value, list) else [value]
    return entries
