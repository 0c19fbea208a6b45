"""`python -m seq2seq` is the `seq2seq` command."""

import sys

from seq2seq.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
