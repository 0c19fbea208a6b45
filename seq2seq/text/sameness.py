"""Key by which two sentences are compared: equal where translation reads them as one."""

import itertools
import unicodedata
from functools import cache

from seq2seq.text.characters import APOSTROPHES, DASHES, PUNCTUATION, QUOTES, is_blank

_DOT_ABOVE = "\N{COMBINING DOT ABOVE}"  # which casefold leaves behind the i of a Turkish capital
_PUNCTUATION = frozenset(PUNCTUATION)


def sentence_key(text: str) -> str:
    """Return the sentence in one case and width, without invisible characters, by single spaces.

    Quotation marks and apostrophes are one character, as are dashes, and no mark has a space beside
    it: tokens of a sentence are that sentence.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        text = text.replace(f"i{_DOT_ABOVE}", "i")
    words = "".join(map(_in_key, text.casefold())).split()
    return "".join(words[:1]) + "".join(
        word if word[0] in _PUNCTUATION or previous[-1] in _PUNCTUATION else f" {word}"
        for previous, word in itertools.pairwise(words)
    )


@cache
def _in_key(character: str) -> str:
    """Return a character as it is compared, or "" for an invisible one."""
    if character in DASHES:
        return "-"
    if character in QUOTES or character in APOSTROPHES:
        return "'"
    return character if character.isspace() or not is_blank(character) else ""
