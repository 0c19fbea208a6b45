"""`python scripts/train.py ...` is `seq2seq train ...`."""

import sys

from seq2seq.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
