"""Report errors of a config: the line, the key, what is wrong, and the closest valid name."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from seq2seq.config.unknown_keys import RENAMED, KeyPath, describe_unknown, section_class
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.suggestions import did_you_mean, shorten

MAX_SHOWN = 30  # issues of a file in one message


class ConfigIssue(NamedTuple):
    """One error of a config: its line in the YAML file, if any, and its message."""

    line: int | None
    text: str
    command_line: bool = False
    renamed: bool = False  # a key of an earlier version


class ConfigError(UserError):
    """Invalid config; the message has a line for each issue."""

    def __init__(self, *lines: str, issues: Sequence[ConfigIssue] = ()) -> None:
        super().__init__(*lines)
        self.issues = tuple(issues)


_REASONS = {  # by the error types of pydantic
    "missing": "required key is missing",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_parsing_size": "must be an integer of fewer digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "path_type": "must be a file name",
    "dict_type": "must be a section with keys",
    "model_type": "must be a section with keys",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def describe_all(
    error: ValidationError,
    schema: type[BaseModel],
    lines: dict[KeyPath, int],
    overridden: Collection[KeyPath] = (),
) -> list[ConfigIssue]:
    """Convert the errors of pydantic to issues, those of the lowest lines first.

    As many as a message shows have a hint to the key that is meant: searching for it takes time.
    """
    errors = error.errors(include_url=False)
    errors.sort(key=lambda each: lines.get(_path_of(each["loc"], lines), 0))
    issues = [
        _describe(details, schema, lines, overridden, with_hint=index < MAX_SHOWN)
        for index, details in enumerate(errors)
    ]
    return [*dict.fromkeys(issues)]  # a value of two fields may be wrong in both


def _describe(
    details: ErrorDetails,
    schema: type[BaseModel],
    lines: dict[KeyPath, int],
    overridden: Collection[KeyPath],
    with_hint: bool,
) -> ConfigIssue:
    """Convert a validation error of pydantic to an issue at the place where the value was set."""
    path = _path_of(details["loc"], lines)
    if path not in lines and path not in overridden:
        path = _without_fields(path, schema)
    kind, value = details["type"], details["input"]
    limits: dict[str, Any] = {name: _plain(limit) for name, limit in details.get("ctx", {}).items()}
    across_keys = kind == "value_error" and isinstance(value, dict)
    typed = any(
        override[: len(path)] == path and (not across_keys or override[-1] in str(limits["error"]))
        for override in overridden
    )
    if kind == "extra_forbidden":
        named = tuple(key for key in details["loc"] if isinstance(key, str))  # no places in lists
        reason = describe_unknown(named, value, schema, with_hint)
    else:
        reason = ": " + _REASONS.get(kind, details["msg"]).format(**limits)
        if kind == "value_error" and value is None:
            path = path[:-1]  # the key is unset: the issue is its section's
        elif not across_keys and kind != "missing" and value != "":
            reason += f"; got {show(value)}"
        if typed and kind in ("dict_type", "model_type"):
            reason += f"; set them one by one: {'.'.join(path)}.KEY=VALUE"
        if kind == "literal_error":
            reason += did_you_mean(str(value), re.findall(r"'(.+?)'", limits["expected"]))
    place = shorten(".".join(path)) + (" (override)" if typed else "")
    renamed = kind == "extra_forbidden" and ".".join(path) in RENAMED
    return ConfigIssue(None if typed else lines.get(path), f"{place}{reason}", typed, renamed)


def _path_of(location: Sequence[int | str], lines: Mapping[KeyPath, int]) -> KeyPath:
    """Return the path of a key, with places in lists from 1 on.

    A single value that the schema reads as a list of one has no place.
    """
    path: KeyPath = ()
    for each in location:
        if isinstance(each, str):
            path = (*path, each)
        elif (entry := (*path, str(each + 1))) in lines:
            path = entry
    return path


def _without_fields(path: KeyPath, schema: type[BaseModel]) -> KeyPath:
    """Return the path of a key, without the field of its value that an error is about."""
    section: type[BaseModel] | None = schema
    for depth, name in enumerate(path):
        if section is None:
            return path[:depth]
        if name in section.model_fields:
            section = section_class(section.model_fields[name].annotation)
    return path


def _plain(limit: object) -> object:
    """Return a limit as people write it: 1, not 1.0."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def show(value: object) -> str:
    """Format a value as in YAML, shortened to 60 characters."""
    if isinstance(value, dict | list):
        return "a section" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value.as_posix() if isinstance(value, Path) else str(value)
    return shorten(text if text.isprintable() and text else repr(text))


def summary(path: Path, issues: Sequence[ConfigIssue]) -> list[str]:
    """Return the lines of a message on a file, `FILE:LINE: ...` for each issue, in line order.

    Of more than MAX_SHOWN issues, those without a line precede; the others are counted.
    """
    shown = sorted(issues, key=lambda issue: issue.line or 0)[:MAX_SHOWN]
    shown.sort(key=lambda issue: (issue.line is None, issue.line or 0))
    places = [f"{path}:{each.line}: " if each.line else f"{path}: " for each in shown]
    texts = [
        each.text if each.command_line else place + each.text
        for place, each in zip(places, shown, strict=True)
    ]
    if more := len(issues) - len(shown):
        texts.append(f"{path}: ... and {more:,} more error{'s' if more > 1 else ''}")
    return texts
