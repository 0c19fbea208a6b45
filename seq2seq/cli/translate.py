"""`seq2seq translate`: translate text, one output line per input line."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.cli import arguments
from seq2seq.cli import input as input_lines
from seq2seq.cli.arguments import (
    add_search_options,
    glossary_places,
    load_translator,
    search_settings,
)
from seq2seq.cli.input import BATCH_LINES, LineFile, LineReport, name_of
from seq2seq.cli.output import (
    Output,
    check_ending,
    check_output,
    count_lines,
    open_output,
    progress,
)
from seq2seq.data.lines import check_is_readable, check_is_text
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import DOCUMENT_FORMATS, document_format
from seq2seq.runtime.files import LONE_SURROGATE

if TYPE_CHECKING:
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator

_LINE_OPTIONS = (
    *("json", "n_best", "prefix", "prefix_file", "constraints"),
    *("stream", "shard"),
)
SEPARATOR, ESCAPED = "|||", "&#124;" * 3  # in n-best lists, as Moses escapes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Translate text: one output line per input line, blank lines included."
    parser.epilog = """examples:
  seq2seq translate -m runs/demo "A sentence to translate."
  seq2seq translate -m runs/demo -i test.en -o test.fr
  tail -f log | seq2seq translate -m runs/demo --stream
  seq2seq translate -m runs/a -m runs/b -i test.en -b 5 --n-best 5 --json
  seq2seq translate -m runs/demo -i film.srt -o film.fr.srt

Files and pipes receive translations unchanged. On a terminal, control characters and
bidirectional controls are shown as \\uXXXX."""
    text = "translate TEXT in place of a file or stdin; repeat for more lines"
    parser.add_argument("text", nargs="*", default=[], metavar="TEXT", help=text)
    arguments.add_model(parser)
    arguments.add_input(parser)
    text = (
        "html, srt and vtt keep tags, time codes and entities, and translate the text between "
        "them; text translates each line (default: by the ending of -i, else text)"
    )
    parser.add_argument("--format", choices=DOCUMENT_FORMATS, help=text)
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
    text = "translate the I-th of N parts of -i FILE alone; in order, the outputs are that of FILE"
    parser.add_argument("--shard", type=arguments.shard, metavar="I/N", help=text)
    text = f"lines to translate together; does not affect the output (default: {BATCH_LINES})"
    parser.add_argument("--batch-size", type=arguments.count, metavar="N", help=text)
    arguments.add_model_options(parser)


class _Requirements(NamedTuple):
    """Requirements on translations, by line or on all."""

    prefix: str | None
    prefixes: LineFile | None
    constraints: LineFile | None
    settings: "SearchSettings"

    def phrases(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the required phrases of each line after their place."""
        for number, line in enumerate(self.constraints.lines if self.constraints else (), start=1):
            assert self.constraints is not None
            yield f"{self.constraints.path}:{number}", line.split("\t")

    def prefixes_of(self, number: int, size: int) -> list[str] | None:
        """Return the prefixes of `size` lines from line `number` on, None if there are none."""
        if self.prefixes is not None:
            return self.prefixes.of(number, size)
        return [self.prefix] * size if self.prefix else None

    def constraints_of(self, number: int, size: int) -> list[list[str]] | None:
        """Return the phrases of `size` lines from line `number` on, None if there are none."""
        if self.constraints is None:
            return None
        return [line.split("\t") for line in self.constraints.of(number, size)]


class _InputText(NamedTuple):
    """Lines to translate."""

    lines: Iterator[bytes]
    first: int = 1  # number of the first of them in the file, that of a shard


