"""Unpack the demo corpora into data/ (or the folder named on the command line)."""

import sys
from pathlib import Path

from seq2seq.data.demo_corpora import unpack_demo_corpora
from seq2seq.runtime.errors import RunError

if __name__ == "__main__":
    try:
        print(*unpack_demo_corpora(Path(sys.argv[1] if sys.argv[1:] else "data")), sep="\n")
    except RunError as error:
        sys.exit(str(error))
