"""Texts cut where another form of them is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.aligned_characters import cut_like


@pytest.mark.parametrize(
    ("text", "pieces", "cut"),
    [
        ("Ba\u00a0mo!  Zu ki?", ["ba mo.", "Zu ki."], ["Ba\u00a0mo!", "Zu ki?"]),
        ("\uff22a mo\uff0e Zu", ["Ba mo.", "Zu"], ["\uff22a mo\uff0e", "Zu"]),
        ("BA MO. ZU", ["Ba mo.", "Zu"], ["BA MO.", "ZU"]),
        ("a b", ["a", "", "b"], ["a", "", "b"]),
        ("abc", ["abc", "x"], ["abc", ""]),
        ("", ["a", "b"], ["", ""]),
    ],
)
def test_a_text_is_cut_where_its_form_is(text: str, pieces: list[str], cut: list[str]) -> None:
    assert cut_like(text, pieces) == cut


words = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=8)


@given(st.lists(words, min_size=1, max_size=30))
def test_pieces_of_a_text_itself_are_its_pieces(pieces: list[str]) -> None:
    text = "  ".join(pieces)
    assert cut_like(text, pieces) == pieces
    cut = cut_like(text, [piece[::-1] for piece in pieces])
    assert "".join("".join(cut).split()) == "".join(pieces)
