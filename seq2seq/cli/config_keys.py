"""List of all config keys with their defaults, for the help of commands that take overrides."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from seq2seq.config.schema import json_schema

_WIDTH = 88


def keys_help() -> str:
    """Return the section of the help that lists all keys, section by section."""
    schema = json_schema()
    lines = ["config keys and defaults, for section.key=value:"]
    for name, keys in _sections(schema):
        entries = ", ".join(_entry(key, value) for key, value in keys.items())
        lines += textwrap.wrap(
            f"{name}: {entries}" if name else entries,
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
    lines.append(
        "docs/reference/config.md and the output of `seq2seq schema` describe each of them."
    )
    return "\n".join(lines) + "\n"


def _sections(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the keys outside of all sections, then each section with its keys."""
    top, sections = {}, {}
    for name, value in schema["properties"].items():
        if "$ref" in value:
            sections[name] = schema["$defs"][value["$ref"].rpartition("/")[2]]["properties"]
        else:
            top[name] = value
    yield "", top
    yield from sections.items()


def _entry(key: str, value: dict[str, Any]) -> str:
    """Return a key with its default; of a required one, the key alone."""
    if "default" not in value:
        return key
    default = value["default"]
    return f"{key}={default if isinstance(default, str) else json.dumps(default)}"
