"""Download a public parallel corpus. Multi30k is verified by SHA-256. The Tatoeba pairs
(anki-eng-*) grow: their SHA-256 is printed, and they are split by a fixed rule. The
corpora keep their own licences.

examples:
  seq2seq download multi30k
  seq2seq download anki-eng-mar -o corpora
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.data.public_corpora import CORPORA, fetch
from seq2seq.runtime.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=CORPORA, metavar="NAME", help=", ".join(CORPORA))
    text = "parent of the new folder NAME (default: data)"
    arguments.add_output_folder(parser, text, default=Path("data"))
    parser.add_argument("--base-url", metavar="URL", help="mirror with the same file names")


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    name: str
    output: Path
    base_url: str | None


def run(options: Options) -> int:
    if options.base_url and not options.base_url.startswith(("http://", "https://")):
        raise UserError(f"--base-url {options.base_url}: must start with http:// or https://")
    fetch(options.name, options.output, options.base_url)
    return 0
