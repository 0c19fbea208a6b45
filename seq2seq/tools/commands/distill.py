"""Write the corpus of sequence-level knowledge distillation (Kim & Rush 2016): the source
side of the training text with its translations by a teacher, for a student to be
trained on. If it is interrupted, the same command resumes.

examples:
  seq2seq distill -m runs/teacher -o distilled.en distilled.de
  seq2seq distill -m runs/a -m runs/b -b 3 -i train.en.gz -o distilled.jsonl.gz
"""

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments, output, search_arguments
from seq2seq.cli.input import BATCH_LINES, LineReport, check_texts, is_stdin
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.options import CommandLine
from seq2seq.runtime.console import counted, logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import outside_notes, write_errors

if TYPE_CHECKING:
    from seq2seq.config.schema import ParallelFiles
    from seq2seq.inference.translator import Translator
    from seq2seq.tools.corpora.synthetic import Journal, SyntheticCorpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_run(parser)
    arguments.add_input(parser, default="data.train of the teacher's config")
    add_corpus(parser)


def add_corpus(parser: argparse.ArgumentParser) -> None:
    text = "files of source and target, or one of both: .tsv, .csv or .jsonl; also .gz or .bz2"
    parser.add_argument(
        "-o", "--output", type=Path, nargs="+", required=True, metavar="FILE", help=text
    )
    search_arguments.add_beam(parser)
    text = "replace existing files, and translations of other settings that were interrupted"
    parser.add_argument("--overwrite", action="store_true", help=text)
    arguments.add_model_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    model: list[str]
    loading: arguments.ModelArguments
    input: Path | None
    output: list[Path]
    beam: int | None
    overwrite: bool
    command_line: CommandLine


def run(options: Options) -> int:
    return write_corpus(options, {}, translates_targets=False)


def _training_text(corpora: "tuple[ParallelFiles, ...]", run: str) -> "ParallelFiles":
    """Return the training text of a run; raise UserError if it is not a single, untagged text."""
    if len(corpora) > 1 or corpora[0].tag is not None:
        kind = f"{len(corpora)} corpora" if len(corpora) > 1 else "a text with a tag"
        raise UserError(f"{run}: was trained on {kind}; give the text to translate as -i FILE")
    return corpora[0]


def write_corpus(options: Options, values: Mapping[str, Any], translates_targets: bool) -> int:
    """Translate the text, resuming where an earlier call was killed, and write the pairs."""
    with frozen_objects():
        from seq2seq.config.fields import show_flow
        from seq2seq.inference.settings import SearchSettings, check_together
        from seq2seq.runs.run_config import read_config
        from seq2seq.tools.corpora.synthetic import Journal, SyntheticCorpus

    config = read_config(Path(options.model[0]))
    text = options.input or _training_text(config.data.train, options.model[0])
    languages = config.data.src_lang, config.data.tgt_lang
    languages = languages[::-1] if translates_targets else languages
    sampling = search_arguments.sampling_options(values)  # None: beam search
    search = SearchSettings(sampling=sampling, written_names=False)
    check_together(search, beam_size=options.beam)
    files = text, options.output, languages
    corpus = SyntheticCorpus(*files, translates_targets, search, options.beam)
    _check(corpus, options)
    if options.input is None:
        for note in outside_notes(corpus.inputs, Path(options.model[0])):
            logger.info(note)
    count = sum(1 for _ in corpus.lines())
    checksums = corpus.checksums(options.model)
    how = config.decoding, arguments.model_options(options.loading)
    settings = corpus.settings(checksums.values(), *how)
    translator = arguments.load_translator(options.model, options.loading, options.beam)
    try:
        opened = Journal.open(corpus.journal, settings, options.overwrite)
        with output.termination_raises(), opened as journal:
            if journal.line_count:
                logger.info(
                    f"{journal.path}: resumed after {journal.line_count:,} of {count:,} lines"
                )
            _translate(translator, corpus, journal, count)
            for path, checksum in corpus.checksums(options.model).items():
                if checksum != checksums[path]:
                    raise UserError(f"{path}: changed while being read. Try again")
            pairs = corpus.write(journal)
        with write_errors(journal.path):
            journal.path.unlink()
    except KeyboardInterrupt:
        logger.info(f"Resume with: seq2seq {shlex.join(options.command_line.words)}")
        raise
    logger.info(f"{' '.join(map(str, corpus.outputs))}: {counted(pairs, 'pair')}")
    logger.info(f"To train on them, list in data.train: {show_flow(corpus.config_entry())}")
    return 0


def _check(corpus: "SyntheticCorpus", options: Options) -> None:
    """Raise UserError for a text that cannot be read twice, and outputs that cannot be written."""
    if isinstance(path := corpus.text, Path):
        if is_stdin(path) or (path.exists() and not path.is_file() and not path.is_dir()):
            raise UserError(f"{path}: is read twice; give a regular file")
        check_texts("", path)
        codes = corpus.languages[::-1] if corpus.translates_targets else corpus.languages
        arguments.check_named_languages([path], codes)
    output.check_sides(corpus.outputs)
    overwrite = options.overwrite or corpus.journal.exists()
    for path in (*corpus.outputs, corpus.journal):
        output.check_output(path, *corpus.inputs, runs=options.model, compressed=True)
        output.check_replaced(path, overwrite)
    arguments.check_named_languages(corpus.outputs, corpus.languages)


def _translate(
    translator: "Translator", corpus: "SyntheticCorpus", journal: "Journal", count: int
) -> None:
    bar = output.progress("translated", count, start=journal.line_count)
    with LineReport(corpus.inputs[0]) as report, bar as advance:
        for translations in corpus.translate(translator, journal, BATCH_LINES, advance):
            report.note_translations(journal.line_count + 1, translations)
