"""`seq2seq translate`: translate text, one output line per input line."""

import argparse
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.cli import arguments
from seq2seq.cli.columns import Columns, TextFile, add_columns
from seq2seq.cli.input import (
    BATCH_LINES,
    LineReport,
    Lines,
    Paragraphs,
    Prompt,
    arrivals,
    batches,
    open_input,
)
from seq2seq.cli.loading import load_translator
from seq2seq.cli.output import Output, check_output, open_output
from seq2seq.cli.progress import count_lines, progress
from seq2seq.cli.search_options import (
    LineConstraints,
    add_search_options,
    glossary_places,
    search_settings,
)
from seq2seq.data.line_counts import in_step
from seq2seq.data.lines import bounded_lines, iter_lines
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import is_table, table_format
from seq2seq.runtime.files import LONE_SURROGATE

if TYPE_CHECKING:
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator

_UNDECODED = "surrogateescape"  # bytes of an argument that are not UTF-8, as Python keeps them
SEPARATOR, ESCAPED = "|||", "&#124;" * 3  # in n-best lists, as Moses escapes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Translate text: one output line per input line, blank lines included."
    parser.epilog = """examples:
  seq2seq translate -m runs/demo "A sentence to translate."
  seq2seq translate -m runs/demo -i test.en -o test.fr
  tail -f log | seq2seq translate -m runs/demo --stream
  seq2seq translate -m runs/a -m runs/b -i test.en -b 5 --n-best 5 --json

Files and pipes receive translations unchanged. On a terminal, control characters and
bidirectional controls are shown as \\uXXXX."""
    text = "translate TEXT in place of a file or stdin; repeat for more lines"
    parser.add_argument("text", nargs="*", default=[], metavar="TEXT", help=text)
    arguments.add_model(parser)
    arguments.add_input(parser)
    add_columns(parser, "SRC")
    text = (
        "print each paragraph on one line: blank lines separate paragraphs, which may have breaks"
    )
    parser.add_argument("--document", action="store_true", help=text)
    arguments.add_output(parser)
    arguments.add_beam(parser)
    text = (
        "print the N best hypotheses, one per line: INDEX ||| TEXT ||| SCORE, index from 0; ||| in "
        f"TEXT becomes {ESCAPED}, --json has it unchanged"
    )
    parser.add_argument("--n-best", type=arguments.count, metavar="N", help=text)
    text = "print one object per line: text, score, tokens, attention weights"
    parser.add_argument("--json", action="store_true", help=text)
    prefix = parser.add_mutually_exclusive_group()
    text = "begin every translation with TEXT; its last word may continue unless a space follows it"
    prefix.add_argument("--prefix", metavar="TEXT", help=text)
    text = "begin the translation of line n with line n of FILE, blank for no prefix"
    prefix.add_argument("--prefix-file", type=Path, metavar="FILE", help=text)
    add_search_options(parser)
    text = "translate lines as they arrive, as from tail -f"
    parser.add_argument("--stream", action="store_true", help=text)
    text = f"lines to translate together; does not affect the output (default: {BATCH_LINES})"
    parser.add_argument("--batch-size", type=arguments.count, metavar="N", help=text)
    arguments.add_precision(parser)
    arguments.add_shortlist(parser)
    arguments.add_device(parser)
    arguments.add_decoding(parser)


def run(options: argparse.Namespace) -> int:
    """Translate the input batch by batch; log notes on lines that were not translated as usual."""
    check_output(
        options.output,
        options.input,
        options.prefix_file,
        options.constraints,
        options.glossary,
        options.forbidden,
        runs=options.model,
        streaming=options.stream,
    )
    _check(options)
    source = _source(options)
    prefixes = _Prefixes(options.prefix, options.prefix_file, options.stream)
    constraints = LineConstraints(options.constraints, options.stream)
    settings = search_settings(options)
    n_best = options.n_best or 1
    with _open(options, source) as (opened, numbers):
        lines = constraints.check(prefixes.check(opened, _name(options)), _name(options))
        translator = load_translator(
            options.model,
            options.device,
            options.int8,
            options.beam,
            1 if options.sample else n_best,
            options.decoding,
            options.shortlist,
            options.float16,
        )
        required = chain(constraints.places(), glossary_places(options.glossary, settings))
        translator.check_phrases(required, settings)
        if options.document:
            translator.source = replace(translator.source, sentences=1)
        report = LineReport(_source_name(options), numbers)
        with open_output(options.output) as output:
            requirements = _Requirements(prefixes, constraints, settings)
            _translate(options, lines, translator, requirements, report, output)
    report.log()
    return 0


def _translate(
    options: argparse.Namespace,
    lines: Lines,
    translator: "Translator",
    requirements: "_Requirements",
    report: LineReport,
    output: Output,
) -> None:
    """Write the translations batch by batch; keep those of a call that fails."""
    text_only = not options.json and options.n_best is None
    shown = not options.text and not options.stream and not output.on_terminal
    total = _total(options) if shown and sys.stderr.isatty() else None
    lines_of_each = 1 if options.json else options.n_best or 1
    with (
        output.kept_on_failure("the translations of the first", "line", lines_of_each),
        report.logged_on_failure(),
        progress("translated", total, shown=shown) as advance,
    ):
        for number, batch in _batches(options, lines):
            texts = report.decode(number, batch)
            begin = requirements.prefixes.of(number, len(texts))
            translations = translator.stream(
                texts,
                options.beam,
                options.n_best or 1,
                prefixes=begin,
                text_only=text_only,
                on_translated=advance,
                constraints=requirements.constraints.of(number, len(texts)),
                settings=requirements.settings,
            )
            for index, each in enumerate(translations, start=number - 1):
                report.note_translations(index + 1, [each], begin and [begin[index + 1 - number]])
                output.write(_format(each, index, options.n_best is not None, options.json))
            output.flush()
            if options.stream or isinstance(lines, Prompt):
                report.log()


