"""Hints for unknown keys: the names of other tools, other sections, and similar spelling."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

import yaml

from seq2seq.config.fields import KeyPath, Section, Shorthand, section_at, section_class
from seq2seq.runtime.errors import argument

_OF_A_TEXT = {"src", "tgt", "file", "columns", "tag", "weight"}
_GENERIC = ("name", "names", "size", "type", *sorted(_OF_A_TEXT))  # do not identify a section
# Minimum ratios of matching characters: of a key of the same section, of another section, of each
# word of a key, and of keys with another number of words (maxsteps, warm_up_steps).
_SIMILAR, _SIMILAR_ELSEWHERE, _SIMILAR_WORD, _SAME_WORDS = 0.75, 0.85, 0.65, 0.9
_LONGEST = 60  # characters of a name that spelling is compared for


class OtherTools(NamedTuple):
    """Names that other tools give to keys."""

    keys: dict[str, str]  # name elsewhere -> our key
    advice: dict[str, str]  # name elsewhere -> what to do here instead
    sections: dict[str, str]  # name of a section elsewhere -> our section
    splits: dict[str, str]  # name of a side of a text elsewhere -> ours
    ambiguous: frozenset[str]  # names of several meanings


@cache
def other_tools() -> OtherTools:
    """Read the names of other tools, a large table that a valid config does not need."""
    text = files("seq2seq").joinpath("config", "other_tools.yaml").read_text(encoding="utf-8")
    tables = yaml.safe_load(text)
    keys, advice, sections = (
        {name: entry for entry, names in tables[table].items() for name in names.split()}
        for table in ("keys", "advice", "sections")
    )
    ambiguous = frozenset(tables["ambiguous"].split())
    return OtherTools(keys, advice, sections, tables["splits"], ambiguous)


def hint(path: KeyPath, value: object, schema: type[Section]) -> str:
    """Return a hint to the key that is probably meant, or nothing.

    Meaning precedes spelling: other tools' names are mapped to the key of that meaning. Similar
    names of the same section follow, then nearly equal ones of other sections.
    """
    ours = dict(key_descriptions(schema))
    if "." in path[-1]:
        path = (*path[:-1], *path[-1].split("."))
        if ".".join(path) in ours:
            return f"; write {path[-1]} below the section {'.'.join(path[:-1])}"
    above, name = "".join(f"{section}." for section in path[:-1]), _plain(path[-1])
    tools, section = other_tools(), section_at(schema, path[:-1])
    if section is not None and issubclass(section, Shorthand):
        keys = [f"{above}{key}" for key in section.model_fields]
        return _suggest(_similar(above, name, keys), above)
    is_section = isinstance(value, Mapping) and not above and not value.keys() <= _OF_A_TEXT
    if is_section and name in tools.sections:
        return f"; did you mean the section '{tools.sections[name]}'?"
    if above + name in ours:
        return _suggest([above + name], above)
    if above.startswith("data.") and name in tools.splits:
        return _suggest([above + tools.splits[name]], above)
    for entry in (above + name, name):
        if entry in tools.advice:
            return f"; {_spelled(tools.advice[entry])}"
        key = tools.keys.get(entry, "")
        if key in ours and (name not in tools.ambiguous or above in ("", f"{key.split('.')[0]}.")):
            return f"; did you mean '{key}' ({ours[key]})?"
    return _suggest(_in_other_sections(name, ours) or _similar(above, name, ours), above)


def _spelled(advice: str) -> str:
    """Return advice with the arguments in braces as the caller spells them."""
    return re.sub(r"\{(\w+)\}", lambda match: argument(match[1]), advice)


def _suggest(keys: Iterable[str], above: str) -> str:
    names = [f"'{key.removeprefix(above)}'" for key in keys]
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _plain(name: str) -> str:
    """Return a name in lower case, with underscores: batch-size and batchSize as batch_size."""
    return re.sub("[- ]", "_", re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-"))).lower()


def _in_other_sections(name: str, ours: Iterable[str]) -> list[str]:
    """Return the keys of this name in any section."""
    return [key for key in ours if key.rpartition(".")[2] == name and name not in _GENERIC]


def _similar(above: str, name: str, ours: Iterable[str]) -> list[str]:
    """Return the most similar key of the section, or else a nearly equal one of another."""
    if len(name) > _LONGEST:
        return []
    parts = [key.rpartition(".") for key in ours]
    here = [key for section, dot, key in parts if section + dot == above]
    if (best := max(here, key=partial(_likeness, name))) and _likeness(name, best) >= _SIMILAR:
        return [above + best]
    elsewhere = sorted({key for _, _, key in parts} - set(_GENERIC))
    best = max(elsewhere, key=partial(_likeness, name))
    return _in_other_sections(best, ours) if _likeness(name, best) >= _SIMILAR_ELSEWHERE else []


def _likeness(name: str, key: str) -> float:
    """Return the ratio of matching characters; 0 if a word is another one, or there are more."""
    key_words, words = key.split("_"), name.split("_")
    joined = _ratio("".join(words), "".join(key_words))
    if len(key_words) != len(words):
        return joined if joined >= _SAME_WORDS else 0.0
    ratios = (_ratio(*pair) for pair in zip(words, key_words, strict=True))
    return joined if min(ratios) >= _SIMILAR_WORD else 0.0


def _ratio(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()


def suggest_override(option: str, schema: type[Section]) -> str:
    """Return a hint for an option that is a key of the config or of another tool, or nothing."""
    name, tools = _plain(option.partition("=")[0]), other_tools()
    ours = dict(key_descriptions(schema))
    keys = [name] if name in ours else _in_other_sections(name, ours)
    if not keys and tools.keys.get(name) in ours:
        keys = [tools.keys[name]]
    keys = [key for key in keys if _is_value(section_at(schema, tuple(key.split("."))))]
    if not keys and name in tools.advice:
        return f"; {_spelled(tools.advice[name])}"
    names = " or ".join(f"{key}=VALUE" for key in keys)
    return f"; keys of the config are set without dashes: {names}" if names else ""


def key_descriptions(schema: type[Section], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key and section of a schema by its dotted name, with its description.

    The keys of a section that may be a single value are not among them.
    """
    for name, info in schema.model_fields.items():
        yield f"{above}{name}", info.description or ""
        if not _is_value(section := section_class(info.annotation)):
            assert section is not None, "not a value"
            yield from key_descriptions(section, f"{above}{name}.")


def _is_value(section: type[Section] | None) -> bool:
    return section is None or issubclass(section, Shorthand)
