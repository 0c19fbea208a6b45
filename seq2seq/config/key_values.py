"""Values that config keys take, described from the JSON schema."""

from typing import Any

Schema = dict[str, Any]
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_UNBOUNDED = 2**62  # larger bounds say nothing to a reader
_TYPES = {"boolean": "`true`, `false`", "string": "text", "null": "`null`", "array": "list"}


def section_of(value: Schema, schema: Schema) -> Schema | None:
    """Return the section that a key holds, one or a list of them; None for a plain value."""
    for option in (value, value.get("items", {}), *value.get("anyOf", ())):
        if "$ref" in option:
            section = _defined(option, schema)
            return section if "properties" in section else None  # else it may be a single value
    return None


def values_of(value: Schema, schema: Schema) -> str:
    """Describe the values that a key takes."""
    value = _defined(value, schema)
    if "anyOf" in value:
        return " or ".join(values_of(option, schema) for option in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{name}`" for name in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("format") == "path":
        return "path"
    kind = value["type"]
    if isinstance(kind, list):
        return " or ".join(values_of({**value, "type": name}, schema) for name in kind)
    if kind == "object":
        return f"a map of {', '.join(f'`{name}`' for name in value['properties'])}"
    bounds = [
        f"{word} {value[name]:,}"
        for name, word in _BOUNDS.items()
        if abs(value.get(name, _UNBOUNDED)) < _UNBOUNDED
    ]
    return ", ".join([_TYPES.get(kind, str(kind)), *bounds])


def _defined(value: Schema, schema: Schema) -> Schema:
    """Return the definition that a schema refers to, or the schema itself."""
    return schema["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value