def _total(options: argparse.Namespace) -> int | None:
    """Return the number of lines to translate, None if it is not that of the lines of a file."""
    is_other = options.input is not None and table_format(options.input) != "tsv"
    if options.document or options.columns or is_other:
        return None
    return count_lines(options.input)


def _batches(options: argparse.Namespace, lines: Lines) -> Iterator[tuple[int, list[bytes]]]:
    if options.stream and not isinstance(lines, Prompt | Paragraphs):
        return arrivals(lines, options.batch_size, _name(options))
    return batches(lines, options.batch_size, _name(options))


@contextmanager
def _open(
    options: argparse.Namespace, source: TextFile | None
) -> Iterator[tuple[Lines, Sequence[int] | None]]:
    """Yield the lines to translate and, for a document, the numbers of its paragraphs' lines."""
    if options.text:
        yield (
            io.BytesIO("".join(f"{text}\n" for text in options.text).encode(errors=_UNDECODED)),
            None,
        )
    elif _is_typed(options):
        yield Prompt(), None
    else:
        with open_input(source) as lines:
            if options.document:
                paragraphs = Paragraphs(lines, _name(options))
                yield paragraphs, paragraphs.numbers
            else:
                yield lines, None


def _source(options: argparse.Namespace) -> TextFile | None:
    """Return the file to translate, None for stdin or arguments."""
    columns = Columns("translate", options, sides=1)
    columns.check(options.input)
    return columns.source(options.input) if options.input else None


def _is_typed(options: argparse.Namespace) -> bool:
    """Return whether a user types the lines and reads the translations."""
    by_line = options.prefix_file or options.constraints
    wanted = options.input is None and not (options.stream or by_line)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return wanted and terminal and not options.document and options.output is None


def _name(options: argparse.Namespace) -> str:
    return str(_source_name(options) or "standard input")


def _source_name(options: argparse.Namespace) -> Path | str | None:
    return "the arguments" if options.text else options.input


def _check(options: argparse.Namespace) -> None:
    """Raise UserError for options that do not go together."""
    if options.text and (options.input or options.stream or options.document):
        raise UserError("translate: TEXT cannot be used with -i, --stream or --document")
    if options.document and (options.stream or options.prefix_file or options.constraints):
        raise UserError(
            "translate: --document cannot be used with --stream, --prefix-file or --constraints"
        )
    if options.document and options.input and is_table(options.input):
        raise UserError(f"translate: --document cannot be used with a table, {options.input}")
    if len(options.text) == 1 and arguments.is_file(options.text[0]):
        name = shlex.quote(options.text[0])
        raise UserError(f"translate: {name} is a file; did you mean -i {name}?")


def _format(translation: "Translation", index: int, with_nbest: bool, as_json: bool) -> str:
    if as_json:
        from seq2seq.inference.translation_json import translation_as_json

        return translation_as_json(translation, with_nbest) + "\n"
    if not with_nbest:
        return translation.text + "\n"
    return "".join(
        f"{index} ||| {each.text.replace(SEPARATOR, ESCAPED)} ||| {each.score:.6f}\n"
        for each in translation.n_best
    )


class _Prefixes:
    """Target prefixes: one for all lines, one per line, or none."""

    def __init__(self, text: str | None, path: Path | None, streaming: bool) -> None:
        """Take a text for all lines, or a file with one prefix per line; raise UserError."""
        self._text, self._path, self._lines = text, path, [text or ""]
        if path is not None and streaming:
            raise UserError(
                "--prefix-file cannot be used with --stream (the number of input lines is "
                "unknown); use --prefix"
            )
        if LONE_SURROGATE.search(self._lines[0]):
            raise UserError("--prefix: is not UTF-8; use a UTF-8 terminal")

    def check(self, lines: Lines, name: str) -> Lines:
        """Raise UserError for a prefix that is too long, or for a wrong number of prefixes.

        Counting takes reading all input first; returns the lines, ready to be read from the start.
        """
        kept: tuple[bytes, ...] = ()
        if self._path is not None and not isinstance(lines, Prompt | Paragraphs):
            rule = "line n must be the prefix for input line n, blank for no prefix"
            texts = (line.encode() for line in iter_lines(self._path))
            named = [(str(self._path), texts), (name, bounded_lines(lines, name))]
            prefixes, kept = zip(*in_step(named, rule), strict=True)
            self._lines = [prefix.decode() for prefix in prefixes]
        if self._text or self._path:
            from seq2seq.inference.search.prefixes import check_prefixes

            check_prefixes(self._lines)
        if self._path is None or isinstance(lines, Prompt | Paragraphs):
            return lines
        return io.BytesIO(b"".join(kept))

    def of(self, number: int, size: int) -> list[str] | None:
        """Return the prefixes of `size` lines from line `number` on, or None if there are none."""
        if self._path is not None:
            return self._lines[number - 1 : number - 1 + size]
        return self._lines * size if self._text else None


class _Requirements(NamedTuple):
    """Requirements on translations, by line or on all."""

    prefixes: _Prefixes
    constraints: LineConstraints
    settings: "SearchSettings"
