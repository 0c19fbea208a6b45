"""Search options of `seq2seq translate`: phrases per line, and the settings of all lines."""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.data.lines import in_step, iter_lines, read_lines
from seq2seq.inference.descriptions import DESCRIPTIONS, DIVERSITY
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.engines.engine import Sampling
    from seq2seq.inference.settings import SearchSettings


def add_search_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    text = (
        "the translation of line n contains the phrases of line n of FILE, separated by tabs; "
        "blank for none"
    )
    group.add_argument("--constraints", type=Path, metavar="FILE", help=text)
    add_requirements(group)
    add_sampling_options(group, f"{DESCRIPTIONS['samples']}; print the first")
    text = DESCRIPTIONS["groups"]
    group.add_argument("--groups", type=arguments.count, default=1, metavar="G", help=text)
    text = f"{DESCRIPTIONS['diversity']} (default: {DIVERSITY})"
    group.add_argument("--diversity", type=float, metavar="X", help=text)
    group.add_argument("--mbr", choices=("chrf", "bleu"), help=DESCRIPTIONS["mbr"])


def add_requirements(parser: argparse._ActionsContainer) -> None:
    """Add the options that hold for all translations; see `requirements`."""
    text = f"TSV of {DESCRIPTIONS['glossary']}"
    parser.add_argument("--glossary", type=Path, metavar="FILE", help=text)
    text = f"{DESCRIPTIONS['forbidden']}: those in FILE, one per line"
    parser.add_argument("--forbidden", type=Path, metavar="FILE", help=text)


def requirements(options: argparse.Namespace) -> "SearchSettings":
    """Return the settings with the glossary and the forbidden phrases; raises UserError."""
    from seq2seq.inference.glossary import Glossary
    from seq2seq.inference.settings import SearchSettings

    return SearchSettings(
        glossary=options.glossary and Glossary.read(options.glossary),
        forbidden=_forbidden(options.forbidden) if options.forbidden else (),
    )


def add_sampling_options(parser: argparse._ActionsContainer, text: str) -> None:
    """Add the options of sampling; the text explains that of the number of samples."""
    parser.add_argument("--sample", type=arguments.count, metavar="N", help=text)
    for name, kind, metavar, default in (
        ("temperature", float, "T", " (default: 1)"),
        ("top_k", arguments.count, "K", ""),
        ("top_p", float, "P", ""),
        ("seed", int, "N", " (default: 1)"),
    ):
        text = f"with --sample: {DESCRIPTIONS[name]}{default}"
        parser.add_argument(arguments.option(name), type=kind, metavar=metavar, help=text)


def search_settings(options: argparse.Namespace) -> "SearchSettings":
    """Return the settings that the options make; raises UserError."""
    if options.diversity is not None and options.groups == 1:
        raise UserError("--diversity: needs --groups G of at least 2")
    diversity = DIVERSITY if options.diversity is None else options.diversity
    return replace(
        requirements(options),
        sampling=sampling_options(options),
        groups=options.groups,
        diversity=diversity,
        mbr=options.mbr,
    )


def _forbidden(path: Path) -> tuple[str, ...]:
    """Return the phrases of a file; raises UserError with the line of one that is too long."""
    from seq2seq.inference.search.forbidden import checked_phrase

    lines = enumerate(read_lines(path), start=1)
    return tuple(checked_phrase(line, f"{path}:{number}") for number, line in lines)


def sampling_options(options: argparse.Namespace) -> "Sampling | None":
    """Return how to sample, or None for beam search; raises UserError."""
    from seq2seq.engines.engine import Sampling
    from seq2seq.inference.settings import refuse_together

    details = {
        name: value
        for name in ("temperature", "top_k", "top_p", "seed")
        if (value := getattr(options, name)) is not None
    }
    if options.sample is None:
        for name in details:
            raise UserError("needs --sample N, which draws translations", argument=name)
        return None
    refuse_together("beam_size", sampling=options.beam)
    return Sampling(options.sample, **details)


def glossary_places(
    path: Path | None, settings: "SearchSettings"
) -> Iterator[tuple[str, list[str]]]:
    """Yield the target phrases of a glossary after the file and the source phrase."""
    for src, tgt in settings.glossary.terms() if settings.glossary else ():
        yield f"{path}: {src[:60]!r}", [tgt]


class LineFile:
    """File whose line n belongs to line n of the input: a prefix, or constraints."""

    def __init__(self, path: Path, content: str) -> None:
        """Take the file and the name of the content of a line, for messages."""
        self.path, self._content = path, content
        self.lines: list[str] = []

    def read_with(self, lines: Iterable[bytes], name: str) -> list[bytes]:
        """Read the file in step with the input, and return the lines of the input.

        Raises UserError for different numbers of lines, after reading all.
        """
        rule = f"line n must have the {self._content} of input line n, blank for none"
        texts = (line.encode() for line in iter_lines(self.path))
        pairs = list(in_step([(str(self.path), texts), (name, iter(lines))], rule))
        self.lines = [text.decode() for text, _ in pairs]
        return [line for _, line in pairs]

    def of(self, number: int, size: int) -> list[str]:
        """Return the lines of `size` input lines from line `number` on."""
        return self.lines[number - 1 : number - 1 + size]
