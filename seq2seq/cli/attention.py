"""`seq2seq attention`: plot the attention weights of translations."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.cli.input import BATCH_LINES, LineReport, open_input
from seq2seq.cli.loading import load_translator
from seq2seq.cli.output import check_output, open_output
from seq2seq.data.lines import bounded_lines, read_lines
from seq2seq.runtime.console import logger, say
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation
    from seq2seq.inference.translator import Translator

_NUMBER = "{}"  # in the name of the output: one file for each line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Translate text and plot which source tokens each target token attends to."
    parser.epilog = """examples:
  seq2seq attention -m runs/demo -i test.en -o attention.html
  seq2seq attention -m runs/demo -i test.en -r test.fr --lines 1,7-9 --words -o 'map-{}.pdf'
  seq2seq attention -m runs/demo -i test.en -r test.fr -o test.align --gold gold.align"""
    arguments.add_model(parser)
    arguments.add_input(parser)
    text = (
        "FILE.html (any script), .png, .svg or .pdf (need matplotlib), .json, or .align (Pharaoh: "
        "word alignments such as 0-0 1-2); {} in the name becomes the number of the line, for one "
        "file each (default: the terminal)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    text = "attention for these translations in place of the model's: line n translates line n"
    parser.add_argument("-r", "--ref", type=Path, metavar="FILE", help=text)
    text = "numbers of the lines to plot, such as 1,7-9 (default: all)"
    parser.add_argument("--lines", type=_line_numbers, metavar="N,N-N", help=text)
    text = "merge the tokens of each word: sums over source tokens, means over target tokens"
    parser.add_argument("--words", action="store_true", help=text)
    text = "print the alignment error rate of a .align output against FILE: 0-0 sure, 0?1 possible"
    parser.add_argument("--gold", type=Path, metavar="FILE", help=text)
    arguments.add_beam(parser)
    arguments.add_device(parser)
    arguments.add_decoding(parser)


def run(options: argparse.Namespace) -> int:
    """Translate the input and write its attention weights as figure, page, JSON or alignment."""
    _check(options)
    references = read_lines(options.ref) if options.ref else None
    with open_input(options.input) as lines:
        translator = load_translator(
            options.model, options.device, beam_size=options.beam, decoding=options.decoding
        )
        if not translator.attends:
            raise UserError(
                f"{options.model[0]}: the model has no attention to plot (model.decoder: none); "
                "use a run with model.decoder bahdanau, luong or gnmt"
            )
        name = str(options.input or "standard input")
        reader = LineReport(options.input)
        texts = reader.decode(1, list(bounded_lines(lines, name)))
    if references is not None and len(references) != len(texts):
        raise UserError(
            f"{name} has {len(texts)} lines but {options.ref} has {len(references)}: line n of one "
            "must translate line n of the other"
        )
    numbers = _chosen(options.lines, len(texts), name)
    texts = [texts[number - 1] for number in numbers]
    report = LineReport(options.input, numbers)
    if references is None:
        translations = _translations(texts, translator, options.beam, report)
    else:
        from seq2seq.inference.scoring import attend

        translations = attend(translator, texts, [references[number - 1] for number in numbers])
    reader.log()
    notes = _write(options, translations, texts, numbers)
    report.log()
    for note in notes:
        logger.info(f"note: {note}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise UserError for an output that cannot be written and for options that do not match."""
    from seq2seq.analysis.attention.plot import check_plot_path

    if options.ref and options.beam:
        raise UserError("attention -r: -b has no effect on given translations; omit one of them")
    suffix = options.output.suffix.lower() if options.output else ""
    if options.gold and suffix != ".align":
        raise UserError("attention --gold: needs -o FILE.align, the alignments to evaluate")
    if options.output is None:
        return
    if _NUMBER in str(options.output.parent) or options.output.name.count(_NUMBER) > 1:
        raise UserError(f"{options.output}: {_NUMBER} may be in the file name, once")
    inputs = (options.input, options.ref, options.gold)
    check_output(options.output, *inputs, runs=options.model)
    if suffix in (".json", ".align"):
        if _NUMBER in options.output.name:
            raise UserError(f"{options.output}: {suffix} has all lines in one file; omit {_NUMBER}")
    else:
        check_plot_path(options.output)


