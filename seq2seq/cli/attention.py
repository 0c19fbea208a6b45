"""`seq2seq attention`: plot the attention weights of translations."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.cli.input import BATCH_LINES, LineReport, open_input
from seq2seq.cli.loading import load_translator
from seq2seq.cli.output import check_output, open_output
from seq2seq.cli.translate import translation_as_json
from seq2seq.data.lines import bounded_lines
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Translate text and plot which source tokens each target token attends to."
    arguments.add_model(parser)
    arguments.add_input(parser)
    text = "FILE.html (any script), .png or .svg (need matplotlib), or .json"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=text)
    arguments.add_beam(parser)
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Translate the input and write its attention weights as figure, page or JSON."""
    from seq2seq.analysis.attention.plot import check_plot_path, write_attention

    as_json = options.output.suffix.lower() == ".json"
    check_output(options.output, options.input, runs=options.model)
    if not as_json:
        check_plot_path(options.output)
    with open_input(options.input) as lines:
        translator = load_translator(options.model, options.device, beam_size=options.beam)
        if not translator.attends:
            raise UserError(
                f"{options.model[0]}: the model has no attention to plot (model.decoder: none); "
                "use a run with model.decoder bahdanau or luong"
            )
        report = LineReport(options.input)
        name = str(options.input or "standard input")
        texts = report.decode(1, list(bounded_lines(lines, name)))
    translations = _translations(texts, translator, options.beam, report)
    if as_json:
        with open_output(options.output) as output:
            start = "["
            for each in translations:
                output.write(f"{start}\n{translation_as_json(each)}")
                start = ","
            output.write("[\n]\n" if start == "[" else "\n]\n")
        report.log()
        return 0
    notes = write_attention(translations, texts, options.output)
    report.log()
    for note in notes:
        logger.info(f"note: {note}")
    return 0


def _translations(
    texts: list[str], translator: "Translator", beam_size: int | None, report: LineReport
) -> "Iterator[Translation]":
    """Yield the translations one by one, and note lines that were not translated as usual."""
    for start in range(0, len(texts), BATCH_LINES):
        batch = texts[start : start + BATCH_LINES]
        for number, each in enumerate(translator.stream(batch, beam_size), start=start + 1):
            report.note_translations(number, [each])
            yield each
