"""Writing of a text: characters of another form are read as those of the same kind that it has.

Unicode says what is of one kind: digits of one value, marks of one use, a character and its
compatibility forms, a letter with an optional mark and the letter alone.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import chain

from seq2seq.text.characters import (
    LABEL_MARKS,
    MARKS,
    QUOTES,
    SENTENCE_TERMINALS,
    is_blank,
    is_spaced,
    is_wide,
)
from seq2seq.text.final_marks import marks_as_typed
from seq2seq.text.names.words import is_placeholder

# Letters of Arabic script that languages write differently: kaf, yeh and heh (The Unicode Standard,
# chapter 9.2). No property relates these alone: letters that Unicode calls confusable are also
# theh and peh, which are two letters in any language.
_FORMS = ("\u0643\u06a9", "\u064a\u06cc\u0649", "\u0647\u06c1")
# Marks of Latin letters that languages write differently: comma below and cedilla (chapter 7.1).
_MARK_FORMS = {"\u0326": "\u0327", "\u0327": "\u0326"}
_NUMBER = re.compile(r"\d+(?:[^\w\s]\d+)*")
_TATWEEL = "\N{ARABIC TATWEEL}"  # lengthens a word, and means nothing
# Unicode replaces the Greek question mark by a semicolon, in all normal forms.
_GREEK_QUESTION_MARK = unicodedata.normalize("NFC", "\N{GREEK QUESTION MARK}")


def kind_of_mark(mark: str) -> str:
    """Return which kind of sentence a mark ends, "" for one that ends none in most texts."""
    name = unicodedata.name(mark, "")
    if ("QUESTION MARK" in name or "INTERROBANG" in name) and "INVERTED" not in name:
        return "question"
    if "EXCLAMATION MARK" in name and "INVERTED" not in name:
        return "exclamation"
    return "statement" if mark in SENTENCE_TERMINALS else ""


def is_unusual(character: str) -> bool:
    """Return whether a character is a space but U+0020, invisible or a compatibility character."""
    if character.isascii():
        return character.isspace() and character != " "
    if character.isspace() or unicodedata.category(character) == "Cf":
        return True
    return unicodedata.normalize("NFKC", character) != unicodedata.normalize("NFC", character)


class Writing:
    """Characters of a text, its final marks (the most frequent ones first), and its spaces.

    A final mark that the text types twice is given twice. Of a text without known characters, all
    are known.
    """

    def __init__(self, characters: str, marks: str = "", has_inner_spaces: bool = True) -> None:
        self._characters = frozenset(characters)
        self._marks = marks
        self._has_inner_spaces = has_inner_spaces

    def knows(self, character: str) -> bool:
        """Return whether the text has a character."""
        return not self._characters or character in self._characters

    def knows_all(self, characters: Iterable[str]) -> bool:
        """Return whether the text has all of these characters."""
        return not self._characters or self._characters.issuperset(characters)

    def mark_like(self, mark: str) -> str:
        """Return the mark of the text that ends the same kind of sentence, or ""."""
        return self._mark_of_kind.get(kind_of_mark(mark), "")

    def written(self, text: str) -> str:
        """Return a text with its unknown characters as the text writes them, if it does."""
        if not self._characters:
            return text
        if not self._characters.issuperset(text):
            text = "".join(self._written_characters(self.with_digits(text)))
        return text if self._has_inner_spaces else _without_inner_spaces(text)

    def with_digits(self, text: str) -> str:
        """Return a text whose numbers have digits of the text, all of them of one kind."""
        return _NUMBER.sub(self._number, text) if self._zero else text

    def _number(self, number: re.Match[str]) -> str:
        if self._characters.issuperset(c for c in number[0] if c.isdecimal()):
            return number[0]
        return "".join(map(self._digit, number[0]))

    def _digit(self, character: str) -> str:
        """Return the digit of the same value of which the text has most, other characters as is."""
        value = unicodedata.decimal(character, None)
        return character if value is None or not self._zero else chr(self._zero + value)

    def _written_characters(self, text: str) -> Iterator[str]:
        base = " "  # the last character that is neither a mark nor a lengthening of a word
        last = next((place for place in reversed(range(len(text))) if text[place].isalnum()), -1)
        for place, character in enumerate(text):
            following = text[place + 1 : place + 2]
            is_in_address = character in "!?:" and following.isalnum()
            is_inner_stop = character == "." and place < last and following not in QUOTES
            is_kept = is_in_address or is_inner_stop  # or in a number
            if is_kept or character in self._characters:
                yield character
            else:
                yield self._written(character, self._has_optional_marks(base))
            if character != _TATWEEL and unicodedata.category(character)[0] != "M":
                base = character

    def _has_optional_marks(self, base: str) -> bool:
        """Return whether marks of a character may go: a letter without capitals of the text.

        A word in a script that the text lacks is kept as it is, as it is a name or a quotation.
        """
        is_known = base in self._characters or bool(self._like(base))
        return is_known and unicodedata.category(base) == "Lo"

    def _written(self, character: str, may_go: bool) -> str:
        """Return a character as the text writes it; an optional mark is left out if it `may_go`."""
        is_number = unicodedata.category(character) == "Nd"
        if character in self._characters or is_number or is_placeholder(character):
            return character
        if character.isspace() or "WORDSPACE" in unicodedata.name(character, ""):
            return " "
        if unicodedata.category(character) == "Cf" or is_blank(character):
            return ""
        like = self._like(character)
        if like:
            return like
        is_optional = character == _TATWEEL or unicodedata.category(character) == "Mn"
        return "" if is_optional and may_go else character

    def affix_character(self, character: str) -> str:
        """Return a character after a sentence as the text writes it, but raised ones as they are.

        Those of full or half width have their usual form where the text has none.
        """
        return self.label_character(character, self.mark_like(character))

    def label_character(self, character: str, mark: str = "") -> str:
        """Return a character of a label, which ends in no mark of a sentence."""
        form = unicodedata.decomposition(character).partition(" ")[0]
        if character in self._characters or form in ("<super>", "<sub>"):
            return character
        like = self._same_character(character) or mark
        if like:
            return like
        if character in LABEL_MARKS:
            return "."
        if is_wide(character) and "MIDDLE DOT" in unicodedata.name(character, ""):
            return "\N{BULLET}"
        usual_form = unicodedata.normalize("NFKC", character)
        return usual_form if form in ("<wide>", "<narrow>") else character

    def _like(self, character: str) -> str:
        """Return the characters of the same kind that the text has, or ""."""
        like = self._same_character(character) or self.mark_like(character)
        return like or self._other_form(character) or self._without_marks(character)

    def _same_character(self, character: str) -> str:
        """Return the digit of the same value, or another width or form of a character, or ""."""
        if character.isdecimal() and self._zero:
            return self._digit(character)
        if character in self._wide:
            return self._wide[character]
        if character.isdigit() and unicodedata.decomposition(character).startswith("<super>"):
            return ""  # an exponent
        compatible = unicodedata.normalize("NFKC", character)
        is_other = compatible != character and self._is_known(compatible)
        return compatible if is_other else ""

    def _other_form(self, letter: str) -> str:
        """Return the letter that another language of the script writes for one, or ""."""
        forms = next((forms for forms in _FORMS if letter in forms), "")
        parts = unicodedata.normalize("NFD", letter)
        if len(parts) == 2 and parts[1] in _MARK_FORMS:
            forms = unicodedata.normalize("NFC", parts[0] + _MARK_FORMS[parts[1]])
        return next((form for form in forms if form in self._characters), "")

    def _is_known(self, form: str) -> bool:
        return all(part in self._characters or part == " " for part in form)

    def _without_marks(self, letter: str) -> str:
        """Return an uncased letter without its marks, such as alef without hamza, or ""."""
        if unicodedata.category(letter) != "Lo":
            return ""
        parts = unicodedata.normalize("NFD", letter)
        bases = [part for part in parts if unicodedata.category(part) != "Mn"]
        return bases[0] if len(bases) == 1 and bases[0] in self._characters else ""

    @cached_property
    def _zero(self) -> int:
        """Return the code of the zero of which the text has most digits, 0 if it has none."""
        zeros = Counter(ord(c) - unicodedata.decimal(c) for c in self._characters if c.isdecimal())
        return max(zeros, key=lambda zero: (zeros[zero], -zero), default=0)  # of ASCII, if any

    @cached_property
    def _wide(self) -> dict[str, str]:
        """Return compatibility characters that the text has, by their usual form."""
        unusual = sorted(filter(is_unusual, self._characters))
        return {unicodedata.normalize("NFKC", character): character for character in unusual}

    @cached_property
    def _mark_of_kind(self) -> dict[str, str]:
        """Return the most frequent final mark of each kind.

        A mark of the text alone, which is none by Unicode, ends statements if no other does.
        """
        rarest_first = reversed(marks_as_typed(self._marks))
        marks = {self._kind_of(mark[0]): mark for mark in rarest_first}
        own = marks.pop("", "")
        if own and own[0] not in MARKS:
            marks.setdefault("statement", own)
        return marks

    def _kind_of(self, mark: str) -> str:
        """Return the kind of a final mark of the text, which may be a Greek one."""
        return "question" if mark == _GREEK_QUESTION_MARK else kind_of_mark(mark)


def frequent_characters(lines: Iterable[str], least: float) -> str:
    """Return the characters of a text, sorted; unusual ones if more than `least` lines have them.

    So must the usual form of an unusual one that is known: half-width digits among full-width ones.
    """
    counts = Counter(chain.from_iterable(map(set, lines)))
    unusual = [character for character in counts if is_unusual(character)]
    known = {character for character in unusual if counts[character] > least}
    rivals = {unicodedata.normalize("NFKC", character) for character in known}
    known.update(
        character
        for character, count in counts.items()
        if not is_unusual(character) and (count > least or character not in rivals)
    )
    return "".join(sorted(known))


def has_inner_space(text: str) -> bool:
    """Return whether a space is between two letters of scripts that write none there."""
    return " " in text and _without_inner_spaces(text) != text


def _without_inner_spaces(text: str) -> str:
    if text.isascii():  # as most lines are
        return text
    words = text.split(" ")
    text_so_far = words[0]
    for word in words[1:]:
        is_outer = _has_spaces(text_so_far[-1:]) or _has_spaces(word[:1])
        text_so_far += f" {word}" if is_outer else word
    return text_so_far


@lru_cache(1 << 12)
def _has_spaces(character: str) -> bool:
    """Return whether a space may be beside a character.

    It is not beside letters of scripts without spaces, nor beside marks of their width.
    """
    return not is_wide(character or " ") and (not character.isalpha() or is_spaced(character))
