"""Tokens as labels of figures: words, and characters that are visible and legal everywhere."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from seq2seq.data.subword_sampling import SPACE

_BYTES, _HEX = re.compile("(?:<0x[0-9A-F]{2}>)+"), re.compile("<0x|>")
EOS, UNKNOWN_WORD = "</s>", "<unk>"


def word_spans(tokens: Sequence[str]) -> list[range]:
    """Return the indices of each word's tokens; EOS is a word."""
    starts = [index for index in range(len(tokens)) if starts_word(tokens, index)]
    return [range(*span) for span in pairwise([*starts, len(tokens)])]


def starts_word(tokens: Sequence[str], index: int) -> bool:
    """Return whether a token starts a word, is a word that a vocabulary of words lacks, or EOS."""
    token = tokens[index]
    starts = token.startswith(SPACE) or token == UNKNOWN_WORD
    return index == 0 or starts or EOS in tokens[index - 1 : index + 1]


def joined(tokens: Sequence[str]) -> str:
    """Return tokens as one text, in which those that spell bytes are decoded."""
    return _BYTES.sub(
        lambda match: bytes.fromhex(_HEX.sub("", match[0])).decode(errors="replace"),
        "".join(tokens),
    )


def text_of(tokens: Sequence[str]) -> str:
    """Return the text that tokens spell, without EOS."""
    return joined([token for token in tokens if token != EOS]).replace(SPACE, " ").strip()


def label_of(token: str) -> str:
    """Return a token without its word boundary; invisible or illegal characters as U+XXXX."""
    text = token.removeprefix(SPACE) or token
    categories = [unicodedata.category(character) for character in text]
    if all(category[0] in "CZ" for category in categories) or {"Cc", "Cs", "Cn"} & set(categories):
        return " ".join(f"U+{ord(character):04X}" for character in text)
    return text


def labels_of(tokens: Sequence[str]) -> list[str]:
    """Return the labels of several tokens."""
    return [label_of(token) for token in tokens]


def legible(text: str) -> str:
    """Return a text safe for XML and for one line: control characters become spaces."""
    return "".join(c if unicodedata.category(c) not in {"Cc", "Cs", "Cn"} else " " for c in text)
