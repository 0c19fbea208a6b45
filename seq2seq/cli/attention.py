"""`seq2seq attention`: plot the attention weights of translations."""

import argparse
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.input import LineReport, open_input
from seq2seq.cli.loading import load_translator
from seq2seq.cli.output import check_output, open_output
from seq2seq.cli.translate import translation_as_json
from seq2seq.data.lines import bounded_lines
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError


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
    translations = translator.translate(texts, options.beam)
    report.note_translations(1, translations)
    report.log()
    if as_json:
        with open_output(options.output) as output:
            items = ",\n".join(translation_as_json(each) for each in translations)
            output.write(f"[\n{items}\n]\n")
        return 0
    for note in write_attention(translations, texts, options.output):
        logger.info(f"note: {note}")
    return 0
