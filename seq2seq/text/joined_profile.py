"""The source profile of several training texts, such as those of a run and of its warm start.

What any of the texts has is known: characters, scripts, abbreviations, words. A text may also have
a habit, such as lines in lower case or without a final mark, that weights trained on another one
have not learned: HABITS are the fields that decide how a line is changed before search.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import reduce
from operator import and_, or_
from typing import Any

from seq2seq.text import known_words
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

HABITS = {
    "sentences": "more sentences in a line",
    "final_marks": "lines without a final mark",
    "begins_in_capitals": "lines that begin in lower case",
    "wordless": "lines without letters",
    "heads": "labels and symbols before sentences",
    "tails": "symbols and numbers after final marks",
    "brackets": "lines in brackets",
}


def joined(profiles: Iterable[SourceProfile]) -> SourceProfile:
    """Return the profile of all texts; a text without a profile does not count."""
    known = (profile for profile in profiles if profile != NO_PROFILE)
    return reduce(_join, known, NO_PROFILE)


def without_new_habits(profile: SourceProfile, base: SourceProfile) -> SourceProfile:
    """Return the profile of several texts with the habits of one of them."""
    if base == NO_PROFILE:
        return profile
    return replace(profile, **{name: getattr(base, name) for name in HABITS})


def new_habits(profile: SourceProfile, base: SourceProfile) -> list[str]:
    """Return the HABITS in which the profile of several texts differs from that of one."""
    return [name for name in HABITS if getattr(profile, name) != getattr(base, name)]


def _join(first: SourceProfile, second: SourceProfile) -> SourceProfile:
    if first == NO_PROFILE:
        return second
    values = {
        item.name: _JOINS[item.name](getattr(first, item.name), getattr(second, item.name))
        for item in fields(SourceProfile)
    }
    return SourceProfile(**values)


def _union(first: Sequence[str], second: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((*first, *second)))


def _union_of_marks(first: str, second: str) -> str:
    """Return the marks of both; one that the first types twice is there twice."""
    return first + "".join(mark for mark in second if mark not in first)


def _known_union(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return the entries of both, or none if those of one are unknown."""
    return _union(first, second) if first and second else []


# Each field of the profile of two texts, by that of either.
_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "sentences": max,
    "abbreviations": lambda first, second: sorted(_union(first, second)),
    "capitals": or_,
    "scripts": lambda first, second: sorted(_known_union(first, second)),
    "knows_tags": and_,
    "tags": _union,
    "translated": _union,
    "copied_forms": _union,
    "translated_forms": _union,
    "final_marks": _known_union,  # none: lines without one are usual
    "marks": _union_of_marks,
    "knows_case": and_,
    "capitalised": _union,
    "initials": lambda first, second: "".join(_union(first, second)),
    "characters": lambda first, second: "".join(sorted(_known_union(first, second))),
    "src_marks": _union_of_marks,
    "opening_marks": lambda first, second: "".join(_union(first, second)),
    "inner_marks": lambda first, second: "".join(_union(first, second)),
    "closing_marks": lambda first, second: "".join(_union(first, second)),
    "apart_marks": lambda first, second: [mark for mark in first if mark in second],
    "joined_marks": lambda first, second: "".join(mark for mark in first if mark in second),
    "inner_spaces": or_,
    "tgt_characters": lambda first, second: "".join(sorted(_known_union(first, second))),
    "tgt_marks": _union_of_marks,
    "wordless": or_,
    "heads": or_,
    "tails": or_,
    "begins_in_capitals": and_,
    "titles": or_,
    "lower": or_,
    "tagged": and_,
    "numbers": and_,
    "src_words": _union,
    "tgt_words": _union,
    "tgt_abbreviations": _union,
    "equal_sentences": and_,
    "known_words": known_words.joined,
    "frequent_words": _union,
    "entities": _union,
    "ordinal_words": _union,
    "apart_quotes": lambda first, second: [mark for mark in first if mark in second],
    "joined_quotes": lambda first, second: "".join(mark for mark in first if mark in second),
    "brackets": or_,
    "line_ends": lambda first, second: "".join(_known_union(first, second)),
    "tgt_initials": lambda first, second: "".join(_union(first, second)),
    "pause_marks": lambda first, second: "".join(mark for mark in first if mark in second),
}
