"""Blank lines are defined by their visible characters."""

import sys
import unicodedata

import pytest

from seq2seq.text.characters import is_blank

INVISIBLE = ("\u200b", "\xad", "\ufeff", "\u2060", "\u3164", "\ufe0f", "\u2800", "\u202e")


@pytest.mark.parametrize("line", ["", " ", "\t \u3000", *INVISIBLE, "".join(INVISIBLE), "\u2581"])
def test_a_line_without_a_visible_character_is_blank(line: str) -> None:
    assert is_blank(line)
    assert not is_blank(f"{line}.{line}")


@pytest.mark.thorough
def test_blank_agrees_with_unicode_properties() -> None:
    regex = pytest.importorskip("regex")
    ignorable = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{White_Space}\x1c-\x1f]")
    further_blanks = {"\u2581", "\u2800", "\ufff9", "\ufffa", "\ufffb"}  # explained in lines.py
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        assert is_blank(char) == bool(ignorable.match(char) or char in further_blanks), hex(number)


def test_every_letter_digit_and_punctuation_mark_is_visible() -> None:
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        filler = "FILLER" in unicodedata.name(char, "")
        if unicodedata.category(char)[0] in "LNP" and not filler:
            assert not is_blank(char), hex(number)
