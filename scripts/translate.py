"""`python scripts/translate.py ...` is `seq2seq translate ...`."""

import sys

from seq2seq.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["translate", *sys.argv[1:]]))
