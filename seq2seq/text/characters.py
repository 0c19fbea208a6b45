"""Characters: visible ones, letters of words, marks, and the form in which text is compared.

What is done with lines, such as those in capitals, are the steps of steps.py.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import filterfalse
from pathlib import Path

from seq2seq.runtime import files

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's symbol for the space before a word
EOS = "</s>"  # the token that ends a sentence
# A character that is visible. Invisible are white space, Unicode's default-ignorable code
# points (DerivedCoreProperties.txt), annotation marks, the blank Braille pattern, and U+2581, which
# is a space to SentencePiece.
_VISIBLE = re.compile(
    r"[^\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2581\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_LONG_WORD = re.compile(r"\S{2000}")
_PARTS = re.compile(r"\S{1,1000}|\s+")
_WITHOUT_SPACES = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"),
)


def _sentence_terminals() -> Iterator[str]:
    """Yield the characters of Unicode's property Sentence_Terminal."""
    path = Path(__file__).with_name("sentence_terminals.txt")
    for line in path.read_text(encoding="ascii").split():
        first, _, last = line.partition("..")
        yield from map(chr, range(int(first, 16), int(last or first, 16) + 1))


SENTENCE_TERMINALS = "".join(_sentence_terminals())
MARKS = SENTENCE_TERMINALS + "\N{HORIZONTAL ELLIPSIS}"  # that end sentences
_STRAIGHT = "\"'\uff02\uff07"  # quotation marks of both ends


def _marks_by_category() -> dict[str, str]:
    """Return brackets, quotation marks, dashes and other marks of Unicode, by their category."""
    by_category = {"Ps": "", "Pe": "", "Pi": "", "Pf": "", "Pd": "", "Po": ""}
    # Those of scripts in use lie before the letters of Chinese, and among forms of other width.
    characters = map(chr, (*range(0x3100), *range(0xFE00, 0xFFF0)))
    for character in filterfalse(str.isalnum, filter(str.isprintable, characters)):
        category = unicodedata.category(character)
        if category in by_category:
            by_category[category] += character
    return by_category


def _are_quotes(brackets: str) -> Iterator[str]:
    """Yield the characters, such as corner brackets and gershayim, that quote."""
    for bracket in brackets:
        name = unicodedata.name(bracket)
        if "QUOTATION MARK" in name or "CORNER BRACKET" in name or "PUNCTUATION GERSH" in name:
            yield bracket


# Whether one of them opens or closes depends on the language: “a”, „a“, »a«, ”a”.
_BY_CATEGORY = _marks_by_category()
PUNCTUATION = "".join(_BY_CATEGORY.values())
INITIAL_QUOTES = _BY_CATEGORY["Pi"]
FINAL_QUOTES = _BY_CATEGORY["Pf"]
OPENING = _BY_CATEGORY["Ps"] + INITIAL_QUOTES + _STRAIGHT + "\u00bf\u00a1\u2e18"
CLOSING = _BY_CATEGORY["Pe"] + FINAL_QUOTES + _STRAIGHT
AFTER_MARKS = CLOSING + INITIAL_QUOTES  # at once after a mark, any quotation mark closes
QUOTES = (
    *(INITIAL_QUOTES + FINAL_QUOTES + _STRAIGHT),
    *_are_quotes(_BY_CATEGORY["Ps"] + _BY_CATEGORY["Pe"] + _BY_CATEGORY["Po"]),
)
# Also accents, which are typed for them, and the Hebrew geresh.
APOSTROPHES = "'\u2019\u02bc\uff07`\u00b4\u05f3"
OTHER_PUNCTUATION = _BY_CATEGORY["Po"]
COMMAS = "".join(c for c in OTHER_PUNCTUATION if "COMMA" in unicodedata.name(c).split())


def _may_end_label(mark: str) -> bool:
    name = unicodedata.name(mark, "")
    is_of_speech = "QUESTION" in name or "EXCLAMATION" in name or "INTERROBANG" in name
    is_comma = mark in COMMAS and "IDEOGRAPHIC" not in name
    return not (mark.isascii() or is_of_speech or is_comma)


# After the number of an item, in lists of scripts with a full stop or a comma of their own.
LABEL_MARKS = "".join(filter(_may_end_label, SENTENCE_TERMINALS + COMMAS))
DASHES = _BY_CATEGORY["Pd"] + "\N{MINUS SIGN}"
SIGNS = "#%&*/@\\\u2030\u2032\u2033"  # punctuation to Unicode, but part of a text
_SYMBOL_CATEGORIES = {"So", "Sk", "Cs", "Co"}  # categories of symbols such as emoji
_JOINING = "\u200d\ufe0f\u20e3"  # within emoji


def _partners() -> dict[str, str]:
    """Return what closes brackets and quotation marks, by names with LEFT and RIGHT."""
    partners = dict[str, str]()
    closing = {unicodedata.name(bracket): bracket for bracket in CLOSING}
    for bracket in OPENING:
        name = unicodedata.name(bracket)
        if "LEFT" in name and name.replace("LEFT", "RIGHT") in closing:
            partners[bracket] = closing[name.replace("LEFT", "RIGHT")]
    return partners


PARTNERS = _partners()


def is_lower(character: str) -> bool:
    """Return whether a letter is lower case, in a script that has capitals in ordinary text.

    Georgian has capitals for headings alone: a title begins in the letter itself.
    """
    return character.islower() and character.title() != character


def are_capitals(text: str) -> bool:
    """Return whether a text has letters, and all of them are capitals.

    One in a script without capitals has none, also with an abbreviation such as BBC.
    """
    return text.isupper() and are_cased(text)


def are_cased(text: str) -> bool:
    """Return whether no letter of a text is of a script without capitals."""
    return text.isascii() or not any(unicodedata.category(c) == "Lo" for c in text)


def is_wide(character: str) -> bool:
    """Return whether a character is of the width of an ideograph, or a narrow form of one."""
    return unicodedata.east_asian_width(character) in ("F", "H", "W")


def is_symbol(character: str) -> bool:
    """Return whether a character is a symbol such as an emoji, or a part of one."""
    return character in _JOINING or unicodedata.category(character) in _SYMBOL_CATEGORIES


def is_blank(line: str) -> bool:
    """Return whether a line has no visible character: the definition for all of seq2seq."""
    return _VISIBLE.search(line) is None


def normalized(text: str) -> str:
    """Return the NFC of a text, with lone surrogates replaced by U+FFFD.

    Thousands of characters without a space are normalized in parts: reordering is quadratic.
    """
    text = files.LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    parts = _PARTS.findall(text) if _LONG_WORD.search(text) else [text]
    return "".join(unicodedata.normalize("NFC", part) for part in parts)


def is_letter(character: str) -> bool:
    """Return whether a character continues a word of a script with spaces."""
    return is_in_word(character) and is_spaced(character)


def is_in_word(character: str) -> bool:
    """Return whether a character is a letter, a mark on one or a digit, of any script."""
    return character != "" and unicodedata.category(character)[0] in "LMN"


def is_spaced(character: str) -> bool:
    """Return whether a character is of a script that writes spaces between words."""
    return not unicodedata.name(character, "").startswith(_WITHOUT_SPACES)
