"""`seq2seq distill`: sequence-level knowledge distillation, the corpus a student is trained on."""

import argparse
from typing import TYPE_CHECKING

from seq2seq.cli import arguments, synthetic
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.config.schema import ParallelFiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the corpus of sequence-level knowledge distillation (Kim & Rush 2016): the source\n"
        "side of the training text with its translations by a teacher, for a student to be\n"
        "trained on. If it is interrupted, the same command resumes."
    )
    parser.epilog = """examples:
  seq2seq distill -m runs/teacher -o distilled.en distilled.de
  seq2seq distill -m runs/a -m runs/b -b 3 -i train.en.gz -o distilled.jsonl.gz"""
    arguments.add_model(parser)
    arguments.add_input(parser, default="data.train of the teacher's config")
    synthetic.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Translate the training text of the teacher, or the given text, into a corpus."""
    config = synthetic.config_of(options.model[0])
    languages = config.data.src_lang, config.data.tgt_lang
    text = options.input
    if text is None:
        text = _training_text(config.data.train, options.model[0])
    else:
        synthetic.check_file(text)
    from seq2seq.inference.settings import SearchSettings
    from seq2seq.inference.synthetic import SyntheticCorpus

    search = SearchSettings(written_names=False)
    corpus = SyntheticCorpus(text, options.output, languages, False, search, options.beam)
    return synthetic.write_corpus(options, corpus)


def _training_text(corpora: "tuple[ParallelFiles, ...]", run: str) -> "ParallelFiles":
    """Return the training text of a run; raise UserError if it is not a single, untagged text."""
    if len(corpora) > 1 or corpora[0].tag is not None:
        kind = f"{len(corpora)} corpora" if len(corpora) > 1 else "a text with a tag"
        raise UserError(f"{run}: was trained on {kind}; give the text to translate as -i FILE")
    return corpora[0]
