"""Write which characters end sentences, by Unicode, and which ASCII marks look like them.

    pip install regex confusable-homoglyphs
    python scripts/sentence_terminals.py

The files are seq2seq/text/sentence_terminals.txt and confusable_terminals.txt. Python's own tables
do not have the property Sentence_Terminal, which the package regex has, nor Unicode's confusables,
which confusable-homoglyphs has.
"""

import string
import sys
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "seq2seq/text"


def ranges(codes: list[int]) -> Iterator[str]:
    """Yield runs of consecutive code points in hexadecimal, as Unicode's files write them."""
    starts = [codes[0], *(code for previous, code in pairwise(codes) if code != previous + 1)]
    ends = [*(previous for previous, code in pairwise(codes) if code != previous + 1), codes[-1]]
    for first, last in zip(starts, ends, strict=True):
        yield f"{first:04X}" if first == last else f"{first:04X}..{last:04X}"


def confusable(codes: list[int]) -> Iterator[str]:
    """Yield a line for each mark beyond ASCII that one of ASCII looks like: both code points."""
    from confusable_homoglyphs import confusables  # type: ignore[import-not-found]

    for code in filter(0x7F.__lt__, codes):
        for mark in string.punctuation:
            similar = (entry["c"] for entry in confusables.confusables_data.get(mark, ()))
            if chr(code) in map(without_invisible, similar):
                yield f"{code:04X} {ord(mark):04X}"


def without_invisible(text: str) -> str:
    """Return a text without marks of direction, which surround some entries."""
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def main() -> None:
    """Write the files."""
    import regex

    terminal = regex.compile(r"\p{Sentence_Terminal}")
    codes = [code for code in range(sys.maxunicode + 1) if terminal.match(chr(code))]
    for name, lines in (("sentence", ranges(codes)), ("confusable", confusable(codes))):
        path = FOLDER / f"{name}_terminals.txt"
        path.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
