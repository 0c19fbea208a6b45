"""Mistakes in a config, told in a newcomer's words: where, what, and what was probably meant."""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from seq2seq.runtime.errors import UserError

KeyPath = tuple[str, ...]
RENAMED = {"training.max_length": "data.max_length"}  # keys of earlier versions


class ConfigIssue(NamedTuple):
    """One line of a ConfigError, and the line of the YAML file that it is about."""

    line: int | None
    text: str
    command_line: bool = False


class ConfigError(UserError):
    """A config that cannot be used; the message has a line for each of its mistakes."""

    def __init__(self, text: str, mistakes: Sequence[ConfigIssue] = ()) -> None:
        super().__init__(text)
        self.mistakes = tuple(mistakes)


_REASONS = {
    "missing": "missing; it has no default",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a file name",
    "dict_type": "must be a section, with keys of its own",
    "model_type": "must be a section, with keys of its own",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def describe(
    details: ErrorDetails,
    schema: type[BaseModel],
    lines: dict[KeyPath, int],
    overridden: set[KeyPath],
) -> ConfigIssue:
    """Say in a newcomer's words what pydantic found wrong with a value, and where it was set."""
    path: KeyPath = tuple(str(key) for key in details["loc"])
    kind, value = details["type"], details["input"]
    bounds: dict[str, Any] = {name: _plain(bound) for name, bound in details.get("ctx", {}).items()}
    together = kind == "value_error" and isinstance(value, dict)  # keys that do not go together
    typed = any(
        override[: len(path)] == path and (not together or override[-1] in str(bounds["error"]))
        for override in overridden
    )
    where = ".".join(path) + (" (command line)" if typed else "")
    if kind == "extra_forbidden" and ".".join(path) in RENAMED:
        text = f"{where} is now {RENAMED['.'.join(path)]}"
        return ConfigIssue(None if typed else lines.get(path), text, typed)
    if kind == "extra_forbidden":
        reason = f"unknown key{_suggest_key(path, schema)}"
    else:
        reason = _REASONS.get(kind, details["msg"]).format(**bounds)
        if kind == "value_error" and value is None:
            path = path[:-1]  # nobody wrote that key: the mistake is its section's
        elif not together and kind != "missing" and value != "":
            reason += f"; got {show(value)}"
        if typed and kind in ("dict_type", "model_type"):
            reason += f"; set them one by one: {'.'.join(path)}.KEY=VALUE"
        if kind == "literal_error":
            reason += did_you_mean(str(value), re.findall(r"'(.+?)'", bounds["expected"]))
    where = ".".join(path) + (" (command line)" if typed else "")
    return ConfigIssue(None if typed else lines.get(path), f"{where}: {reason}", typed)


def _plain(bound: object) -> object:
    """A bound as people write it: 1, not 1.0."""
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _suggest_key(path: KeyPath, schema: type[BaseModel]) -> str:
    """Name the key that was probably meant: one of the same section, or the same name elsewhere."""
    *above, key = path
    section = schema
    for name in above:
        section = section_class(section.model_fields[name].annotation) or section
    known = {
        name: f"{parent}.{name}"
        for parent, info in schema.model_fields.items()
        for name in getattr(section_class(info.annotation), "model_fields", ())
    }
    known |= {name: name for name in section.model_fields}
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean '{known[close[0]]}'?" if close else ""


def section_class(annotation: object) -> type[BaseModel] | None:
    """The section class of a field's type, `ParallelFiles | None` included; None: a plain value."""
    for option in (annotation, *get_args(annotation)):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask for the nearest of the known words, or say nothing where none is near."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def show(value: object) -> str:
    """Print a value of the YAML file as it would be written there, cut where it is long."""
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value.as_posix() if isinstance(value, Path) else str(value)
    text = text if text.isprintable() and text else repr(text)
    return text if len(text) <= 60 else text[:57] + "..."


def summary(path: Path, mistakes: list[ConfigIssue]) -> str:
    """Put all mistakes of a file into one message, in the order of its lines."""
    ordered = sorted(mistakes, key=lambda mistake: (mistake.line is None, mistake.line or 0))
    count = f"{len(ordered)} mistake{'s' if len(ordered) > 1 else ''}"
    lines = [
        f"  line {mistake.line}: {mistake.text}" if mistake.line else f"  {mistake.text}"
        for mistake in ordered
    ]
    return "\n".join([f"{path}: {count}", *lines])
