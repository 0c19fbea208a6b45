"""Corpora of machine translations, as `seq2seq distill` and `seq2seq back-translate` write them."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.cli.arguments import frozen_objects, load_translator
from seq2seq.cli.input import BATCH_LINES, LineReport, check_texts, is_stdin
from seq2seq.cli.output import (
    check_output,
    check_replaced,
    check_sides,
    progress,
    termination_raises,
)
from seq2seq.data.lines import is_compressed
from seq2seq.runtime.console import counted, logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import write_errors

if TYPE_CHECKING:
    from seq2seq.config.schema import Config
    from seq2seq.inference.synthetic import Journal, SyntheticCorpus
    from seq2seq.inference.translator import Translator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "files of the pairs, source and target, compressed by their endings; or one, in the format "
        "of its ending: TSV, .csv or .jsonl"
    )
    parser.add_argument(
        "-o", "--output", type=Path, nargs="+", required=True, metavar="FILE", help=text
    )
    arguments.add_beam(parser)
    text = "replace existing files, and translations of other settings that were interrupted"
    parser.add_argument("--overwrite", action="store_true", help=text)
    arguments.add_model_options(parser)


def write_corpus(options: argparse.Namespace, corpus: "SyntheticCorpus") -> int:
    """Translate the text, resuming where an earlier call was killed, and write the pairs."""
    from seq2seq.inference.synthetic import Journal

    _check(corpus, options)
    count, checksum = corpus.survey()
    decoding = config_of(options.model[0]).decoding
    settings = corpus.settings(options.model, decoding, arguments.model_options(options))
    settings |= {"lines": count, "text": checksum}
    translator = load_translator(options)
    try:
        with (
            termination_raises(),
            Journal.open(corpus.journal, settings, options.overwrite) as journal,
        ):
            if journal.done:
                logger.info(f"{journal.path}: resumed after {journal.done:,} of {count:,} lines")
            _translate(translator, corpus, journal, count)
            pairs = corpus.write(journal, checksum)
        with write_errors(journal.path):
            journal.path.unlink()
    except KeyboardInterrupt:
        logger.info(f"Resume with: seq2seq {shlex.join(options.arguments)}")
        raise
    names = " ".join(map(str, corpus.outputs))
    logger.info(f"{names}: {counted(pairs, 'pair')}")
    logger.info(f"To train on them, list in data.train: {_as_yaml(corpus.config_entry())}")
    return 0


def config_of(run: str) -> "Config":
    """Return the config of a run; raises UserError if it has none."""
    with frozen_objects():
        from seq2seq.runs.run_config import read_config

    return read_config(Path(run))


def check_file(path: Path) -> None:
    """Raise UserError for a file that does not hold plain lines, or cannot be read twice."""
    if is_stdin(path) or (path.exists() and not path.is_file() and not path.is_dir()):
        raise UserError(f"{path}: is read twice; give a regular file")
    check_texts("", path)


def _check(corpus: "SyntheticCorpus", options: argparse.Namespace) -> None:
    """Raise UserError for outputs that cannot be written or would replace another file."""
    check_sides(corpus.outputs)
    overwrite = options.overwrite or corpus.journal.exists()
    for path in (*corpus.outputs, corpus.journal):
        check_output(path, *corpus.inputs, runs=options.model, compressed=True)
        check_replaced(path, overwrite)
    _check_languages(corpus)


def _check_languages(corpus: "SyntheticCorpus") -> None:
    """Raise UserError for a file whose ending is the language code of the other side."""
    languages = corpus.languages
    if languages[0] == languages[1]:
        return
    read = [(corpus.text, int(corpus.translates_targets))] if isinstance(corpus.text, Path) else []
    written = zip(corpus.outputs, (0, 1), strict=False)
    for verb, files in (("has to have", read), ("receives", written)):
        for path, side in files:
            name = path.stem if is_compressed(path) else path.name
            if Path(name).suffix.lower() == f".{languages[1 - side].lower()}":
                raise UserError(
                    f"{path}: {verb} {languages[side]}, not {languages[1 - side]}, by the "
                    "languages of the run; is it the right run, and in the right order?"
                )


def _translate(
    translator: "Translator", corpus: "SyntheticCorpus", journal: "Journal", count: int
) -> None:
    """Translate the lines that the journal lacks, and log notes on them."""
    report = LineReport(corpus.inputs[0])
    try:
        with progress("translated", count, done=journal.done) as advance:
            for translations in corpus.translate(translator, journal, BATCH_LINES, advance):
                report.note_translations(journal.done + 1, translations)
    finally:
        report.log()


def _as_yaml(entry: dict[str, object]) -> str:
    import yaml

    text = yaml.safe_dump(
        entry, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    )
    return str(text).strip()
