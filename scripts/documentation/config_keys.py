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
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_UNBOUNDED = 2**62  # larger bounds say nothing to a reader
_TYPES = {"boolean": "`true`, `false`", "string": "text", "null": "`null`", "array": "list"}

Schema = dict[str, Any]


def config_keys_page() -> str:
    """Return the page in Markdown: a table of keys for each section."""
    schema = json_schema()
    parts = [_INTRODUCTION]
    for title, section, defaults in _sections(schema):
        rows = [_row(key, value, defaults, schema) for key, value in section["properties"].items()]
        text = escape(section.get("description", "").partition("\n")[0])
        head = "| key | default | |\n| --- | --- | --- |\n"
        parts.append(f"## {title}\n\n{text}\n\n{head}" + "\n".join(filter(None, rows)) + "\n")
    return "\n".join(parts)


def _sections(schema: Schema) -> Iterator[tuple[str, Schema, Schema]]:
    """Yield title, schema and defaults of the root, each section, and the files of a corpus."""
    yield "The run", schema, {}
    files: dict[str, tuple[Schema, list[str]]] = {}
    for key, value in schema["properties"].items():
        if section := _section_of(value, schema):
            yield f"`{key}`", section, value.get("default", {})
            for name, inner in section["properties"].items():
                if inner_section := _section_of(inner, schema):
                    files.setdefault(inner_section["title"], (inner_section, []))[1].append(
                        f"`{key}.{name}`"
                    )
    for section, names in files.values():
        yield ", ".join(names), section, {}


def _defined(value: Schema, schema: Schema) -> Schema:
    """Return the definition that a schema refers to, or the schema itself."""
    return schema["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value


def _section_of(value: Schema, schema: Schema) -> Schema | None:
    """Return the section that a key holds, one or a list of them; None for a plain value."""
    for each in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in each:
            section = _defined(each, schema)
            return section if "properties" in section else None  # else it may be a single value
    return None


def _row(key: str, value: Schema, defaults: Schema, schema: Schema) -> str:
    """Return the row of a key in its section's table; nothing for a section of the root."""
    if "description" not in value:
        return ""
    default = "required"
    if "default" in value:  # one that was divided into parts is complete in the section's
        given = value["default"]
        given = defaults.get(key, given) if isinstance(given, list) else given
        default = f"`{given if isinstance(given, str) else json.dumps(given)}`"
    values = "" if _section_of(value, schema) else f"<br>*{_values(value, schema)}*"
    return f"| `{key}` | {default} | {escape(value['description'])}{values} |"


def _values(value: Schema, schema: Schema) -> str:
    """Describe the values that a key takes."""
    value = _defined(value, schema)
    if "anyOf" in value:
        return " or ".join(_values(each, schema) for each in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("format") == "path":
        return "path"
    kind = value["type"]
    if isinstance(kind, list):
        return " or ".join(_values({**value, "type": each}, schema) for each in kind)
    if kind == "object":
        return f"a map of {', '.join(f'`{each}`' for each in value['properties'])}"
    bounds = [
        f"{word} {value[name]:,}"
        for name, word in _BOUNDS.items()
        if abs(value.get(name, _UNBOUNDED)) < _UNBOUNDED
    ]
    return ", ".join([_TYPES.get(kind, str(kind)), *bounds])
