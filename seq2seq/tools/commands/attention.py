"""Translate text and plot which source tokens each target token attends to.

examples:
  seq2seq attention -m runs/demo --words "The red car is old."
  seq2seq attention -m runs/demo -i test.en -o attention.html
  seq2seq attention -m runs/demo -i test.en -r test.fr --words -o maps.pdf
  seq2seq attention -m runs/bahdanau --beside runs/luong "The red car is old." -o both.pdf
  seq2seq attention -m runs/demo-heads -i test.en --heads -o heads.pdf
  seq2seq attention -m runs/demo -i test.en -r test.fr -o test.align --gold gold.align
"""

import argparse
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments, conflicts, search_arguments
from seq2seq.cli import input as input_lines
from seq2seq.cli.conflicts import Conflict, Need, Rows
from seq2seq.cli.input import LineReport
from seq2seq.cli.options import PathName
from seq2seq.cli.output import check_output, open_output
from seq2seq.runtime.console import counted, logger, say
from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import is_blank

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator

_Texts = Sequence[tuple[LineReport, list[str]]]
_BATCH_LINES = 256  # translated together: a plot of the first few needs no more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "text to translate, one sentence each, in place of a file"
    arguments.add_text(parser, text)
    arguments.add_model(parser)
    arguments.add_input(parser)
    text = (
        "FILE.html (any script), .png, .svg or .pdf (need matplotlib), .json, or .align (Pharaoh: "
        "word alignments such as 0-0 1-2; default: the terminal)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    text = "attention for these translations in place of the model's: line n translates line n"
    parser.add_argument("-r", "--ref", type=Path, metavar="FILE", help=text)
    text = "merge tokens of a word: sums over source, means over target tokens (always in .align)"
    parser.add_argument("--words", action="store_true", help=text)
    text = "show each head of a score with several apart, in place of their mean"
    parser.add_argument("--heads", action="store_true", help=text)
    text = "draw the maps of another run beside those of -m"
    parser.add_argument("--beside", type=PathName, metavar="RUN", help=text)
    text = "write the weights in percent into the cells of a .html page"
    parser.add_argument("--percentages", action="store_true", help=text)
    text = "print the alignment error rate of a .align output against FILE: 0-0 sure, 0?1 possible"
    parser.add_argument("--gold", type=Path, metavar="FILE", help=text)
    search_arguments.add_beam(parser)
    arguments.add_model_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    text: list[str]
    model: list[str]
    loading: arguments.ModelArguments
    input: Path | None
    output: Path | None
    ref: Path | None
    words: bool
    heads: bool
    beside: str | None
    percentages: bool
    gold: Path | None
    beam: int | None

    @property
    def suffix(self) -> str:
        """Return the ending of the output, "" for the terminal."""
        return self.output.suffix.lower() if self.output else ""


def _is_data(options: Options) -> bool:
    return options.suffix in (".json", ".align")


def _is_page(options: Options) -> bool:
    return options.suffix == ".html"


def _is_alignment(options: Options) -> bool:
    return options.suffix == ".align"


# checked before the text is opened
SOURCES = (Conflict("text", "input ref", "attention: TEXT cannot be used with -i or -r"),)
CONFLICTS: Rows = (
    Conflict(
        "ref", "beam", "attention -r: -b has no effect on given translations; omit one of them"
    ),
    Conflict(
        "heads",
        _is_alignment,
        "attention --heads: .align is one alignment by all heads; omit --heads",
    ),
    Conflict(
        "beside",
        _is_data,
        "attention --beside: {options.suffix} has the weights of one model; write a file for each",
    ),
    Need("percentages", _is_page, "attention --percentages: needs -o FILE.html, a page"),
    Need(
        "gold", _is_alignment, "attention --gold: needs -o FILE.align, the alignments to evaluate"
    ),
)


def run(options: Options) -> int:
    """Translate the input and write its attention weights as figure, page, JSON or alignment."""
    _check(options)
    if options.text:
        report = LineReport("the arguments")
        texts = [(report, report.decode(1, list(map(os.fsencode, options.text))))]
    else:
        paths = [options.input, options.ref] if options.ref else [options.input]
        texts = input_lines.read_texts(paths)
    systems = {" and ".join(options.model): _load(options, options.model)}
    if options.beside is not None:
        _check_beside(options.model[0], options.beside)
        systems[options.beside] = _load(options, [options.beside])
    translations = {
        name: _translations(options, texts, translator) for name, translator in systems.items()
    }
    notes = _write(options, translations, texts[0][1])
    for report, _ in texts:
        report.log()
    for note in notes:
        logger.info(f"note: {note}")
    return 0


def _check_beside(run: str, second_run: str) -> None:
    """Raise UserError unless two runs are different ones and translate the same languages."""
    if Path(run).resolve() == Path(second_run).resolve():
        raise UserError(f"attention --beside {second_run}: is the run of -m; name another")
    from seq2seq.inference.loaders.load import languages_of

    pairs = ["-".join(languages_of(name)) for name in (run, second_run)]
    if pairs[0] != pairs[1]:
        text = f"translates {pairs[1]}, and {run} {pairs[0]}"
        raise UserError(
            f"attention --beside {second_run}: {text}; name a run of the same languages"
        )


def _load(options: Options, runs: list[str]) -> "Translator":
    """Load a model; raise UserError if it has no attention, or no heads to plot apart."""
    translator = arguments.load_translator(runs, options.loading, options.beam)
    if not translator.engine.attends:
        text = "the model has no attention to plot (model.decoder: none)"
        raise UserError(f"{runs[0]}: {text}; use a run with another decoder")
    if options.heads and not translator.engine.has_heads:
        remedy = "omit --heads, or use one run with several, such as model.score {scaled_dot: 4}"
        raise UserError(f"{translator.name}: has no heads to plot apart; {remedy}")
    return translator


def _translations(
    options: Options, texts: _Texts, translator: "Translator"
) -> "Iterator[Translation]":
    """Yield the translations, batch by batch, and note lines that were not translated as usual."""
    from seq2seq.inference.scoring import attend
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.tools.analysis.attention.plot import translation_by_words

    by_words = options.words and options.suffix != ".align"  # which needs the tokens
    settings = SearchSettings(head_attention=options.heads)
    report, sources = texts[0]
    for start in range(0, len(sources), _BATCH_LINES):
        batch, *references = [lines[start : start + _BATCH_LINES] for _, lines in texts]
        if references:
            translations = attend(translator.loaded, batch, references[0], options.heads)
        else:
            translations = translator.stream(batch, options.beam, settings=settings)
        for number, translation in enumerate(translations, start=start + 1):
            report.note_translations(number, [translation])
            if translation.attention_blocks is None and not is_blank(sources[number - 1]):
                report.note(input_lines.NO_ATTENTION, number)
            yield translation_by_words(translation) if by_words else translation


def _check(options: Options) -> None:
    """Raise UserError for an output that cannot be written and for options that do not match."""
    from seq2seq.tools.analysis.attention.plot import check_plot_path

    conflicts.check_together(options, SOURCES)
    if options.text:
        arguments.check_sentences("attention", options.text)
    else:
        input_lines.check_texts("attention", options.input or Path("-"), options.ref)
    conflicts.check_together(options, CONFLICTS)
    runs = [*options.model, *filter(None, [options.beside])]
    check_output(options.output, options.input, options.ref, options.gold, runs=runs)
    if options.output and options.suffix not in (".json", ".align"):
        check_plot_path(options.output)


def _write(
    options: Options, systems: "dict[str, Iterator[Translation]]", sources: list[str]
) -> list[str]:
    """Write the weights of the systems, which are two with --beside; return notes."""
    from seq2seq.tools.analysis.attention import plot

    translations = next(iter(systems.values()))
    if options.suffix == ".json":
        _write_json(options.output, translations)
        return []
    if options.suffix == ".align":
        _write_alignments(options, translations, sources)
        return []
    groups = plot.groups_of(translations, sources)
    if options.beside is not None:
        groups = plot.groups_beside(systems, sources)
    if options.output and options.suffix:
        model = " and ".join(systems)
        return plot.write_attention(groups, options.output, model, options.percentages)
    with open_output(None) as output:
        limit = shutil.get_terminal_size().columns if output.on_terminal else None
        for group in groups:
            output.write(f"{plot.beside_as_text(group, limit)}\n\n")
    return []


def _write_json(path: Path | None, translations: "Iterator[Translation]") -> None:
    from seq2seq.inference.translation import translation_as_json

    with open_output(path) as output:
        start = "["
        for translation in translations:
            output.write(f"{start}\n{translation_as_json(translation)}")
            start = ","
        output.write("[\n]\n" if start == "[" else "\n]\n")


def _write_alignments(
    options: Options, translations: "Iterator[Translation]", sources: list[str]
) -> None:
    """Write one line of links per line, and print the alignment error rate if there is gold."""
    from seq2seq.tools.analysis.attention.alignment import (
        align,
        alignment_error_rate,
        pharaoh,
        read_gold,
    )
    from seq2seq.tools.analysis.attention.plot import map_of

    gold = read_gold(options.gold) if options.gold else None
    if gold is not None and len(gold) != len(sources):
        text = f"has {counted(len(gold), 'line')}, the text has {len(sources):,}"
        raise UserError(f"{options.gold}: {text}; give a line of links for each")
    links = []
    with open_output(options.output) as output:
        for source, translation in zip(sources, translations, strict=True):
            links.append(align(map_of(translation, source)))
            output.write(f"{pharaoh(links[-1])}\n")
    if gold is not None:
        say(f"alignment error rate: {100 * alignment_error_rate(links, gold):.1f}%")
