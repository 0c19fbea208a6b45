"""Words that got hardly any attention are noted, in the text that a line has for them."""

from pathlib import Path

import numpy as np
import pytest
from cases.toy_text import toy_pairs

from seq2seq import Translator
from seq2seq.inference.attention_map import NOTE, notes_on_coverage

TOKENS = ["▁The", "▁red", "▁car", "▁is", "▁ol", "d.", "▁The", "▁cat", "▁is", "▁bl", "ack.", "</s>"]


def weights(attended: range, rows: int = 8) -> np.ndarray:
    """Return attention that is shared equally by some tokens and the end of the sentence."""
    values = np.full((rows, len(TOKENS)), 0.01, np.float32)
    values[:, [*attended, len(TOKENS) - 1]] = 1
    return values / values.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("attended", "noted"),
    [
        (range(11), []),
        (range(6), ["The cat is black."]),
        (range(6, 11), ["The red car is old."]),
        (range(7), ["cat is black."]),
        (range(9), []),  # a single word
        (range(1, 11), []),  # an article, which many languages lack
    ],
)
def test_runs_of_words_without_attention_are_noted(attended: range, noted: list[str]) -> None:
    notes = notes_on_coverage(TOKENS, weights(attended))
    assert notes == [NOTE + text for text in noted]
    scaled = notes_on_coverage(TOKENS, weights(attended) / 3)  # as those of a window
    assert scaled == notes


def test_without_attention_nothing_is_noted() -> None:
    assert notes_on_coverage(TOKENS, None) == []
    assert notes_on_coverage(["</s>"], np.ones((1, 1), np.float32)) == []
    assert notes_on_coverage(TOKENS, np.zeros((2, len(TOKENS)), np.float32)) == []


def test_bytes_are_noted_as_characters() -> None:
    tokens = ["▁a", "▁", "<0xC3>", "<0xA9>", "tranges", "</s>"]
    attention = np.array([[1, 0, 0, 0, 0, 0]] * 4, np.float32)
    assert notes_on_coverage(tokens, attention) == [NOTE + "étranges"]


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
def test_text_alone_has_the_same_notes(tiny_runs: dict[str, Path], decoder: str) -> None:
    """A translation of two tokens cannot attend to all words of a line."""
    translator = Translator.load(
        tiny_runs[decoder], device="cpu", overrides=["decoding.max_length=2"]
    )
    lines = toy_pairs(20, seed=1)[0]
    overrides = {"text_only": True}, {"text_only": False}
    notes = [
        [translation.notes for translation in translator.translate(lines, 1, **options)]
        for options in overrides
    ]
    assert notes[0] == notes[1]
    assert any(NOTE in note for line in notes[0] for note in line) is (decoder != "none")
