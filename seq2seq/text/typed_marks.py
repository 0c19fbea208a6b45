"""Final marks that are typed for those of a script, which many keyboards lack.

Such as `:` in Armenian, `::` in Amharic, `|` in Hindi and `-` in Urdu. The training text has a
final mark beyond ASCII; after a word beyond ASCII or a number, another mark is read as that one:

- at the end of a line, if no line of the training text ends in it;
- within a line that ends in the same mark;
- within any other line, if it is typed twice, looks like the mark of the script, or is a symbol;
  before a letter at once, too, but a hyphen.

Where the training text has the other mark within its lines, it is read so only if it is typed twice
or looks like the mark of the script.

Marks of another form, such as full width, are read as those of the text by `writing.py`.
"""

import re
import unicodedata
from functools import cache
from pathlib import Path

from seq2seq.text.characters import PUNCTUATION, QUOTES, is_symbol
from seq2seq.text.final_marks import may_be_final
from seq2seq.text.writing import Writing


def with_own_marks(text: str, writing: Writing, line_ends: str = "") -> str:
    """Return a text with the final mark of its script for the one that was typed.

    `line_ends` are the characters with which lines of the training text end; "": unknown.
    """
    own = writing.mark_like(".")
    if own.isascii() or text.isascii():
        return text
    end = _end_of_mark(text)
    body = text[:end]
    typed_marks = _TypedMarks(own, writing, line_ends)
    final = next((match for match in _runs().finditer(body) if match.end() == end), None)
    is_final_typed = final is not None and typed_marks.include(final, is_final=True)
    final_run = final["run"] if final is not None and is_final_typed else ""

    def read(match: re.Match[str]) -> str:
        is_apart = match["next"] or typed_marks.is_dash_apart(match)
        is_as_final = match["run"] == final_run and not is_apart
        is_typed = is_as_final or typed_marks.include(match, is_final=False)
        return match["space"] + own if is_typed else match[0]

    return _runs().sub(read, body) + text[end:]


class _TypedMarks:
    """Marks after a word that are typed for the final mark of a script, `own`."""

    def __init__(self, own: str, writing: Writing, line_ends: str) -> None:
        self._similar = _looks_like(own)
        self._writing = writing
        self._line_ends = line_ends

    def include(self, match: re.Match[str], *, is_final: bool) -> bool:
        """Return whether a mark is one of these: at the end of a line, or within it."""
        mark = match["mark"]
        is_similar = mark == self._similar
        is_repeated = match["run"] != mark
        if not (is_similar or may_be_final(mark)) or self.is_dash_apart(match):
            return False
        if match["next"] and (match["space"] or unicodedata.category(mark) == "Pd"):
            return False
        if self._writing.knows(mark):
            is_unusual = self._line_ends != "" and mark not in self._line_ends
            if not (is_unusual and (is_similar or is_repeated)):
                return False
        is_joined = match["space"] == ""
        is_symbol_or_similar = is_similar or unicodedata.category(mark) == "Sm"
        return is_final or is_repeated or (is_joined and is_symbol_or_similar)

    def is_dash_apart(self, match: re.Match[str]) -> bool:
        """Return whether a mark is a dash after a space, or several."""
        is_dash = unicodedata.category(match["mark"]) == "Pd"
        return is_dash and (match["space"] != "" or match["run"] != match["mark"])


@cache
def _runs() -> re.Pattern[str]:
    """Return the pattern of a mark, once or several times, after a word beyond ASCII or a digit."""
    symbols = "".join(c for c in map(chr, range(0x80)) if unicodedata.category(c) == "Sm")
    marks = re.escape(PUNCTUATION + symbols)
    return re.compile(
        rf"""
        (?<= [^\x00-/:-\x7f{marks}] )  # also a digit
        (?P<space> \s? )
        (?P<run> (?P<mark> [{marks}] ) (?P=mark)* )
        (?= $ | [\s{re.escape("".join(QUOTES))}] | (?P<next> [^\W\d_\x00-\x7f] ) )
        """,
        re.VERBOSE,
    )


def _looks_like(mark: str) -> str:
    """Return the ASCII mark that Unicode calls confusable with the mark of a script, or ""."""
    return _lookalikes().get(mark, "")


@cache
def _lookalikes() -> dict[str, str]:
    path = Path(__file__).with_name("confusable_terminals.txt")
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {chr(int(mark, 16)): chr(int(similar, 16)) for mark, similar in pairs}


def _end_of_mark(text: str) -> int:
    """Return the place after the last character but white space, quotation marks and symbols."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in QUOTES or is_symbol(text[end - 1])):
        end -= 1
    return end
