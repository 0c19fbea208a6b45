"""Properties of a line: the tags that begin it, its case, and the scripts of its words."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import repeat, takewhile

from seq2seq.text.characters import are_capitals, are_cased, is_lower
from seq2seq.text.names.words import is_placeholder, script_of

TITLE = 0.6  # share of words in capitals in title case
WORDS = re.compile(r"[^\W\d_]{2,}")


class _WithoutMarks(dict[int, str]):
    """Characters as they are, but for marks on letters, which are left out."""

    def __missing__(self, code: int) -> str:
        """Return a character, or nothing."""
        character = chr(code)
        self[code] = "" if unicodedata.category(character)[0] == "M" else character
        return self[code]


_WITHOUT_MARKS = _WithoutMarks()


def leading_tags(line: str, tags: Collection[str]) -> str | None:
    """Return the tags that begin a line, separated by spaces, or None."""
    return " ".join(takewhile(tags.__contains__, line.split(" "))) or None


def untagged(line: str, tags: Sequence[str]) -> str:
    """Return a line without the tags that begin it."""
    while tags and (first := line.partition(" "))[0] in tags:
        line = first[2]
    return line


def in_capitals(line: str) -> bool:
    """Return whether a line has several words in capitals alone; all but one may be of a letter."""
    if not are_capitals(line):
        return False
    longer_words = WORDS.findall(line)
    words = [word for word in line.split() if any(map(str.isalpha, word))]
    return len(longer_words) > 1 or (len(longer_words) == 1 and len(words) > 1)


def in_title_case(line: str) -> bool:
    """Return whether a line has four words or more, and all but short ones begin in capitals."""
    words = WORDS.findall(line)
    return (
        len(words) > 3
        and all(word[0].isupper() or len(word) < 4 for word in words)  # few lines
        and sum(word[0].isupper() for word in words) >= TITLE * len(words)
        and not are_capitals(line)
    )


def in_lower_case(line: str) -> bool:
    """Return whether a line has several words, begins with one in lower case, and so are all."""
    begins_in_lower = bool(first_letter(line)) and line.islower() and are_cased(line)
    return begins_in_lower and len(WORDS.findall(line)) > 1


def has_letters(text: str) -> bool:
    """Return whether a text has a letter, or a placeholder of a name."""
    if any(map(str.isalpha, text)):  # the first one, in most texts
        return True
    return any(map(is_placeholder, text))


def first_letter(line: str) -> str:
    """Return the first letter of a line if it is upper or lower case, else ""."""
    letter = next(filter(str.isalpha, line), "")
    return letter if is_lower(letter) or letter.isupper() else ""


@cache
def _words_or_ideographs() -> re.Pattern[str]:
    return re.compile(rf"{WORDS.pattern}|[\u3400-\u9fff]")


def scripts_of(line: str) -> Iterator[str]:
    """Yield the script of each word of at least two letters or an ideograph, such as "LATIN".

    Vowel signs are marks, not letters, to Python: Indic words would be letters alone.
    """
    if line.isascii():
        yield from repeat("LATIN", len(WORDS.findall(line)))
        return
    line = line.translate(_WITHOUT_MARKS)
    for word in _words_or_ideographs().findall(line):
        letter = next(filter(str.isalpha, word), "")
        if letter:  # and no digit in a circle
            yield script_of(letter)
