"""The record of several training texts: that of a run and of the runs that it starts from.

Characters, scripts, abbreviations and words of all texts are known. A text may have a habit, such
as lines in lower case or without a final mark, that weights trained on another text lack; HABITS
are the fields that decide how a line is changed before search.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import reduce
from typing import Any

from seq2seq.data.source_profile import NO_PROFILE, SourceProfile

HABITS = {
    "sentences": "more sentences in a line",
    "final_marks": "lines without a final mark",
    "begins_in_capitals": "lines that begin in lower case",
    "wordless": "lines without letters",
    "heads": "labels and symbols before sentences",
    "tails": "symbols and numbers after final marks",
}


def joined(profiles: Iterable[SourceProfile]) -> SourceProfile:
    """Return the record of several texts; those that nothing is recorded of do not count."""
    known = (profile for profile in profiles if profile != NO_PROFILE)
    return reduce(_join, known, NO_PROFILE)


def without_new_habits(record: SourceProfile, base: SourceProfile) -> SourceProfile:
    """Return the record of several texts with the habits of one of them."""
    if base == NO_PROFILE:
        return record
    return replace(record, **{name: getattr(base, name) for name in HABITS})


def new_habits(record: SourceProfile, base: SourceProfile) -> list[str]:
    """Return the fields of the habits that a record of several texts has and that of one lacks."""
    return [name for name in HABITS if getattr(record, name) != getattr(base, name)]


def _join(first: SourceProfile, second: SourceProfile) -> SourceProfile:
    if first == NO_PROFILE:
        return second
    values = {
        item.name: _JOINS[item.name](getattr(first, item.name), getattr(second, item.name))
        for item in fields(SourceProfile)
    }
    return SourceProfile(**values)


def _union(first: list[str], second: list[str]) -> list[str]:
    return list(dict.fromkeys((*first, *second)))


def _known_union(first: list[str], second: list[str]) -> list[str]:
    """Return the entries of both, or none if those of one are unknown."""
    return _union(first, second) if first and second else []


def _characters(first: str, second: str) -> str:
    """Return the characters of both, or none if those of one are unknown."""
    return "".join(sorted({*first, *second})) if first and second else ""


def _either(first: bool, second: bool) -> bool:
    return first or second


def _both(first: bool, second: bool) -> bool:
    return first and second


_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "sentences": max,
    "abbreviations": lambda first, second: sorted({*first, *second}),
    "capitals": _either,
    "scripts": lambda first, second: sorted(_known_union(first, second)),
    "knows_tags": _both,
    "tags": _union,
    "translated": _union,
    "copied_forms": _union,
    "translated_forms": _union,
    "final_marks": _known_union,  # none: lines without one are usual
    "characters": _characters,
    "wordless": _either,
    "heads": _either,
    "tails": _either,
    "begins_in_capitals": _both,
    "titles": _either,
    "lower": _either,
    "tagged": _both,
    "numbers": _both,
    "src_words": _union,
    "tgt_words": _union,
}
