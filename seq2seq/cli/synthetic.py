"""Corpora of machine translations, as `seq2seq distill` and `seq2seq back-translate` write them."""

import argparse
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.cli import arguments
from seq2seq.cli.input import BATCH_LINES, LineReport
from seq2seq.cli.loading import frozen_objects, load_translator
from seq2seq.cli.output import check_output, check_replaced, check_sides, termination_raises
from seq2seq.cli.progress import progress
from seq2seq.data.lines import checksum_of_file, iter_lines
from seq2seq.runtime.console import counted, logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import is_table, table_format
from seq2seq.runtime.files import write_errors

if TYPE_CHECKING:
    from seq2seq.config.schema import Config, ParallelFiles
    from seq2seq.inference.journal import Journal
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.inference.translator import Translator

JOURNAL = ".journal"  # ends the name of the journal, beside the first output


class SyntheticCorpus(NamedTuple):
    """A corpus to write: the text to translate, the files of the pairs, and their languages."""

    text: "Path | ParallelFiles"  # a file of lines, or a parallel text whose sources are translated
    outputs: Sequence[Path]
    languages: tuple[str, str]  # source and target
    translates_targets: bool  # back-translation: the translation is the source of a pair
    search: "SearchSettings"

    @property
    def inputs(self) -> list[Path]:
        """Return the files that are read."""
        return [self.text] if isinstance(self.text, Path) else [*self.text.paths.values()]

    @property
    def columns(self) -> tuple[str, str]:
        """Return the names of the columns of a table: the codes of the languages."""
        src, tgt = self.languages
        return ("src", "tgt") if src == tgt else (src, tgt)

    @property
    def is_tsv(self) -> bool:
        """Return whether a pair is a line of TSV, which cannot hold a tab within a sentence."""
        return len(self.outputs) == 1 and table_format(self.outputs[0]) == "tsv"

    @property
    def journal(self) -> Path:
        """Return the file of the translations so far."""
        first = self.outputs[0]
        return first.with_name(first.name + JOURNAL)

    def lines(self) -> Iterator[str]:
        """Yield the lines to translate; raises UserError for text that cannot be read."""
        from seq2seq.data.corpus import iter_pairs

        if isinstance(self.text, Path):
            return iter_lines(self.text)
        return (src for src, _ in iter_pairs(self.text))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "files of the pairs, source and target, compressed by their endings; or one, in the format "
        "of its ending: TSV, .csv, .jsonl or .parquet"
    )
    parser.add_argument(
        "-o", "--output", type=Path, nargs="+", required=True, metavar="FILE", help=text
    )
    arguments.add_beam(parser)
    arguments.add_precision(parser)
    arguments.add_device(parser)
    text = "replace existing files, and translations of other settings that were interrupted"
    parser.add_argument("--overwrite", action="store_true", help=text)
    arguments.add_decoding(parser)


def write_corpus(options: argparse.Namespace, corpus: SyntheticCorpus) -> int:
    """Translate the text, resuming where an earlier call was killed, and write the pairs."""
    _check(corpus, options)
    count, checksum = _survey(corpus)
    from seq2seq.inference.journal import Journal

    settings = _settings(options, corpus, count, checksum)
    translator = load_translator(
        options.model,
        options.device,
        options.int8,
        options.beam,
        decoding=options.decoding,
        float16=options.float16,
    )
    try:
        with (
            termination_raises(),
            Journal.open(corpus.journal, settings, options.overwrite) as journal,
        ):
            if journal.done:
                logger.info(f"{journal.path}: resumed after {journal.done:,} of {count:,} lines")
            _translate(translator, options.beam, corpus, journal, count)
            pairs = _write(corpus, journal, checksum)
        with write_errors(journal.path):
            journal.path.unlink()
    except KeyboardInterrupt:
        logger.info(f"Resume with: seq2seq {shlex.join(options.arguments)}")
        raise
    names = " ".join(map(str, corpus.outputs))
    logger.info(f"{names}: {counted(pairs, 'pair')}")
    logger.info(f"To train on them, list in data.train: {_entry(corpus)}")
    return 0


def config_of(run: str) -> "Config":
    """Return the config of a run; raises UserError if it has none."""
    with frozen_objects():
        from seq2seq.runs.run_config import read_config

    return read_config(Path(run))


