"""`seq2seq translate`: translate text, one output line per input line."""

import argparse
import io
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seq2seq.cli import arguments
from seq2seq.cli.input import BATCH_LINES, LineReport, arrivals, batches, open_input
from seq2seq.cli.loading import load_translator
from seq2seq.cli.output import check_output, json_text, open_output
from seq2seq.data.lines import read_lines
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import LONE_SURROGATE

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation


SEPARATOR, ESCAPED = "|||", "&#124;" * 3  # in n-best lists, as Moses escapes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Translate text: one output line per input line, blank lines included."
    parser.epilog = """examples:
  seq2seq translate -m runs/demo -i test.en -o test.fr
  tail -f log | seq2seq translate -m runs/demo --stream
  seq2seq translate -m runs/a -m runs/b -i test.en -b 5 --n-best 5 --json

Files and pipes receive translations unchanged. On a terminal, control characters and
bidirectional controls are shown as \\uXXXX."""
    arguments.add_model(parser)
    arguments.add_input(parser)
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
    text = "translate lines as they arrive, as from tail -f"
    parser.add_argument("--stream", action="store_true", help=text)
    text = f"lines to translate together; does not affect the output (default: {BATCH_LINES})"
    parser.add_argument("--batch-size", type=arguments.count, metavar="N", help=text)
    arguments.add_int8(parser)
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Translate the input batch by batch; log notes on lines that were not translated as usual."""
    check_output(
        options.output,
        options.input,
        options.prefix_file,
        runs=options.model,
        streaming=options.stream,
    )
    prefixes = _Prefixes(options.prefix, options.prefix_file, options.stream)
    n_best, text_only = options.n_best or 1, not options.json and options.n_best is None
    read = arrivals if options.stream else batches
    with open_input(options.input) as opened:
        lines = prefixes.check(opened, str(options.input or "standard input"))
        translator = load_translator(
            options.model, options.device, options.int8, options.beam, n_best
        )
        with open_output(options.output) as output:
            report = LineReport(options.input)
            for number, batch in read(lines, options.batch_size):
                texts = report.decode(number, batch)
                begin = prefixes.of(number, len(texts))
                translations = translator.translate(texts, options.beam, n_best, begin, text_only)
                report.note_translations(number, translations, begin)
                for index, each in enumerate(translations, start=number - 1):
                    output.write(_format(each, index, options.n_best is not None, options.json))
                output.flush()
                if options.stream:
                    report.log()
    report.log()
    return 0


def _format(translation: "Translation", index: int, with_nbest: bool, as_json: bool) -> str:
    if as_json:
        return translation_as_json(translation, with_nbest) + "\n"
    if not with_nbest:
        return translation.text + "\n"
    return "".join(
        f"{index} ||| {text.replace(SEPARATOR, ESCAPED)} ||| {score:.6f}\n"
        for text, score in translation.nbest
    )


def translation_as_json(translation: "Translation", with_nbest: bool = False) -> str:
    """Format a translation with its tokens and attention weights as a JSON object."""
    weights = translation.attention_weights
    fields: dict[str, Any] = {
        "text": translation.text,
        "score": round(translation.score, 6),
        "src_tokens": translation.src_tokens,
        "tgt_tokens": translation.tgt_tokens,
        "attention_weights": weights and [[round(w, 6) for w in row] for row in weights],
    }
    if with_nbest:
        fields["n_best"] = [
            {"text": text, "score": round(score, 6)} for text, score in translation.nbest
        ]
    return json_text(fields)


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
        if path is not None:
            self._lines = read_lines(path)
        if LONE_SURROGATE.search(self._lines[0]):
            raise UserError("--prefix: is not UTF-8; use a UTF-8 terminal")

    def check(self, lines: IO[bytes], name: str) -> IO[bytes]:
        """Raise UserError for a prefix that is too long, or for a wrong number of prefixes.

        Counting takes reading all input first; returns the lines, ready to be read from the start.
        """
        if self._text or self._path:
            from seq2seq.inference.prefixes import check_prefixes

            check_prefixes(self._lines)
        if self._path is None:
            return lines
        kept = io.BytesIO(lines.read())
        number = sum(1 for _ in kept)
        if number != len(self._lines):
            raise UserError(
                f"{self._path} has {len(self._lines)} lines but {name} has {number}: "
                "line n must be the prefix for input line n, blank for no prefix"
            )
        kept.seek(0)
        return kept

    def of(self, number: int, size: int) -> list[str] | None:
        """Return the prefixes of `size` lines from line `number` on, or None if there are none."""
        if self._path is not None:
            return self._lines[number - 1 : number - 1 + size]
        return self._lines * size if self._text else None