def run(options: argparse.Namespace) -> int:
    """Translate the input batch by batch; log notes on lines that were not translated as usual."""
    if options.text and options.input:
        raise UserError("translate: TEXT cannot be used with -i or --stream")
    if input_lines.is_stdin(options.input):
        options.input = None
    input_lines.check_texts("translate", options.input)
    inputs = [options.input, options.prefix_file, options.constraints, options.glossary]
    inputs.append(options.forbidden)
    check_output(options.output, *inputs, runs=options.model, streaming=options.stream)
    check_ending(options.output, as_json=options.json)
    form = options.format or document_format(options.input)
    _check(options, form)
    required = _requirements(options)
    if form != "text":
        return _translate_documents(options, required, form)
    with _open(options, required) as text:
        _check_prefixes(required)
        translator = _load(options, required)
        with open_output(options.output) as output:
            report = _translate(options, text, translator, required, output)
    report.log()
    return 0


def _load(options: argparse.Namespace, required: _Requirements) -> "Translator":
    """Load the model; raises UserError for phrases that none of its translations can have."""
    translator = load_translator(options, 1 if options.sample else options.n_best or 1)
    places = chain(required.phrases(), glossary_places(options.glossary, required.settings))
    translator.check_phrases(places, required.settings)
    return translator


def _translate_documents(options: argparse.Namespace, required: _Requirements, form: str) -> int:
    """Translate a file, or each TEXT, as a document of a format; log notes on its lines."""
    from seq2seq.inference.documents import SourceDocument

    texts = options.text or [input_lines.read_document(options.input)]
    translator = _load(options, required)
    with open_output(options.output) as output:
        for text in texts:
            document = SourceDocument(text, form)
            name = "the arguments" if options.text else options.input
            report = LineReport(name, document.numbers)
            visible = not options.text and not output.on_terminal
            with progress("translated", len(document.lines), visible=visible) as advance:
                translations = translator.translate(
                    document.lines,
                    options.beam,
                    text_only=not document.has_inline_markup,
                    on_translated=advance,
                    settings=required.settings,
                )
            report.note_translations(1, translations)
            output.write(document.translated(translations))
            output.write("\n" if options.text else "")
            report.log()
    return 0


def _translate(
    options: argparse.Namespace,
    text: _InputText,
    translator: "Translator",
    required: _Requirements,
    output: Output,
) -> LineReport:
    """Write the translations batch by batch; keep those of a call that fails. Return notes."""
    name = "the arguments" if options.text else options.input
    report = LineReport(name, accepts_markup=options.format == "text")
    n_best = options.n_best or 1
    written, lines_of_each = _writer(options)
    barred = not options.text and not options.stream and not output.on_terminal
    total = _total(options) if barred and sys.stderr.isatty() else None
    with (
        output.kept_on_failure("the translations of the first", "line", lines_of_each),
        report.logged_on_failure(),
        progress("translated", total, visible=barred) as advance,
    ):
        by_line = _arrives_by_line(options)
        size = 1 if by_line else options.batch_size or BATCH_LINES
        for number, batch in input_lines.numbered(text.lines, size, text.first):
            lines = report.decode(number, batch)
            prefixes = required.prefixes_of(number, len(lines))
            translations = translator.stream(
                lines,
                options.beam,
                n_best,
                prefixes=prefixes,
                text_only=not options.json and options.n_best is None,
                on_translated=advance,
                constraints=required.constraints_of(number, len(lines)),
                settings=required.settings,
            )
            for index, translation in enumerate(translations):
                prefix = prefixes and [prefixes[index]]
                report.note_translations(number + index, [translation], prefix)
                output.write(written(translation, number + index - 1))
            output.flush()
            if by_line:
                report.log()
    return report


def _writer(options: argparse.Namespace) -> "tuple[Callable[[Translation, int], str], int]":
    """Return the format of a translation, by its index, and its number of lines."""
    if options.json:
        from seq2seq.inference.translation import translation_as_json

        with_nbest = options.n_best is not None
        return lambda translation, _: f"{translation_as_json(translation, with_nbest)}\n", 1
    if options.n_best is not None:
        return _as_nbest_list, options.n_best
    return lambda translation, _: f"{translation.text}\n", 1


def _as_nbest_list(translation: "Translation", index: int) -> str:
    return "".join(
        f"{index} ||| {entry.text.replace(SEPARATOR, ESCAPED)} ||| {entry.score:.6f}\n"
        for entry in translation.n_best
    )


