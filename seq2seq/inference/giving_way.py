"""Rules of search that give way, in order, where all together leave a part no translation.

A prefix and forbidden words never give way. A narrow beam comes first: a greedy search may end in
words that are forbidden, where others obey all rules.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from seq2seq.inference.search.lexical import NO_LEXICAL
from seq2seq.inference.searched_part import RequestedSearch

WIDE_BEAM = 8


class GivingWay(NamedTuple):
    """A rule that may give way."""

    name: str  # for the note; "" for what is no rule
    applies: Callable[[RequestedSearch], bool]
    without: Callable[[RequestedSearch], RequestedSearch]


def weaker(search: RequestedSearch) -> tuple[str, RequestedSearch] | None:
    """Return the name of the next rule that gives way, and the search without it."""
    for rule in GIVING_WAY:
        if rule.applies(search):
            return rule.name, rule.without(search)
    return None


def _without_lexical(search: RequestedSearch) -> RequestedSearch:
    request = search.request._replace(lexical=NO_LEXICAL)
    return replace(search, request=request, phrases_without_terms=NO_LEXICAL)


def _without_names(search: RequestedSearch) -> RequestedSearch:
    """Return a search that requires no name; others than those of the source stay forbidden."""
    names = search.options.kept_ids
    foreign_names = [token for token in names if token not in search.request.source]
    forbidden = (*search.options.forbidden_ids, *foreign_names)
    options = replace(search.options, kept_ids=range(0), forbidden_ids=forbidden)
    return replace(search, options=options)


def _is_narrow(search: RequestedSearch) -> bool:
    options = search.options
    return options.beam_size < WIDE_BEAM and options.sampling is None and options.groups == 1


def _with_wide_beam(search: RequestedSearch) -> RequestedSearch:
    """Return a beam search, in place of greedy search, samples or groups."""
    options = replace(search.options, beam_size=WIDE_BEAM, sampling=None, groups=1)
    return replace(search, options=options)


GIVING_WAY = (
    GivingWay("", _is_narrow, _with_wide_beam),
    GivingWay(
        "decoding.no_repeat_ngram",
        lambda search: search.options.no_repeat_ngram > 0,
        lambda search: replace(search, options=replace(search.options, no_repeat_ngram=0)),
    ),
    GivingWay(
        "decoding.min_length",
        lambda search: search.options.min_length > 0,
        lambda search: replace(search, options=replace(search.options, min_length=0)),
    ),
    GivingWay(
        "the glossary",
        lambda search: search.requires_terms,
        lambda search: replace(
            search, request=search.request._replace(lexical=search.phrases_without_terms)
        ),
    ),
    GivingWay(
        "required phrases", lambda search: bool(search.request.lexical.phrases), _without_lexical
    ),
    GivingWay("names", lambda search: len(search.options.kept_ids) > 0, _without_names),
    GivingWay(
        "samples or groups",
        lambda search: search.options.sampling is not None or search.options.groups > 1,
        _with_wide_beam,
    ),
)
