"""Write seq2seq/text/sentence_terminals.txt: the characters that end sentences, by Unicode.

    pip install regex
    python scripts/sentence_terminals.py

Python's own tables do not have the property Sentence_Terminal; the package regex has it.
"""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "seq2seq/text/sentence_terminals.txt"


def ranges(codes: list[int]) -> Iterator[str]:
    """Yield runs of consecutive code points in hexadecimal, as Unicode's files write them."""
    starts = [codes[0], *(code for previous, code in pairwise(codes) if code != previous + 1)]
    ends = [*(previous for previous, code in pairwise(codes) if code != previous + 1), codes[-1]]
    for first, last in zip(starts, ends, strict=True):
        yield f"{first:04X}" if first == last else f"{first:04X}..{last:04X}"


def main() -> None:
    """Write the file."""
    import regex

    terminal = regex.compile(r"\p{Sentence_Terminal}")
    codes = [code for code in range(sys.maxunicode + 1) if terminal.match(chr(code))]
    FILE.write_text("\n".join(ranges(codes)) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