def _total(options: argparse.Namespace) -> int | None:
    """Return the number of lines to translate, None if it is not known before."""
    lines = count_lines(options.input)
    return None if lines is None else len(range(lines)[_shard(options, lines)])


def _shard(options: argparse.Namespace, lines: int) -> slice:
    """Return which lines of a file belong to the shard; all of them without one."""
    number, shards = options.shard or (1, 1)
    return slice((number - 1) * lines // shards, number * lines // shards)


@contextmanager
def _open(options: argparse.Namespace, required: _Requirements) -> Iterator[_InputText]:
    """Yield the lines to translate, after reading the files that have a line for each of them."""
    source, name = options.input, "the arguments" if options.text else name_of(options.input)
    check = check_is_readable if options.format else check_is_text
    by_line = [file for file in (required.prefixes, required.constraints) if file is not None]
    if options.text:
        typed = [f"{text}\n".encode(errors="surrogateescape") for text in options.text]
        yield _InputText(_in_step(by_line, typed, name))
        return
    part = slice(0, None)
    if options.shard is not None:
        with input_lines.open_input(source) as opened:
            part = _shard(options, sum(1 for _ in opened))
    if _arrives_by_line(options) and not options.stream:
        logger.info("Type one sentence per line; end with Ctrl-D.")
    with input_lines.open_input(source, check) as opened:
        lines = _in_step(by_line, opened, name)
        yield _InputText(islice(lines, part.start, part.stop), part.start + 1)


def _arrives_by_line(options: argparse.Namespace) -> bool:
    """Return whether a program or a user writes a line after the other, and reads each answer."""
    typed = not options.text and options.input is None and sys.stdin.isatty()
    return bool(options.stream or typed)


def _in_step(files: Sequence[LineFile], lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Return the lines, after reading the files, which have a line for each of them."""
    for file in files:
        lines = file.read_with(lines, name)
    return iter(lines)


def _check(options: argparse.Namespace, form: str) -> None:
    """Raise UserError for options that do not go together."""
    for name in _LINE_OPTIONS if form != "text" else ():
        if getattr(options, name):
            hint = "" if options.format else f" (the format of {options.input}; see --format)"
            raise UserError(
                f"translate: {arguments.option(name)} cannot be used with --format {form}{hint}"
            )
    if options.text and options.stream:
        raise UserError("translate: TEXT cannot be used with -i or --stream")
    if options.shard and (options.input is None or not options.input.is_file()):
        raise UserError("translate --shard: needs -i FILE, whose lines it counts first")
    if options.shard and options.stream:
        raise UserError("translate: --shard cannot be used with --stream")
    if len(options.text) == 1 and arguments.is_file(options.text[0]):
        name = shlex.quote(options.text[0])
        raise UserError(f"translate: {name} is a file; did you mean -i {name}?")
    for option, remedy in (("prefix_file", "--prefix"), ("constraints", "--glossary")):
        if options.stream and getattr(options, option) is not None:
            raise UserError(
                f"{arguments.option(option)} cannot be used with --stream (the number of input "
                f"lines is unknown); use {remedy}"
            )
    if LONE_SURROGATE.search(options.prefix or ""):
        raise UserError("--prefix: is not UTF-8; use a UTF-8 terminal")


def _requirements(options: argparse.Namespace) -> _Requirements:
    path, phrases = options.prefix_file, options.constraints
    return _Requirements(
        options.prefix,
        path and LineFile(path, "prefix"),
        phrases and LineFile(phrases, "constraints"),
        search_settings(options),
    )


def _check_prefixes(required: _Requirements) -> None:
    """Raise UserError for a prefix that is too long."""
    prefixes = required.prefixes.lines if required.prefixes else [required.prefix or ""]
    if any(prefixes):
        from seq2seq.inference.search.lexical import check_prefixes

        check_prefixes(prefixes)
