"""Rules of search that give way, in order, where all together leave a part no translation.

A prefix and forbidden words never give way.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL
from seq2seq.inference.text_steps import Part

Search = tuple[Part, SearchOptions]  # what is searched, and how


def weaker_searches(part: Part, options: SearchOptions) -> Iterator[tuple[str, Search]]:
    """Yield searches with one rule less each time, and the name of the rule that gives way."""
    for name, applies, without in _GIVING_WAY:
        if applies(part, options):
            part, options = without(part, options)
            yield name, (part, options)


_GIVING_WAY: tuple[
    tuple[str, Callable[[Part, SearchOptions], object], Callable[[Part, SearchOptions], Search]],
    ...,
] = (
    (
        "decoding.no_repeat_ngram",
        lambda _, options: options.no_repeat_ngram,
        lambda part, options: (part, options._replace(no_repeat_ngram=0)),
    ),
    (
        "decoding.min_length",
        lambda _, options: options.min_length,
        lambda part, options: (part, options._replace(min_length=0)),
    ),
    (
        "the glossary",
        lambda part, _: part.terms or part.lexical != part.phrases,
        lambda part, options: (replace(part, lexical=part.phrases, terms=()), options),
    ),
    (
        "required phrases",
        lambda part, _: part.lexical.phrases,
        lambda part, options: (replace(part, lexical=NO_LEXICAL, phrases=NO_LEXICAL), options),
    ),
    (
        "names",
        lambda _, options: options.kept_ids,
        lambda part, options: (part, options._replace(kept_ids=range(0))),
    ),
)
