"""A mark that is typed for the final mark of a script, which many keyboards lack.

Such as `:` in Armenian, `::` in Amharic, `|` in Hindi and `-` in Urdu: the line ends in it after a
word of a script beyond ASCII, no line of the training text does, and that has a final mark that is
not ASCII. One that the text has within its lines is typed twice, or looks like that mark.
"""

import re
import unicodedata
from functools import cache
from pathlib import Path

from seq2seq.text.characters import QUOTES
from seq2seq.text.learned_sentences import may_be_final
from seq2seq.text.sentences import is_symbol
from seq2seq.text.writing import Writing

_QUOTES = "".join(QUOTES)


def with_own_marks(text: str, writing: Writing, line_ends: str = "") -> str:
    """Return a text with the final mark of its script for the one that was typed.

    `line_ends` are the characters with which lines of the training text end; "": unknown.
    """
    own = writing.mark_like(".")
    if own == "" or own.isascii() or text.isascii():
        return text
    end = _end_of_mark(text)
    body = text[:end]
    typed = body[-1:]
    is_similar = _looks_like(own) == typed
    if not (is_similar or may_be_final(typed)):
        return text
    word = body.rstrip(typed)
    run = body[len(word) :]
    last = word.rstrip()[-1:]
    if last.isascii() or unicodedata.category(last)[0] not in "LM":
        return text
    is_telling = is_similar or len(run) > 1
    if writing.knows(typed) and not (is_telling and line_ends and typed not in line_ends):
        return text
    is_dash = unicodedata.category(typed) == "Pd"  # which is one after a space
    if is_dash and (word != word.rstrip() or len(run) > 1):
        return text
    space = "" if is_dash else r"\s?"
    after_word = rf"(?<=[^\x00-\x7f])({space}){re.escape(run)}(?=$|[\s{re.escape(_QUOTES)}])"
    return re.sub(after_word, rf"\g<1>{own}", body) + text[end:]


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
