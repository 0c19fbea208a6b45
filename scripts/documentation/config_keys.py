"""The page of all config keys with values, default and description, from the schema."""

import json
import re
from collections.abc import Iterator

from documentation.markdown import escape
from seq2seq.config.schema import Schema, json_schema, section_of, values_of

_INTRODUCTION = """# Config keys in tables

Every key with its values, its default and its meaning, from the schema that checks every config.
[Config keys](config.md) has all keys as one YAML file, and explains schedules, names and search.
"""


def config_keys_page() -> str:
    """Return the page in Markdown: a table of keys for each section."""
    schema = json_schema()
    parts = [_INTRODUCTION]
    for title, section, defaults in _sections(schema):
        rows = [
            _row(key, _anchors(title, key), (value, defaults), schema)
            for key, value in section["properties"].items()
        ]
        text = escape(section.get("description", "").partition("\n")[0])
        head = "| key | default | |\n| --- | --- | --- |\n"
        parts.append(f"## {title}\n\n{text}\n\n{head}" + "\n".join(filter(None, rows)) + "\n")
    return "\n".join(parts)


def _sections(schema: Schema) -> Iterator[tuple[str, Schema, Schema]]:
    """Yield title, schema and defaults of the root, each section, and the files of a corpus."""
    yield "The run", schema, {}
    files: dict[str, tuple[Schema, list[str]]] = {}
    for key, value in schema["properties"].items():
        if section := section_of(value, schema):
            yield f"`{key}`", section, value.get("default", {})
            for name, inner in section["properties"].items():
                if inner_section := section_of(inner, schema):
                    files.setdefault(inner_section["title"], (inner_section, []))[1].append(
                        f"`{key}.{name}`"
                    )
    for section, names in files.values():
        yield ", ".join(names), section, {}


def _anchors(title: str, key: str) -> str:
    """Return targets of links such as `config-keys.md#training.decay`."""
    sections = re.findall("`(.*?)`", title) or [""]
    names = (f"{section}.{key}".removeprefix(".") for section in sections)
    return "".join(f'<span id="{name}"></span>' for name in names)


def _row(key: str, anchors: str, described: tuple[Schema, Schema], schema: Schema) -> str:
    """Return the row of a key in its section's table; nothing for a section of the root.

    `described` are the schema of the key and the defaults of the section.
    """
    value, defaults = described
    if "description" not in value:
        return ""
    default = "required"
    if "default" in value:  # one that was divided into parts is complete in the section's
        default_value = value["default"]
        if isinstance(default_value, list):
            default_value = defaults.get(key, default_value)
        text = default_value if isinstance(default_value, str) else json.dumps(default_value)
        default = f"`{text}`"
    values = "" if section_of(value, schema) else f"<br>*{values_of(value, schema)}*"
    return f"| {anchors}`{key}` | {default} | {escape(value['description'])}{values} |"
