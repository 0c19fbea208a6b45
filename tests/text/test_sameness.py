"""Sentences that translation reads as one have one key."""

import pytest

from seq2seq.text.sameness import sentence_key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("The  cat\t", "the cat"),
        ("\uff21\uff22\uff23\uff11\uff12", "abc12"),
        ("ខ្ញុំ\u200bទៅ", "ខ្ញុំទៅ"),
        ("co\u00adop", "coop"),
        ("STRASSE", "straße"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
        ("I\u0307stanbul", "istanbul"),
        ("\u0130stanbul", "istanbul"),
        ("cafe\u0301", "café"),
        ("a\u00a0b\u3000c", "a b c"),
        ("ﬁn", "fin"),
        ("\ufeffa", "a"),
        ("It\u2019s late.", "It's late."),
        ("\u201eJa\u201c, sagt er", '"Ja", sagt er'),
        ("\u00abOui\u00bb", "\u2018Oui\u2019"),
        ("well \u2014 no", "well - no"),
        ("\u00c7a va\u00a0?", "\u00c7a va ?"),
        ("\u00c7a va ?", "\u00c7a va?"),
        ("yes , it is .", "Yes, it is."),
        ("it 's", "it's"),
        ("( a )", "(a)"),
    ],
)
def test_equal_sentences(left: str, right: str) -> None:
    assert sentence_key(left) == sentence_key(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a b", "ab"),
        ("é", "e"),
        ("a.", "a"),
        ("1", "2"),
        ("we'll", "well"),
        ("\u0915\u0940 \u0915", "\u0915\u0940\u0915"),
    ],
)
def test_different_sentences(left: str, right: str) -> None:
    assert sentence_key(left) != sentence_key(right)
