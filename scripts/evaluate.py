"""`python scripts/evaluate.py ...` is `seq2seq evaluate ...`."""

import sys

from seq2seq.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
