"""Forbidden words: an automaton over the text of hypotheses, whatever its tokens."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Vocabulary, normalized
from seq2seq.inference.search.lexical import is_letter

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_FIRST_TOKEN = 4  # ids below are PAD, UNK, BOS and EOS


class Forbidden:
    """Words and phrases that no translation contains as complete words, in any segmentation.

    A state is a node of the trie of all phrases (Aho & Corasick 1975): the longest end of the text
    with which a phrase begins. Transitions are computed when a state is first reached.
    """

    def __init__(self, vocabulary: Vocabulary, phrases: Sequence[str]) -> None:
        """Take phrases; white space counts as single spaces, and blank ones are ignored."""
        texts = [" ".join(normalized(each).replace(SPACE, " ").split()) for each in phrases]
        self._bounded = {f" {text}".encode(): is_letter(text[-1]) for text in texts if text}
        # A phrase of a script without spaces may follow any character.
        self._bounded |= {
            text.encode(): False
            for text in texts
            if text and not is_letter(text[0]) and not text[0].isascii()
        }
        nodes = {text[:n] for text in self._bounded for n in range(len(text) + 1)}
        self._nodes = sorted(nodes | {b""}, key=lambda node: (len(node), node))
        self._numbers = {node: number for number, node in enumerate(self._nodes)}
        tokens = vocabulary.tokens(range(len(vocabulary)))
        self._tokens = [
            b"" if i < _FIRST_TOKEN else _bytes_of(token, vocabulary.has_byte_fallback)
            for i, token in enumerate(tokens)
        ]
        self.start = self._numbers[self._after(b"", b" ")]
        self._after_token: dict[tuple[int, int], int] = {}
        self._never: dict[tuple[int, bool], NDArray[np.int64]] = {}

    def occurs_in(self, text: str) -> bool:
        """Return whether a text between spaces contains a phrase."""
        return self._completes(self._nodes[self.start], text.encode(), last=True)

    def after(self, state: int, token: int) -> int:
        """Return the state after a token."""
        key = state, token
        if key not in self._after_token:
            node = self._nodes[state]
            for byte in self._tokens[token]:
                node = self._after(node, bytes([byte]))
            self._after_token[key] = self._numbers[node]
        return self._after_token[key]

    def never(self, state: int, last: bool) -> NDArray[np.int64]:
        """Return the tokens [M] that a state forbids; `last` if end-of-sentence has to follow."""
        key = state, last
        if key not in self._never:
            found = [
                i
                for i in range(_FIRST_TOKEN, len(self._tokens))
                if self._completes(self._nodes[state], self._tokens[i], last)
            ]
            found += [EOS_ID] if self._ends_phrase(self._nodes[state]) else []
            self._never[key] = np.array(found, np.int64)
        return self._never[key]

    def _after(self, node: bytes, byte: bytes) -> bytes:
        ends = (end for end in _ends(node + byte) if end in self._numbers)
        return next(ends, b"")

    def _completes(self, node: bytes, token: bytes, last: bool) -> bool:
        """Return whether a phrase is complete within a token, or at its end if that is the last."""
        for place in range(len(token)):
            if self._ends_phrase(node) and not _continues(token[place:]):
                return True
            node = self._after(node, token[place : place + 1])
            if self._ends_phrase(node, bounded=False):
                return True
        return last and self._ends_phrase(node)

    def _ends_phrase(self, node: bytes, bounded: bool = True) -> bool:
        """Return whether the text ends in a phrase: one that needs a bound after it, or not."""
        found = {self._bounded.get(end) for end in _ends(node)}
        return False in found or (bounded and True in found)


def _ends(text: bytes) -> Iterator[bytes]:
    """Yield the ends of a text, longest first; a word may start after punctuation as after a space.

    Bytes beyond ASCII count as parts of words.
    """
    for start in range(len(text)):
        yield text[start:]
        if text[start] < 128 and not text[start : start + 1].isalnum():
            yield b" " + text[start + 1 :]


def _bytes_of(token: str, with_bytes: bool) -> bytes:
    found = _BYTE.fullmatch(token) if with_bytes else None
    return bytes([int(found[1], 16)]) if found else token.replace(SPACE, " ").encode()


def _continues(rest: bytes) -> bool:
    """Return whether text that follows a word continues it; incomplete characters do."""
    try:
        character = rest[:4].decode(errors="ignore")[:1]
    except UnicodeDecodeError:
        return True
    return character == "" or unicodedata.category(character)[0] in "LMN"
