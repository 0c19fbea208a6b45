"""Back-translate monolingual text of the target language (Sennrich et al. 2016): a model
of the reverse direction makes synthetic sources, by beam search or sampling (Edunov et
al. 2018). The pairs are one more corpus of data.train, best with a tag (Caswell et al.
2019). If it is interrupted, the same command resumes.

examples, with a model from German to English for one from English to German:
  seq2seq back-translate -m runs/de-en -i news.de.gz -o back.en back.de
  seq2seq back-translate -m runs/de-en -i news.de --sample 1 -o back.jsonl.gz
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.cli import arguments, search_arguments
from seq2seq.tools.commands import distill


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_run(parser)
    text = "monolingual text of the target language, one sentence per line, also compressed"
    parser.add_argument("-i", "--input", type=Path, required=True, metavar="FILE", help=text)
    distill.add_corpus(parser)
    text = "draw N sources for each line, in place of beam search, and pair each with the line"
    search_arguments.add_sampling_options(parser.add_argument_group("sampling"), text)


@dataclass(frozen=True)
class Options(distill.Options):
    """Arguments of the command."""

    sampling: dict[str, Any]


def run(options: Options) -> int:
    return distill.write_corpus(options, options.sampling, translates_targets=True)
