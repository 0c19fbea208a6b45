"""Suggest the key that an unknown one of a config means: of a similar name, or of other tools."""

import difflib
import json
import re
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

from seq2seq.config.characters import other_form
from seq2seq.config.fields import SIMILAR, KeyPath, Section, Shorthand, section_at, section_class

_SIMILAR_ELSEWHERE = 0.85  # least likeness of a key of another section
_SIMILAR_START = 0.85  # of a key's first word
_LONGEST = 60  # characters of a name that spelling is compared for
_KEY_CHARACTERS = f"{string.ascii_lowercase}_"
_COMMON_NAMES = json.loads(Path(__file__).with_name("names_of_other_tools.json").read_text("utf-8"))
# Names of keys in several sections.
_GENERIC = {"name", "names", "size", "type", "src", "tgt", "file", "columns", "tag", "weight"}


def hint(path: KeyPath, schema: type[Section]) -> str:
    """Return a hint to a key of this or a similar name, here or in another tool; or nothing."""
    ours = dict(key_descriptions(schema))
    if "." in path[-1] and ".".join(path) in ours:
        section, _, name = path[-1].rpartition(".")
        return f"; write {name} below the section {'.'.join((*path[:-1], section))}"
    if key := lacking_space(path[-1], schema):
        return f"; a space is missing after {key}:"
    if colon := other_form(path[-1].lstrip(_KEY_CHARACTERS), ":"):
        return f"; it has {colon}; write : and a space"
    parent = ".".join(path[:-1])
    name = _underscored(path[-1].rpartition(".")[2])
    if (key := _COMMON_NAMES.get(name, "")) in ours:
        return f"; did you mean '{key}' ({ours[key]})?"
    section_keys = getattr(section_at(schema, path[:-1]), "model_fields", {})
    if close := _close(name, section_keys, SIMILAR) or _close_start(name, section_keys):
        return _suggest(close)
    elsewhere = {key.rpartition(".")[2] for key in ours} - _GENERIC
    close = _close(name, elsewhere, _SIMILAR_ELSEWHERE) or _close_start(name, elsewhere)
    if not close and (similar := _close(name, _COMMON_NAMES, _SIMILAR_ELSEWHERE)):
        return _suggest([_COMMON_NAMES[similar[0]]])
    return _suggest(
        key.removeprefix(f"{parent}." if parent else "")
        for key in ours
        if key.rpartition(".")[2] in close
    )


def lacking_space(text: str, schema: type[Section]) -> str:
    """Return the key that a text begins with, and that its value follows at once; or nothing."""
    key, colon, value = text.partition(":")
    is_attached = bool(colon) and value.strip() == value != ""
    return key if is_attached and key in _names_of(schema) else ""


def _names_of(schema: type[Section]) -> Iterator[str]:
    """Yield the names of the keys of all sections, those of a shorthand included."""
    for name, info in schema.model_fields.items():
        yield name
        if (section := section_class(info.annotation)) is not None:
            yield from _names_of(section)


def suggest_override(option: str, schema: type[Section]) -> str:
    """Return a hint for an option that is a key of the config, or nothing."""
    name = _underscored(option.partition("=")[0])
    ours = dict(key_descriptions(schema))
    keys = [key for key in ours if name in (key, key.rpartition(".")[2])]
    keys = keys or [key for key in [_COMMON_NAMES.get(name, "")] if key in ours]
    values = [key for key in keys if is_value(section_at(schema, tuple(key.split("."))))]
    names = " or ".join(f"{key}=VALUE" for key in values)
    return f"; keys of the config are set without dashes: {names}" if names else ""


def key_descriptions(schema: type[Section], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield keys and sections by dotted name, with descriptions; not the keys of a shorthand."""
    for name, info in schema.model_fields.items():
        yield f"{parent}{name}", info.description or ""
        if (section := section_class(info.annotation)) is not None and not is_value(section):
            yield from key_descriptions(section, f"{parent}{name}.")


def is_value(section: type[Section] | None) -> bool:
    """Return whether a key has a value, or a section that may be a single value."""
    return section is None or issubclass(section, Shorthand)


def _close(name: str, names: Iterable[str], least: float) -> list[str]:
    """Return the name that is similar enough, or has the same letters in another order."""
    name = name[:_LONGEST]
    reordered = [other for other in names if sorted(other) == sorted(name)]
    return reordered[:1] or difflib.get_close_matches(name, list(names), 1, least)


def _close_start(name: str, names: Iterable[str]) -> list[str]:
    """Return the name whose first word is similar, if it is the only one with that word."""
    starts = [key.partition("_")[0] for key in names]
    close = _close(name, starts, _SIMILAR_START)
    keys = [key for key in names if key.partition("_")[0] in close]
    return keys if len(keys) == 1 else []


def _suggest(keys: Iterable[str]) -> str:
    names = " or ".join(f"'{key}'" for key in keys)
    return f"; did you mean {names}?" if names else ""


def _underscored(name: str) -> str:
    """Return a name in lower case, with underscores: batch-size and batchSize as batch_size."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-"))
    return re.sub("[- ]", "_", words).lower()
