"""Words of source and target lines."""

import unicodedata

from seq2seq.text.names.words import source_words, target_words


def test_a_word_has_every_mark_of_the_basic_plane() -> None:
    marks = [c for c in map(chr, range(0x300, 0x10000)) if unicodedata.category(c)[0] == "M"]
    assert len(marks) > 1_000
    for mark in marks:
        word = f"a{mark}b"
        assert [source.text for source in source_words(f"x {word} x")] == ["x", word, "x"]
        assert [target[0] for target in target_words(f"x {word} x")] == ["x", word, "x"]
