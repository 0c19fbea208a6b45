"""Report errors of a config: the line, the key, and what is wrong."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from seq2seq.config.fields import KeyPath, Section, Shorthand, section_at, show
from seq2seq.config.suggestions import hint, lacking_space
from seq2seq.runtime.errors import UserError, did_you_mean, shorten

MAX_SHOWN = 30  # issues of a file in one message
_REASONS = json.loads(Path(__file__).with_name("errors.json").read_text("utf-8"))


class ConfigIssue(NamedTuple):
    """One error of a config: its line in the YAML file, if any, and its message."""

    line: int | None
    text: str
    command_line: bool = False


class ConfigError(UserError):
    """Invalid config; the message has a line for each issue."""

    def __init__(self, *lines: str, issues: Sequence[ConfigIssue] = ()) -> None:
        super().__init__(*lines)
        self.issues = tuple(issues)


class Places(NamedTuple):
    """Places that set the keys of a config: lines of its file, and overrides."""

    lines: Mapping[KeyPath, int]
    overridden: Collection[KeyPath] = ()

    def is_overridden(self, path: KeyPath) -> bool:
        """Return whether an override sets the key, or one below it."""
        return any(override[: len(path)] == path for override in self.overridden)


def describe_all(
    error: ValidationError, schema: type[Section], places: Places
) -> list[ConfigIssue]:
    """Convert the errors of pydantic to issues, those of the lowest lines first.

    As many as a message shows have a hint to the key that is meant: searching for it takes time.
    """
    errors = error.errors(include_url=False)
    errors.sort(key=lambda details: places.lines.get(_path_of(details["loc"], places.lines), 0))
    issues = []
    for number, details in enumerate(errors):
        if details["type"] == "extra_forbidden":
            path = _path_of(details["loc"], places.lines)
            names = tuple(key for key in details["loc"] if isinstance(key, str))  # no list places
            similar = hint(names, schema) if number < MAX_SHOWN else ""
            typed = places.is_overridden(path)
            issues.append(_issue(path, f": unknown key{similar}", typed, places))
        else:
            issues.append(_describe_wrong(details, schema, places))
    return [*dict.fromkeys(issues)]  # a single value may be wrong in both keys that it sets


def _describe_wrong(details: ErrorDetails, schema: type[Section], places: Places) -> ConfigIssue:
    """Convert an error of a value to an issue at the place where the value was set."""
    kind = details["type"]
    value = details["input"]
    limits: dict[str, Any] = {
        name: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for name, limit in details.get("ctx", {}).items()
    }
    path = _path_of(details["loc"], places.lines)
    path = path if kind == "missing" else _where_set(path, schema, places)
    across_keys = kind == "value_error" and isinstance(value, dict)
    typed = places.is_overridden(path) and (
        not across_keys
        or path in places.overridden
        or any(
            override[: len(path)] == path and override[-1] in str(limits["error"])
            for override in places.overridden
        )
    )
    unset = kind == "value_error" and value is None
    if unset:
        path = path[:-1]  # the issue is its section's
    reason = ": " + _REASONS.get(kind, details["msg"]).format(**limits)
    if not (across_keys or unset or kind == "missing" or value == ""):
        kind_of_value = "a section" if isinstance(value, dict) else "a list"
        is_plain = not isinstance(value, dict | list)
        reason += f"; got {show(value) if is_plain else kind_of_value}"
    if typed and kind in ("dict_type", "model_type"):
        reason += f"; set them one by one: {'.'.join(path)}.KEY=VALUE"
    if isinstance(value, str) and (key := lacking_space(value, schema)):
        reason += f"; a space is missing after {key}:"
    if kind == "literal_error":
        reason += did_you_mean(str(value), re.findall(r"'(.+?)'", limits["expected"]))
    return _issue(path, reason, typed, places)


def _issue(path: KeyPath, reason: str, typed: bool, places: Places) -> ConfigIssue:
    place = shorten(".".join(path)) + (" (override)" if typed else "")
    return ConfigIssue(None if typed else places.lines.get(path), f"{place}{reason}", typed)


def _where_set(path: KeyPath, schema: type[Section], places: Places) -> KeyPath:
    """Return the path of a key, or of the section above it if that was set by a single value."""
    section = section_at(schema, path[:-1])
    is_set = path in places.lines or places.is_overridden(path)
    single = section is not None and issubclass(section, Shorthand)
    return path[:-1] if single and not is_set else path


def _path_of(location: Sequence[int | str], lines: Mapping[KeyPath, int]) -> KeyPath:
    """Return the path of a key, its places in lists from 1; a single value has none."""
    path: KeyPath = ()
    for key in location:
        if isinstance(key, str):
            path = (*path, key)
        elif (entry := (*path, str(key + 1))) in lines:
            path = entry
    return path


def summary(path: Path, issues: Sequence[ConfigIssue]) -> list[str]:
    """Return the lines of a message on a file, `FILE:LINE: ...` for each issue, in line order.

    Of more than MAX_SHOWN issues, those without a line precede; the others are counted.
    """
    first = sorted(issues, key=lambda issue: issue.line or 0)[:MAX_SHOWN]
    first.sort(key=lambda issue: (issue.line is None, issue.line or 0))
    places = [f"{path}:{issue.line}: " if issue.line else f"{path}: " for issue in first]
    texts = [
        issue.text if issue.command_line else place + issue.text
        for place, issue in zip(places, first, strict=True)
    ]
    if rest_count := len(issues) - len(first):
        texts.append(f"{path}: ... and {rest_count:,} more error{'s' if rest_count > 1 else ''}")
    return texts
