"""Options of search: one record, from which all that takes them is made.

A field has its default, and by `option` its description, its bounds, its flag on the command line
and its bounds in a request to the server. `Decoding` becomes the section `decoding` of a config and
of an export; `CallOptions`, with `Sampling`, the settings of a call, flags and requests. A search
has both, so that a rule of `inference/search/rules.py` reads any of them by its name.

The module imports neither pydantic nor torch: exports are read and help is printed without them.
"""

import math
from dataclasses import Field, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

Metric = Literal["chrf", "bleu"]
Item = Field[Any]  # a field of a record
_OPTION = "option"  # key of the metadata of a field


class Bounds(NamedTuple):
    """Range of the values of an option; None: no such bound."""

    least: int | None = None
    above: int | None = None
    most: int | None = None

    def hold(self, value: float) -> bool:
        """Return whether a value is finite and within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (value < math.inf if self.most is None else value <= self.most)
        )

    def rule(self) -> str:
        """Return the bounds in words."""
        if self.least is not None and self.most is not None:
            return f"must be from {self.least} to {self.most:,}"
        if self == (None, 0, None):
            return "must be a positive number"
        words = {"at least": self.least, "above": self.above, "at most": self.most}
        said = [f"{word} {bound:,}" for word, bound in words.items() if bound is not None]
        return f"must be {' and '.join(said)}"


ANY = Bounds()
SERVED = Bounds(least=1, most=100)  # of hypotheses: each multiplies the cost of a line


class Flag(NamedTuple):
    """Spelling of an option on the command line."""

    metavar: str | None = None
    text: str = "{}"  # help, around the description of the option; {default:g} is its default
    names: tuple[str, ...] = ()  # none: as `cli.arguments.option` spells the field
    least: int | None = None  # least integer; None: that of the option


class Option(NamedTuple):
    """Properties of an option, but for its name, type and default."""

    description: str
    bounds: Bounds = ANY
    flag: Flag | None = None  # None: the command line has none
    served: Bounds | None = None  # bounds in a request to the server; None: requests have none


def option(
    description: str, bounds: Bounds = ANY, flag: Flag | None = None, served: Bounds | None = None
) -> dict[str, Option]:
    """Return the metadata of a field."""
    return {_OPTION: Option(description, bounds, flag, served)}


def option_of(item: Item) -> Option:
    """Return the properties of a field."""
    properties: Option = item.metadata[_OPTION]
    return properties


@dataclass(frozen=True)
class Decoding:
    """Options that the section `decoding` of a config has, in the order of its keys."""

    beam_size: int = field(
        default=5,
        metadata=option(
            "hypotheses kept; 1: greedy search",
            Bounds(least=1, most=1_000_000),
            Flag(
                "N",
                "beam size; 1 is greedy search (default: decoding.beam_size of the config)",
                ("-b", "--beam"),
            ),
            SERVED,
        ),
    )
    length_penalty: float = field(
        default=1.0, metadata=option("exponent of length in scores", Bounds(least=0, most=10))
    )
    coverage_penalty: float = field(
        default=0.0,
        metadata=option("weight in beam search, Wu et al. (2016); 0: off", Bounds(least=0)),
    )
    no_repeat_ngram: int = field(
        default=0, metadata=option("size of n-grams that must not repeat; 0: off", Bounds(least=0))
    )
    replace_unknown: bool = field(
        default=False, metadata=option("replace unknown words by source words, by attention")
    )
    max_length: int | None = field(
        default=None,
        metadata=option(
            "maximum tokens; null: estimated from the training text", Bounds(least=1, most=100_000)
        ),
    )
    min_length: int = field(
        default=0,
        metadata=option(
            "minimum tokens, end-of-sentence not counted", Bounds(least=0, most=10_000)
        ),
    )
    repetition_penalty: float = field(
        default=1.0,
        metadata=option(
            "factor on the log-probabilities of tokens that a hypothesis has; 1: off",
            Bounds(least=1, above=0, most=100),
        ),
    )


@dataclass(frozen=True)
class Sampling:
    """Draw tokens at random instead of searching for the best."""

    samples: int = field(
        default=1,
        metadata=option(
            "translations to draw of each line, in place of beam search",
            Bounds(least=1),
            Flag("N", "{}; print the first"),
            SERVED,
        ),
    )
    temperature: float = field(
        default=1.0,
        metadata=option(
            "divides log-probabilities",
            Bounds(above=0),
            Flag("T", "with --sample: {} (default: {default:g})"),
            ANY,
        ),
    )
    top_k: int = field(  # 0: from all
        default=0,
        metadata=option(
            "draw from the K most probable tokens",
            Bounds(least=0),
            Flag("K", "with --sample: {}", least=1),
            ANY,
        ),
    )
    top_p: float = field(
        default=1.0,
        metadata=option(
            "draw from the most probable tokens of total probability P",
            Bounds(above=0, most=1),
            Flag("P", "with --sample: {}"),
            ANY,
        ),
    )
    seed: int = field(
        default=1,
        metadata=option(
            "seed of the draws; a line is drawn alike in any batch",
            ANY,
            Flag("N", "with --sample: {} (default: {default:g})"),
            ANY,
        ),
    )


@dataclass(frozen=True)
class CallOptions:
    """Options of one call: requirements on all translations, and the kind of search."""

    glossary: object | None = field(  # a text.glossary.Glossary
        default=None,
        metadata=option(
            "source and target phrases: where a line has the source phrase, its translation "
            "contains the target phrase",
            ANY,
            Flag("FILE", "TSV of {}"),
            ANY,
        ),
    )
    forbidden: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "no translation contains these words and phrases",
            ANY,
            Flag("FILE", "{}: those in FILE, one per line"),
            ANY,
        ),
    )
    sampling: Sampling | None = field(
        default=None, metadata=option("draw translations, in place of beam search", served=ANY)
    )
    groups: int = field(
        default=1,
        metadata=option(
            "diverse beam search: divide the beam into G groups, of which each avoids the tokens "
            "of those before it",
            Bounds(least=1),
            Flag("G"),
            SERVED,
        ),
    )
    diversity: float = field(
        default=0.5,
        metadata=option(
            "with groups: penalty in nats for such a token",
            Bounds(least=0, most=1_000_000),  # beyond, float32 overflows
            Flag("X", "{} (default: {default:g})"),
            ANY,
        ),
    )
    mbr: Metric | None = field(
        default=None,
        metadata=option(
            "choose, of the hypotheses of the beam or the samples, the one with the highest "
            "expected chrf or bleu (minimum Bayes risk)",
            ANY,
            Flag(),
            ANY,
        ),
    )
    head_attention: bool = field(
        default=False, metadata=option("also return the attention weights of each head")
    )
    written_names: bool = field(
        default=True,
        metadata=option("write a name whose spelling is not certain in its source script, too"),
    )


# Options that cannot be given together; "constraints" are the phrases of each line.
EXCLUSIONS = (
    ("beam_size", "sampling"),
    ("groups", "sampling"),
    ("groups", "glossary"),
    ("glossary", "sampling"),
    ("constraints", "sampling"),
    ("constraints", "groups"),
)

Record = Decoding | Sampling | CallOptions
Kind = type[Decoding] | type[Sampling] | type[CallOptions]


def values_of(record: Record) -> dict[str, Any]:
    """Return the values of a record by name."""
    return {item.name: getattr(record, item.name) for item in fields(record)}


def item_of(kind: Kind, name: str) -> Item:
    """Return the field of a record that has this name."""
    return kind.__dataclass_fields__[name]


def kind_of(item: Item) -> Any:
    """Return the type of an option, without None."""
    if get_origin(item.type) not in (Union, UnionType):
        return item.type
    (kind,) = (kind for kind in get_args(item.type) if kind is not NoneType)
    return kind


def choices_of(item: Item) -> tuple[str, ...]:
    """Return the words that an option takes, none for one of another type."""
    return get_args(kind_of(item)) if get_origin(kind_of(item)) is Literal else ()


def plain_options(kind: Kind) -> list[Item]:
    """Return the options whose value is a number, a truth value or one of some words."""
    return [
        item for item in fields(kind) if kind_of(item) in (bool, int, float) or choices_of(item)
    ]


def fault_of(item: Item, value: Any) -> str | None:
    """Return the rule that a value of a plain option breaks, or None."""
    if value is None and item.type is not kind_of(item):
        return None
    if choices := choices_of(item):
        return None if value in choices else f"must be one of {', '.join(choices)}"
    bounds = option_of(item).bounds
    return None if bounds == ANY or bounds.hold(value) else bounds.rule()


def conflict_in(options: CallOptions, **more: object) -> tuple[str, str] | None:
    """Return the first two options of a call that exclude each other, or None.

    `more` are those that the record lacks, such as the beam size; None is not given.
    """
    names_set = {
        item.name for item in fields(CallOptions) if getattr(options, item.name) != item.default
    }
    names_set |= {name for name, value in more.items() if value is not None}
    return next((pair for pair in EXCLUSIONS if names_set.issuperset(pair)), None)
