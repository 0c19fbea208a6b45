"""Print what a key of a config means, its default and the values it takes.

examples:
  seq2seq explain
  seq2seq explain training.decay
  seq2seq explain warm-up

A word that is no key is searched for in the keys and what they mean.
"""

import argparse
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from seq2seq.config.schema import Config, Schema, json_schema, section_of, values_of
from seq2seq.config.suggestions import hint
from seq2seq.runtime import console, errors

_WIDTH = 88  # columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "key, with or without its section, a section, or a word to search (default: all keys)"
    parser.add_argument("keys", nargs="*", metavar="KEY", help=text)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    keys: list[str]


def run(options: Options) -> int:
    if options.keys:
        console.say("\n\n".join(text for key in options.keys for text in explanations(key)))
        return 0
    console.say(_listed(_described()))
    return 0


def explanations(name: str) -> list[str]:
    """Return the explanations of the keys of a name or section, or the keys with a word.

    Raises UserError if there are none.
    """
    schema = json_schema()
    keys = dict(_keys(schema, schema, ""))
    matches = [name] if name in keys else [key for key in keys if key.endswith(f".{name}")]
    if not matches or "description" not in keys[matches[0]]:
        matches = [key for key in keys if key.rpartition(".")[0] == name]
    if not matches and (found := _search(name)):
        return [_listed(found)]
    if not matches:
        meant = hint(tuple(name.split(".")), Config)
        raise errors.UserError(
            f"explain: unknown key {name!r}{meant or '; `seq2seq explain` lists them'}"
        )
    return [_explanation(key, keys[key], schema) for key in matches]


def _keys(section: Schema, schema: Schema, prefix: str) -> Iterator[tuple[str, Schema]]:
    for name, value in section["properties"].items():
        yield prefix + name, value
        if inner := section_of(value, schema):
            yield from _keys(inner, schema, f"{prefix}{name}.")


def _described() -> dict[str, str]:
    """Return what each key that has no sections means."""
    schema = json_schema()
    keys = _keys(schema, schema, "")
    return {key: value["description"] for key, value in keys if "description" in value}


def _search(text: str) -> dict[str, str]:
    """Return the keys that have a word, or begin one with it, in their names or descriptions."""
    letters = filter(None, re.split(r"[\W_]+", text))
    word = re.compile(r"(?<![^\W_])" + r"[\W_]*".join(map(re.escape, letters)), re.IGNORECASE)
    return {key: text for key, text in _described().items() if word.search(f"{key} {text}")}


def _listed(keys: Mapping[str, str]) -> str:
    """Return a line for each key: its name, and what it means as far as there is room."""
    width = max(map(len, keys))
    shortened = {
        key: textwrap.shorten(text, max(20, _WIDTH - width - 2), placeholder=" ...")
        for key, text in keys.items()
    }
    return "\n".join(f"{key:{width}}  {text}" for key, text in shortened.items())


def _explanation(key: str, value: Schema, schema: Schema) -> str:
    lines = [key, *textwrap.wrap(value.get("description", ""), _WIDTH - 2)]
    if not section_of(value, schema):
        values = values_of(value, schema).replace("`", "")
        lines += textwrap.wrap(f"values: {values}", _WIDTH - 2)
    if "default" in value:
        default = value["default"]
        text = default if isinstance(default, str) else json.dumps(default)
        lines += textwrap.wrap(f"default: {text}", _WIDTH - 2)
    return "\n  ".join(lines)
