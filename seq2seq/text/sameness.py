"""Key by which two sentences are compared: equal where translation reads them as one."""

import unicodedata

from seq2seq.text.characters import is_blank

_DOT_ABOVE = "\N{COMBINING DOT ABOVE}"  # which casefold leaves behind the i of a Turkish capital


def sentence_key(text: str) -> str:
    """Return the sentence in one case and width, without invisible characters, by single spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        text = text.replace(f"i{_DOT_ABOVE}", "i")
        text = "".join(filter(_is_kept, text))
    return " ".join(text.casefold().split())


def _is_kept(character: str) -> bool:
    return character.isascii() or character.isspace() or not is_blank(character)
