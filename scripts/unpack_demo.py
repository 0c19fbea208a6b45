"""Unpack the demo corpora (English-French, English-Marathi) into a folder."""

import argparse
import sys
from pathlib import Path

from seq2seq.data.demo_corpora import unpack_demo_corpora
from seq2seq.runtime.console import printable, say
from seq2seq.runtime.errors import RunError

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("data"), help="folder to write into")
    try:
        for path in unpack_demo_corpora(parser.parse_args().output):
            say(str(path))
    except RunError as error:
        sys.exit(printable(str(error)))