def _write(
    options: argparse.Namespace,
    translations: "Iterator[Translation]",
    texts: Sequence[str],
    numbers: Sequence[int],
) -> list[str]:
    """Write the output in the format of its suffix; return notes."""
    from seq2seq.analysis.attention.plot import write_attention

    suffix = options.output.suffix.lower() if options.output else ""
    if suffix == ".json":
        _write_json(options.output, translations)
        return []
    if suffix == ".align":
        _write_alignments(options.output, options.gold, translations, texts, numbers)
        return []
    if options.output is None:
        _print_maps(translations, texts, options.words)
        return []
    if _NUMBER not in options.output.name:
        return write_attention(translations, texts, options.output, options.words)
    notes = []
    for number, text, each in zip(numbers, texts, translations, strict=True):
        path = options.output.with_name(options.output.name.replace(_NUMBER, str(number)))
        if each.attention_blocks is not None:
            notes += write_attention([each], [text], path, options.words)
        else:
            notes.append(f"{path}: not written: the line is blank or too long")
    return notes


def _write_json(path: Path, translations: "Iterator[Translation]") -> None:
    from seq2seq.inference.translation_json import translation_as_json

    with open_output(path) as output:
        start = "["
        for each in translations:
            output.write(f"{start}\n{translation_as_json(each)}")
            start = ","
        output.write("[\n]\n" if start == "[" else "\n]\n")


def _write_alignments(
    path: Path,
    gold_path: Path | None,
    translations: "Iterator[Translation]",
    texts: Sequence[str],
    numbers: Sequence[int],
) -> None:
    """Write one line of links per line, and print the alignment error rate if there is gold."""
    from seq2seq.analysis.attention.alignment import align, alignment_error_rate, pharaoh, read_gold
    from seq2seq.analysis.attention.maps import map_of

    gold = read_gold(gold_path) if gold_path else None
    if gold is not None and len(gold) < max(numbers, default=0):
        raise UserError(f"{gold_path} has {len(gold)} lines, fewer than the text; give one each")
    links = []
    with open_output(path) as output:
        for text, each in zip(texts, translations, strict=True):
            found = align(map_of(each, text))
            links.append(found)
            output.write(f"{pharaoh(found)}\n")
    if gold is not None:
        rate = alignment_error_rate(links, [gold[number - 1] for number in numbers])
        say(f"alignment error rate: {100 * rate:.1f} %")


def _print_maps(translations: "Iterator[Translation]", texts: Sequence[str], words: bool) -> None:
    from seq2seq.analysis.attention.plot import maps_of
    from seq2seq.analysis.attention.terminal import as_text

    with open_output(None) as output:
        for each in maps_of(translations, texts, words):
            output.write(f"{as_text(each)}\n\n")


def _line_numbers(text: str) -> list[int]:
    """Parse numbers and ranges such as 1,7-9, in the given order."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or max(len(first), len(last)) > 9
        ):
            raise argparse.ArgumentTypeError(f"must be numbers such as 1,7-9, not {text!r}")
        span = range(int(first), int(last or first) + 1)
        if int(first) < 1 or not span or len(span) > arguments.MAX_COUNT:
            raise argparse.ArgumentTypeError(f"must be numbers such as 1,7-9, not {text!r}")
        numbers += span
    return list(dict.fromkeys(numbers))


def _chosen(wanted: list[int] | None, lines: int, name: str) -> list[int]:
    """Return the numbers of the lines to plot; raises UserError if one does not exist."""
    if wanted is None:
        return list(range(1, lines + 1))
    if beyond := [number for number in wanted if number > lines]:
        raise UserError(f"--lines {beyond[0]}: {name} has {lines} lines")
    return wanted


def _translations(
    texts: list[str], translator: "Translator", beam_size: int | None, report: LineReport
) -> "Iterator[Translation]":
    """Yield the translations one by one, and note lines that were not translated as usual."""
    for start in range(0, len(texts), BATCH_LINES):
        batch = texts[start : start + BATCH_LINES]
        for number, each in enumerate(translator.stream(batch, beam_size), start=start + 1):
            report.note_translations(number, [each])
            yield each