def check_file(path: Path) -> None:
    """Raise UserError for a file that does not hold plain lines, or cannot be read twice."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: is read twice; give a regular file")
    if is_table(path):
        raise UserError(f"{path}: is a table; give a file with one sentence per line")


def _check(corpus: SyntheticCorpus, options: argparse.Namespace) -> None:
    """Raise UserError for outputs that cannot be written or would replace another file."""
    check_sides(corpus.outputs)
    overwrite = options.overwrite or corpus.journal.exists()
    for path in (*corpus.outputs, corpus.journal):
        check_output(path, *corpus.inputs, runs=options.model, compressed=True)
        check_replaced(path, overwrite)
    from seq2seq.data.formats.writing import pair_writer

    with TemporaryDirectory() as folder:  # a package that is missing is named before any work
        trial = [Path(folder) / path.name for path in corpus.outputs]
        with pair_writer(trial, corpus.columns) as write:
            write("source", "target")


def _survey(corpus: SyntheticCorpus) -> tuple[int, str]:
    """Return the number of lines and their SHA-256; raise UserError for text that is unfit."""
    count, content = 0, hashlib.sha256()
    for count, line in enumerate(corpus.lines(), start=1):
        content.update(f"{line}\n".encode())
        if corpus.is_tsv and "\t" in line:
            raise UserError(
                f"{corpus.inputs[0]}:{count}: contains a tab, which TSV cannot hold. Write two "
                "files, .csv or .jsonl"
            )
    return count, content.hexdigest()


def _settings(
    options: argparse.Namespace, corpus: SyntheticCorpus, count: int, checksum: str
) -> dict[str, Any]:
    """Return all that decides the translations, as JSON holds it."""
    from seq2seq.runs.layout import BEST

    sampling = corpus.search.sampling
    of_config = config_of(options.model[0]).decoding.model_dump(mode="json")
    return {
        "models": [checksum_of_file(Path(run) / BEST) for run in options.model],
        "lines": count,
        "text": checksum,
        "beam": options.beam,
        "sampling": None if sampling is None else sampling._asdict(),
        "decoding": list(options.decoding),
        "int8": options.int8,
        "float16": options.float16,
        **{f"config.decoding.{key}": value for key, value in of_config.items()},
    }


def _translate(
    translator: "Translator",
    beam: int | None,
    corpus: SyntheticCorpus,
    journal: "Journal",
    count: int,
) -> None:
    """Translate the lines that the journal lacks, batch by batch."""
    report = LineReport(corpus.inputs[0])
    sampling = corpus.search.sampling
    n_best = 1 if sampling is None else sampling.samples
    lines = islice(corpus.lines(), journal.done, None)
    try:
        with progress("translated", count, done=journal.done) as advance:
            while batch := list(islice(lines, BATCH_LINES)):
                found = translator.translate(
                    batch,
                    beam,
                    n_best,
                    text_only=True,
                    on_translated=advance,
                    settings=corpus.search,
                )
                report.note_translations(journal.done + 1, found)
                journal.append([[each.text for each in line.n_best] for line in found])
    finally:
        report.log()


def _write(corpus: SyntheticCorpus, journal: "Journal", checksum: str) -> int:
    """Write the pairs and return their number; raise UserError if the text has changed."""
    from seq2seq.data.formats.writing import pair_writer

    pairs, content = 0, hashlib.sha256()
    with pair_writer(corpus.outputs, corpus.columns) as write:
        for line, texts in zip(corpus.lines(), journal.translations(), strict=False):
            content.update(f"{line}\n".encode())
            for text in texts:
                made = text.replace("\t", " ") if corpus.is_tsv else text
                write(*((made, line) if corpus.translates_targets else (line, made)))
                pairs += 1
        if content.hexdigest() != checksum:
            raise UserError(f"{corpus.inputs[0]}: changed while being read. Try again")
    return pairs


def _entry(corpus: SyntheticCorpus) -> str:
    """Return the entry of `data.train` that reads the corpus, as YAML."""
    import yaml

    names = ("src", "tgt") if len(corpus.outputs) == 2 else ("file",)
    tree: dict[str, object] = dict(zip(names, map(str, corpus.outputs), strict=True))
    if len(names) == 1 and not corpus.is_tsv:
        tree["columns"] = list(corpus.columns)
    if corpus.translates_targets:
        tree["tag"] = "<bt>"
    text = yaml.safe_dump(
        tree, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    )
    return str(text).strip()
