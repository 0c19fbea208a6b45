"""Translate text: one output line per input line, blank lines included.

examples:
  seq2seq translate -m runs/demo "A sentence to translate."
  seq2seq translate -m runs/demo -i test.en -o test.fr
  tail -f log | seq2seq translate -m runs/demo --stream
  seq2seq translate -m runs/a -m runs/b -i test.en -b 5 --n-best 5 --json
  seq2seq translate -m runs/demo -i film.srt -o film.fr.srt

Files and pipes receive translations unchanged. On a terminal, control characters and
bidirectional controls are shown as \\uXXXX.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.cli import arguments, conflicts, number_types, search_arguments
from seq2seq.cli import input as input_lines
from seq2seq.cli.conflicts import Conflict, Need, Rows
from seq2seq.cli.input import BATCH_LINES, LineReport, name_of
from seq2seq.cli.output import Output, check_output, open_output, progress
from seq2seq.runtime import console, file_types
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import LONE_SURROGATE, is_stream
from seq2seq.text.text_files import check_is_readable, check_is_text, in_step, iter_lines

if TYPE_CHECKING:
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator

_LINE_OPTIONS = ("json", "n_best", "prefix", "prefix_file", "constraints", "stream", "shard")
SEPARATOR, ESCAPED = "|||", "&#124;" * 3  # in n-best lists, as Moses escapes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_text(parser, "translate TEXT in place of a file or stdin; repeat for more lines")
    arguments.add_model(parser)
    arguments.add_input(parser)
    text = (
        "html, srt and vtt keep tags, time codes and entities, and translate the text between "
        "them; text translates each line (default: by the ending of -i, else text)"
    )
    parser.add_argument("--format", choices=file_types.DOCUMENT_FORMATS, help=text)
    arguments.add_output(parser)
    search_arguments.add_beam(parser)
    text = (
        "print the N best hypotheses, one per line: INDEX ||| TEXT ||| SCORE, index from 0; ||| in "
        f"TEXT becomes {ESCAPED}, --json has it unchanged"
    )
    parser.add_argument("--n-best", type=number_types.count, metavar="N", help=text)
    text = "print one object per line: text, score, tokens, attention weights"
    parser.add_argument("--json", action="store_true", help=text)
    prefix = parser.add_mutually_exclusive_group()
    text = "begin every translation with TEXT; its last word may continue unless a space follows it"
    prefix.add_argument("--prefix", metavar="TEXT", help=text)
    text = "begin the translation of line n with line n of FILE, blank for no prefix"
    prefix.add_argument("--prefix-file", type=Path, metavar="FILE", help=text)
    search_arguments.add_search_options(parser)
    text = "translate lines as they arrive, as from tail -f"
    parser.add_argument("--stream", action="store_true", help=text)
    text = "translate the I-th of N parts of -i FILE alone; in order, the outputs are that of FILE"
    parser.add_argument("--shard", type=number_types.shard, metavar="I/N", help=text)
    text = f"lines to translate together; does not affect the output (default: {BATCH_LINES})"
    parser.add_argument("--batch-size", type=number_types.count, metavar="N", help=text)
    arguments.add_model_options(parser)


class _Row(NamedTuple):
    """A line to translate, with what its translation must have."""

    line: bytes
    prefix: str
    phrases: Sequence[str] = ()


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    text: list[str]
    model: list[str]
    loading: arguments.ModelArguments
    input: Path | None
    format: str | None
    output: Path | None
    beam: int | None
    n_best: int | None
    json: bool
    prefix: str | None
    prefix_file: Path | None
    search: search_arguments.SearchArguments
    stream: bool
    shard: tuple[int, int] | None
    batch_size: int | None

    @property
    def constraints(self) -> Path | None:
        """Return the file of phrases for each line."""
        return self.search.constraints

    @property
    def form(self) -> str:
        """Return the format of the text."""
        return self.format or file_types.document_format(self.input)

    @property
    def reason_of_form(self) -> str:
        """Return whence the format is, if no option says it."""
        return "" if self.format else f" (the format of {self.input}; see --format)"


def _is_document(options: Options) -> bool:
    return options.form != "text"


def _has_input_file(options: Options) -> bool:
    return options.input is not None and options.input.is_file()


def _creates_file(options: Options) -> bool:
    """Return whether a file appears, once the output is complete."""
    path = options.output
    return path is not None and str(path) != "-" and not is_stream(path)


_UNCOUNTED = "cannot be used with --stream (the number of input lines is unknown)"
# checked before the text is opened
SOURCES = (Conflict("text", "input stream", "translate: TEXT cannot be used with -i or --stream"),)
CONFLICTS: Rows = (
    *(
        Conflict(
            name,
            _is_document,
            f"translate: {arguments.option(name)} cannot be used with --format "
            "{options.form}{options.reason_of_form}",
        )
        for name in _LINE_OPTIONS
    ),
    Need("shard", _has_input_file, "translate --shard: needs -i FILE, whose lines it counts first"),
    Conflict("shard", "stream", "translate: --shard cannot be used with --stream"),
    Conflict("stream", "prefix_file", f"--prefix-file {_UNCOUNTED}; use --prefix"),
    Conflict("stream", "constraints", f"--constraints {_UNCOUNTED}; use --glossary"),
    Conflict(
        "stream",
        _creates_file,
        "{options.output}: -o creates the file only at the end; "
        "with --stream, use > {options.output}",
    ),
)


def run(options: Options) -> int:
    """Translate the input batch by batch; log notes on lines that were not translated as usual."""
    conflicts.check_together(options, SOURCES)
    if input_lines.is_stdin(options.input):
        options = replace(options, input=None)
    input_lines.check_texts("translate", options.input)
    files = options.search.required
    inputs = options.input, options.prefix_file, options.constraints
    required_files = files.glossary, files.forbidden
    check_output(options.output, *inputs, *required_files, runs=options.model)
    conflicts.check_together(options, CONFLICTS)
    arguments.check_sentences("translate", options.text)
    if LONE_SURROGATE.search(options.prefix or ""):
        raise UserError("--prefix: is not UTF-8; use a UTF-8 terminal")
    settings = search_arguments.search_settings(options.search, options.beam)
    if _is_document(options):
        return _translate_documents(options, settings)
    with _open(options) as rows:
        required = rows if isinstance(rows, list) else [_Row(b"", options.prefix or "")]
        from seq2seq.inference.search.lexical import check_prefixes

        check_prefixes([row.prefix for row in required])
        translator = _load(options, settings, required)
        with open_output(options.output) as output:
            _translate(options, rows, translator, settings, output)
    return 0


def _load(options: Options, settings: "SearchSettings", rows: Sequence[_Row] = ()) -> "Translator":
    """Load the model; raises UserError for phrases that none of its translations can have."""
    n_best = 1 if settings.sampling else options.n_best or 1
    models = options.model, options.loading
    translator = arguments.load_translator(*models, options.beam, n_best)
    path = options.constraints
    lines = ((f"{path}:{n}", row.phrases) for n, row in enumerate(rows, start=1))
    places = chain(lines, search_arguments.glossary_places(options.search.required, settings))
    translator.check_phrases(places, settings)
    return translator


def _translate_documents(options: Options, settings: "SearchSettings") -> int:
    """Translate a file, or each TEXT, as a document of a format; log notes on its lines."""
    from seq2seq.inference.loaders.load import languages_of
    from seq2seq.text.documents import SourceDocument

    texts = options.text or [input_lines.read_document(options.input)]
    translator = _load(options, settings)
    _, language = languages_of(options.model[0])
    with open_output(options.output) as output:
        for text in texts:
            document = SourceDocument(text, options.form)
            name = "the arguments" if options.text else options.input
            report = LineReport(name, document.numbers)
            visible = not options.text and not output.on_terminal
            with progress("translated", len(document.lines), visible=visible) as advance:
                translations = translator.translate(
                    document.lines,
                    options.beam,
                    text_only=not document.has_inline_markup,
                    on_translated=advance,
                    settings=settings,
                )
            report.note_translations(1, translations)
            output.write(document.translated(translations, language=language))
            output.write("\n" if options.text else "")
            report.log()
    return 0


def _translate(
    options: Options,
    rows: Iterable[_Row],
    translator: "Translator",
    settings: "SearchSettings",
    output: Output,
) -> None:
    """Write the translations batch by batch, and log notes; keep those of a call that fails."""
    name = "the arguments" if options.text else options.input
    report = LineReport(name, accepts_markup=options.format == "text")
    n_best = options.n_best or 1
    constrained = options.constraints is not None
    visible = not (options.text or options.stream or output.on_terminal)
    part = _part(options, visible and sys.stderr.isatty())
    first, total = (1, None) if part is None else (1 + part.start, len(part))
    rows = rows if part is None else islice(rows, part.start, part.stop)
    per_line = 1 if options.json else n_best
    partial = output.kept_on_failure("the translations of the first", "line", per_line)
    with partial, report, progress("translated", total, visible=visible) as advance:
        by_line = _arrives_by_line(options)
        size = 1 if by_line else options.batch_size or BATCH_LINES
        for number, batch in input_lines.numbered(iter(rows), size, first):
            prefixes = [row.prefix for row in batch]
            translations = translator.stream(
                report.decode(number, [row.line for row in batch]),
                options.beam,
                n_best,
                prefixes=prefixes,
                text_only=not options.json and options.n_best is None,
                on_translated=advance,
                constraints=[row.phrases for row in batch] if constrained else None,
                settings=settings,
            )
            for index, translation in enumerate(translations):
                report.note_translations(number + index, [translation], [prefixes[index]])
                output.write(_formatted(options, translation, number + index - 1))
            output.flush()
            if by_line:
                report.log()


def _formatted(options: Options, translation: "Translation", index: int) -> str:
    """Return the lines to write for the translation of a line of an index."""
    if options.json:
        from seq2seq.inference.translation import translation_as_json

        return f"{translation_as_json(translation, options.n_best is not None)}\n"
    if options.n_best is None:
        return f"{translation.text}\n"
    return "".join(
        f"{index} ||| {entry.text.replace(SEPARATOR, ESCAPED)} ||| {entry.score:.6f}\n"
        for entry in translation.n_best
    )


def _part(options: Options, counted: bool) -> range | None:
    """Return the rows of the file that belong to the shard, all without one; None if uncounted."""
    if not (options.shard or counted) or options.input is None or not options.input.is_file():
        return None
    with input_lines.open_input(options.input, check_is_readable) as lines:
        count = sum(1 for _ in lines)
    number, shards = options.shard or (1, 1)
    return range((number - 1) * count // shards, number * count // shards)


@contextmanager
def _open(options: Options) -> Iterator[Iterable[_Row]]:
    """Yield the lines to translate, a list if files have requirements for each of them."""
    if options.text:
        typed = [f"{text}\n".encode(errors="surrogateescape") for text in options.text]
        yield _rows(options, typed, "the arguments")
        return
    if _arrives_by_line(options) and not options.stream:
        console.logger.info("Type one sentence per line; end with Ctrl-D.")
    check = check_is_readable if options.format else check_is_text
    if _is_typed(options):
        with input_lines.typed_lines() as typed_lines:
            yield _rows(options, typed_lines, name_of(None))
        return
    with input_lines.open_input(options.input, check) as lines:
        yield _rows(options, lines, name_of(options.input))


def _rows(options: Options, lines: Iterable[bytes], name: str) -> Iterable[_Row]:
    """Return the lines with their requirements; raises UserError if files have other numbers."""
    prefix = options.prefix or ""
    paths = {"prefix": options.prefix_file, "constraints": options.constraints}
    files = {content: path for content, path in paths.items() if path is not None}
    if not files:
        return (_Row(line, prefix) for line in lines)
    rule = f"line n must have the {' and '.join(files)} of input line n, blank for none"
    texts: list[Any] = [(str(path), iter_lines(path)) for path in files.values()]
    rows = []
    for *required, line in in_step([*texts, (name, iter(lines))], rule):
        by_name = {"prefix": prefix, "constraints": "", **dict(zip(files, required, strict=True))}
        rows.append(_Row(line, by_name["prefix"], by_name["constraints"].split("\t")))
    return rows


def _is_typed(options: Options) -> bool:
    """Return whether a user types lines and reads their translations below."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and not (options.text or options.input or options.stream)


def _arrives_by_line(options: Options) -> bool:
    """Return whether a program or a user writes a line after the other, and reads each answer."""
    return bool(options.stream or (not (options.text or options.input) and sys.stdin.isatty()))
