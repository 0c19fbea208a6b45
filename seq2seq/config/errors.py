"""Report errors of a config: the line, the key, what is wrong, and the closest valid name."""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from seq2seq.config.fields import KeyPath, Section, Shorthand, section_at, section_class, show
from seq2seq.runtime.errors import UserError, did_you_mean, shorten

MAX_SHOWN = 30  # issues of a file in one message
_SIMILAR, _SIMILAR_ELSEWHERE = 0.75, 0.85  # least likeness of a key of the section, or of another
_LONGEST = 60  # characters of a name that spelling is compared for
_WORDS = json.loads(Path(__file__).with_name("errors.json").read_text("utf-8"))
_REASONS, _COMMON_NAMES = _WORDS["reasons"], _WORDS["names of other tools"]
# Names of keys in several sections.
_GENERIC = {"name", "names", "size", "type", "src", "tgt", "file", "columns", "tag", "weight"}


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
    kind, value = details["type"], details["input"]
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
    if more := len(issues) - len(first):
        texts.append(f"{path}: ... and {more:,} more error{'s' if more > 1 else ''}")
    return texts


def hint(path: KeyPath, schema: type[Section]) -> str:
    """Return a hint to a key of this or a similar name, here or in another tool; or nothing."""
    ours = dict(key_descriptions(schema))
    if "." in path[-1] and ".".join(path) in ours:
        section, _, name = path[-1].rpartition(".")
        return f"; write {name} below the section {'.'.join((*path[:-1], section))}"
    above, name = ".".join(path[:-1]), _underscored(path[-1].rpartition(".")[2])
    if (key := _COMMON_NAMES.get(name, "")) in ours:
        return f"; did you mean '{key}' ({ours[key]})?"
    section_keys = getattr(section_at(schema, path[:-1]), "model_fields", {})
    if close := _close(name, section_keys, _SIMILAR):
        return _suggest(close)
    elsewhere = {key.rpartition(".")[2] for key in ours} - _GENERIC
    return _suggest(
        key.removeprefix(f"{above}." if above else "")
        for key in ours
        if key.rpartition(".")[2] in _close(name, elsewhere, _SIMILAR_ELSEWHERE)
    )


def suggest_override(option: str, schema: type[Section]) -> str:
    """Return a hint for an option that is a key of the config, or nothing."""
    name, ours = _underscored(option.partition("=")[0]), dict(key_descriptions(schema))
    keys = [key for key in ours if name in (key, key.rpartition(".")[2])]
    keys = keys or [key for key in [_COMMON_NAMES.get(name, "")] if key in ours]
    values = [key for key in keys if is_value(section_at(schema, tuple(key.split("."))))]
    names = " or ".join(f"{key}=VALUE" for key in values)
    return f"; keys of the config are set without dashes: {names}" if names else ""


def key_descriptions(schema: type[Section], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield keys and sections by dotted name, with descriptions; not the keys of a shorthand."""
    for name, info in schema.model_fields.items():
        yield f"{above}{name}", info.description or ""
        if (section := section_class(info.annotation)) is not None and not is_value(section):
            yield from key_descriptions(section, f"{above}{name}.")


def is_value(section: type[Section] | None) -> bool:
    """Return whether a key has a value, or a section that may be a single value."""
    return section is None or issubclass(section, Shorthand)


def _close(name: str, names: Iterable[str], least: float) -> list[str]:
    return difflib.get_close_matches(name[:_LONGEST], list(names), 1, least)


def _suggest(keys: Iterable[str]) -> str:
    names = " or ".join(f"'{key}'" for key in keys)
    return f"; did you mean {names}?" if names else ""


def _underscored(name: str) -> str:
    """Return a name in lower case, with underscores: batch-size and batchSize as batch_size."""
    return re.sub("[- ]", "_", re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-"))).lower()
