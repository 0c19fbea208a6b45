"""Characters of Unicode that the package sorts into marks."""

import unicodedata

from seq2seq.text.characters import PUNCTUATION


def test_punctuation_has_all_marks_before_chinese_letters_and_of_other_widths() -> None:
    kinds = {"Ps", "Pe", "Pi", "Pf", "Pd", "Po"}
    characters = [*map(chr, range(0x3100)), *map(chr, range(0xFE00, 0xFFF0))]
    assert set(PUNCTUATION) == {c for c in characters if unicodedata.category(c) in kinds}
