"""A mark that is typed for the final mark of a script, which many keyboards lack.

Such as `:` in Armenian, `::` in Amharic and `|` in Hindi: the line ends in it after a word of a
script beyond ASCII, the training text hardly has it, and has a final mark that is not ASCII.
"""

import re
import unicodedata

from seq2seq.text.characters import APOSTROPHES, COMMAS, MARKS, QUOTES
from seq2seq.text.sentences import SIGNS, is_symbol
from seq2seq.text.writing import Writing

_NEVER_FINAL = frozenset((*APOSTROPHES, *COMMAS, *MARKS, *QUOTES, *SIGNS))  # or of another kind
_QUOTES = "".join(QUOTES)


def with_own_marks(text: str, writing: Writing) -> str:
    """Return a text with the final mark of its script for the one that was typed."""
    own = writing.mark_like(".")
    if own == "" or own.isascii() or text.isascii():
        return text
    end = _end_of_mark(text)
    body = text[:end]
    typed = body[-1:]
    if writing.knows(typed) or not _may_be_final(typed):
        return text
    word = body.rstrip(typed)
    run = body[len(word) :]
    last = word.rstrip()[-1:]
    if last.isascii() or unicodedata.category(last)[0] not in "LM":
        return text
    after_word = rf"(?<=[^\x00-\x7f])(\s?){re.escape(run)}(?=$|[\s{re.escape(_QUOTES)}])"
    return re.sub(after_word, rf"\g<1>{own}", body) + text[end:]


def _end_of_mark(text: str) -> int:
    """Return the place after the last character but white space, quotation marks and symbols."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in QUOTES or is_symbol(text[end - 1])):
        end -= 1
    return end


def _may_be_final(mark: str) -> bool:
    """Return whether a mark or a symbol that ends no sentences elsewhere may end one."""
    is_mark = mark != "" and unicodedata.category(mark) in ("Po", "Sm")
    return is_mark and mark not in _NEVER_FINAL and not unicodedata.mirrored(mark)
