"""Arguments of search, made from the records of its options, and the settings that they make."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli.arguments import option
from seq2seq.cli.number_types import count
from seq2seq.config.search_options import (
    CallOptions,
    Decoding,
    Item,
    Kind,
    Sampling,
    choices_of,
    item_of,
    kind_of,
    option_of,
    plain_options,
)
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.inference.settings import SearchSettings


def add_beam(parser: argparse.ArgumentParser) -> None:
    """Accept a beam size."""
    add_option(parser, item_of(Decoding, "beam_size"))


def add_option(parser: argparse._ActionsContainer, item: Item) -> None:
    """Accept an option of search as its record has it; None: not given."""
    parser.add_argument(*_names(item), **_reading(item))


def _add_given(
    parser: argparse._ActionsContainer, item: Item, dest: str, text: str | None = None
) -> None:
    """Accept an option of search into a dictionary, also with another help."""
    reading = _reading(item, text)
    parser.add_argument(
        *_names(item), action=_Given, dest=dest, const=item.name, default={}, **reading
    )


class _Given(argparse.Action):
    """Collects the options of search that the command line has, by name, in one dictionary."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Add a value; `const` is the name of the option."""
        value = True if self.nargs == 0 else values
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), self.const: value})


def _names(item: Item) -> tuple[str, ...]:
    """Return the spellings of an option of search."""
    flag = option_of(item).flag
    assert flag is not None, f"{item.name} has no flag"
    return flag.names or (option(item.name),)


def _reading(item: Item, text: str | None = None) -> dict[str, Any]:
    """Return how argparse reads an option of search, also with another help."""
    flag = option_of(item).flag
    description = option_of(item).description
    assert flag is not None, f"{item.name} has no flag"
    help_text = text or flag.text.format(description, default=item.default)
    if kind_of(item) is bool:
        return {"nargs": 0, "help": help_text}
    if choices := choices_of(item):
        return {"choices": choices, "metavar": flag.metavar, "help": help_text}
    return {"type": _reader(item), "metavar": flag.metavar, "help": help_text}


def _reader(item: Item) -> Callable[[str], Any]:
    """Return the function that reads an option of search on the command line."""
    kind = kind_of(item)
    flag = option_of(item).flag
    if kind is not int:
        return float if kind is float else Path
    least = option_of(item).bounds.least
    if flag is not None and flag.least is not None:
        least = flag.least
    return int if least is None else partial(count, least=least)


def _flagged(kind: Kind) -> list[Item]:
    """Return the plain options with a flag."""
    return [item for item in plain_options(kind) if option_of(item).flag is not None]


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Accept the options of one search: see `SearchArguments`."""
    group = parser.add_argument_group("search")
    text = "line n of FILE has phrases that the translation of line n contains, separated by tabs"
    group.add_argument("--constraints", type=Path, metavar="FILE", help=text)
    add_requirements(group)
    add_sampling_options(group)
    for item in _flagged(CallOptions):
        _add_given(group, item, "call")


@dataclass(frozen=True)
class RequirementArguments:
    """Requirements on all translations, as `add_requirements` accepts them."""

    glossary: Path | None
    forbidden: Path | None


@dataclass(frozen=True)
class SearchArguments:
    """Arguments of search, as `add_search_options` accepts them."""

    constraints: Path | None
    required: RequirementArguments
    sampling: dict[str, Any]  # options of `Sampling` that are given
    call: dict[str, Any]  # options of `CallOptions` that are given


def add_requirements(parser: argparse._ActionsContainer) -> None:
    """Add the options that hold for all translations; see `requirements`."""
    add_option(parser, item_of(CallOptions, "glossary"))
    add_option(parser, item_of(CallOptions, "forbidden"))


def requirements(options: RequirementArguments, **more: Any) -> "SearchSettings":
    """Return the settings with the glossary, the forbidden phrases and more; raises UserError."""
    from seq2seq.inference.search.forbidden import checked_phrase
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.text.glossary import Glossary
    from seq2seq.text.text_files import read_lines

    glossary = Glossary.read(options.glossary) if options.glossary else None
    path = options.forbidden
    lines = enumerate(read_lines(path) if path else (), start=1)
    forbidden = tuple(checked_phrase(line, f"{path}:{number}") for number, line in lines)
    return SearchSettings(glossary, forbidden, **more)


def add_sampling_options(parser: argparse._ActionsContainer, text: str | None = None) -> None:
    """Add the options of sampling, also with another help for the number of samples."""
    samples, *details = _flagged(Sampling)
    _add_given(parser, samples, "sampling", text)
    for item in details:
        _add_given(parser, item, "sampling")


def search_settings(options: SearchArguments, beam: int | None) -> "SearchSettings":
    """Return the settings that the options and a beam size make; raises UserError."""
    from seq2seq.inference.settings import check_together

    if "diversity" in options.call and options.call.get("groups", 1) == 1:
        raise UserError("--diversity: needs --groups G of at least 2")
    sampling = sampling_options(options.sampling)
    settings = requirements(options.required, sampling=sampling, **options.call)
    check_together(settings, beam_size=beam, constraints=options.constraints)
    return settings


def sampling_options(values: Mapping[str, Any]) -> Sampling | None:
    """Return how to sample, or None for beam search; raises UserError."""
    if "samples" in values:
        return Sampling(**values)
    for item in _flagged(Sampling):
        if item.name in values:
            raise UserError("needs --sample N, which draws translations", argument=item.name)
    return None


def glossary_places(
    options: RequirementArguments, settings: "SearchSettings"
) -> Iterator[tuple[str, list[str]]]:
    """Yield the target phrases of a glossary after the file and the source phrase."""
    for src, tgt in settings.glossary.terms() if settings.glossary else ():
        yield f"{options.glossary}: {src[:60]!r}", [tgt]
