"""Unpack the demo corpora (English-French, English-Marathi) into a folder."""

import argparse
import sys
from pathlib import Path

from seq2seq.data.demo_corpora import unpack_demo_corpora
from seq2seq.runtime.errors import RunError

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("data"), help="folder to write into")
    try:
        print(*unpack_demo_corpora(parser.parse_args().output), sep="\n")
    except RunError as error:
        sys.exit(str(error))
