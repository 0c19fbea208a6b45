"""Search options of `seq2seq translate`: phrases per line, and the settings of all lines."""

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.cli.input import Lines, Paragraphs, Prompt
from seq2seq.data.line_counts import in_step
from seq2seq.data.lines import bounded_lines, iter_lines, read_lines
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
    text = (
        "TSV of source and target phrases: where a line has the source phrase, its translation "
        "contains the target phrase"
    )
    group.add_argument("--glossary", type=Path, metavar="FILE", help=text)
    text = "no translation contains the words or phrases in FILE, one per line"
    group.add_argument("--forbidden", type=Path, metavar="FILE", help=text)
    text = "draw N translations of each line, in place of beam search; print the first"
    add_sampling_options(group, text)
    text = (
        "diverse beam search: divide the beam into G groups, of which each avoids the tokens of "
        "those before it"
    )
    group.add_argument("--groups", type=arguments.count, default=1, metavar="G", help=text)
    text = "with --groups: penalty in nats for such a token (default: 0.5)"
    group.add_argument("--diversity", type=float, metavar="X", help=text)
    text = (
        "choose, of the hypotheses of the beam or the samples, the one with the highest expected "
        "chrf or bleu (minimum Bayes risk)"
    )
    group.add_argument("--mbr", choices=("chrf", "bleu"), help=text)


def add_sampling_options(parser: argparse._ActionsContainer, text: str) -> None:
    """Add the options of sampling; the text explains --sample."""
    parser.add_argument("--sample", type=arguments.count, metavar="N", help=text)
    text = "with --sample: divide log-probabilities by T (default: 1)"
    parser.add_argument("--temperature", type=float, metavar="T", help=text)
    text = "with --sample: draw from the K most probable tokens"
    parser.add_argument("--top-k", type=arguments.count, metavar="K", help=text)
    text = "with --sample: draw from the most probable tokens of total probability P"
    parser.add_argument("--top-p", type=float, metavar="P", help=text)
    text = "with --sample: the seed (default: 1); a line is drawn alike in any batch"
    parser.add_argument("--seed", type=int, metavar="N", help=text)


def search_settings(options: argparse.Namespace) -> "SearchSettings":
    """Return the settings that the options make; raises UserError."""
    from seq2seq.inference.glossary import Glossary
    from seq2seq.inference.settings import SearchSettings

    if options.diversity is not None and options.groups == 1:
        raise UserError("--diversity: needs --groups G of at least 2")
    sampling = sampling_options(options)
    return SearchSettings(
        glossary=options.glossary and Glossary.read(options.glossary),
        forbidden=_forbidden(options.forbidden) if options.forbidden else (),
        sampling=sampling,
        groups=options.groups,
        diversity=0.5 if options.diversity is None else options.diversity,
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

    details = {
        name: value
        for name in ("temperature", "top_k", "top_p", "seed")
        if (value := getattr(options, name)) is not None
    }
    if details and options.sample is None:
        option = next(iter(details)).replace("_", "-")
        raise UserError(f"--{option}: needs --sample N, which draws translations")
    if options.sample is not None and options.beam is not None:
        raise UserError("-b cannot be used with --sample; remove one of them")
    return None if options.sample is None else Sampling(options.sample, **details)


def glossary_places(
    path: Path | None, settings: "SearchSettings"
) -> Iterator[tuple[str, list[str]]]:
    """Yield the target phrases of a glossary after the file and the source phrase."""
    for src, tgt in settings.glossary.terms() if settings.glossary else ():
        yield f"{path}: {src[:60]!r}", [tgt]


class LineConstraints:
    """Phrases that the translation of each line must contain, from a file or none."""

    def __init__(self, path: Path | None, streaming: bool) -> None:
        """Take a file with the phrases of a line on each line; raises UserError."""
        self._path = path
        self._phrases: list[list[str]] = []
        if path is not None and streaming:
            raise UserError(
                "--constraints cannot be used with --stream (the number of input lines is "
                "unknown); use --glossary"
            )

    def check(self, lines: Lines, name: str) -> Lines:
        """Read phrases and lines in step; raises UserError for different numbers of lines.

        Returns the lines, ready to be read from the start.
        """
        if self._path is None or isinstance(lines, Prompt | Paragraphs):
            return lines
        rule = "line n must have the constraints of input line n, blank for none"
        texts = (line.encode() for line in iter_lines(self._path))
        named = [(str(self._path), texts), (name, bounded_lines(lines, name))]
        pairs = list(in_step(named, rule))
        self._phrases = [phrases.decode().split("\t") for phrases, _ in pairs]
        return io.BytesIO(b"".join(line for _, line in pairs))

    def places(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the phrases of each line after the file and the number of the line."""
        for number, phrases in enumerate(self._phrases, start=1):
            yield f"{self._path}:{number}", phrases

    def of(self, number: int, size: int) -> list[list[str]] | None:
        """Return the phrases of `size` lines from line `number` on, or None if there are none."""
        return None if self._path is None else self._phrases[number - 1 : number - 1 + size]
