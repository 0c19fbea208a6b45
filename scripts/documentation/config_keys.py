"""The page of all config keys with values, default and description, from the schema."""

import json
from collections.abc import Iterator
from typing import Any

from documentation.markdown import escape
from seq2seq.config.schema import json_schema

_INTRODUCTION = """# All config keys

Every key with its values, its default and its meaning, from the schema that checks every config.
[The config](config.md) has all keys as one YAML file, and explains schedules, names and search.
"""
_BOUNDS = {
    **{"minimum": "at least", "ge": "at least", "exclusiveMinimum": "above", "gt": "above"},
    **{"maximum": "at most", "le": "at most", "exclusiveMaximum": "below", "lt": "below"},
}
_UNBOUNDED = 2**62  # larger bounds say nothing to a reader
_TYPES = {"boolean": "`true`, `false`", "string": "text", "null": "`null`", "integer": "integer"}

Schema = dict[str, Any]


def config_keys_page() -> str:
    """Return the page in Markdown: a table of keys for each section."""
    schema = json_schema()
    parts = [_INTRODUCTION]
    for title, section in _sections(schema):
        rows = [_row(key, value, schema) for key, value in section["properties"].items()]
        text = section.get("description", "").partition("\n")[0]
        head = "| key | values | default | |\n| --- | --- | --- | --- |\n"
        parts.append(f"## {title}\n\n{text}\n\n{head}" + "\n".join(filter(None, rows)) + "\n")
    return "\n".join(parts)


def _sections(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield title and schema of the root, of each of its sections, and of the files of a corpus."""
    yield "The run", schema
    files: dict[str, tuple[Schema, list[str]]] = {}
    for key, value in schema["properties"].items():
        if section := _section_of(value, schema):
            yield f"`{key}`", section
            for name, inner in section["properties"].items():
                if inner_section := _section_of(inner, schema):
                    files.setdefault(inner_section["title"], (inner_section, []))[1].append(
                        f"`{key}.{name}`"
                    )
    for section, names in files.values():
        yield ", ".join(names), section


def _section_of(value: Schema, schema: Schema) -> Schema | None:
    """Return the section that a key holds, one or a list of them; None for a plain value."""
    for each in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in each:
            section: Schema = schema["$defs"][each["$ref"].rpartition("/")[2]]
            return section
    return None


def _row(key: str, value: Schema, schema: Schema) -> str:
    """Return the row of a key in its section's table; nothing for a section of the root."""
    if "description" not in value:
        return ""
    values = "see below" if _section_of(value, schema) else _values(value)
    default = f"`{json.dumps(value['default'])}`" if "default" in value else "required"
    return f"| `{key}` | {values} | {default} | {escape(value['description'])} |"


def _values(value: Schema) -> str:
    """Describe the values that a key takes."""
    if "anyOf" in value:
        return " or ".join(_values(each) for each in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if value.get("format") == "path":
        return "path"
    if value["type"] == "array":
        return "list"
    bounds = [
        f"{word} {value[name]:,}"
        for name, word in _BOUNDS.items()
        if abs(value.get(name, _UNBOUNDED)) < _UNBOUNDED
    ]
    kind: str = value["type"]
    return ", ".join([_TYPES.get(kind, kind), *bounds])
