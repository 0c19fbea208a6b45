"""Forbidden words: an automaton over the text of hypotheses, whatever its tokens."""

import unicodedata
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import EOS_ID, FIRST_ID, Vocabulary, normalized
from seq2seq.inference.search.lexical import BYTE_TOKEN, is_letter
from seq2seq.runtime.errors import UserError

MAX_CHARACTERS = 200  # per phrase; search visits all suffixes of a state
_ROOT = 0
# A word may start after ASCII punctuation as after a space; bytes beyond ASCII are parts of words.
_AS_START = bytes(byte if byte >= 128 or chr(byte).isalnum() else ord(" ") for byte in range(256))


class Forbidden:
    """Words and phrases that no translation contains as complete words, in any segmentation.

    A state is a node of the trie of all phrases (Aho & Corasick 1975): the longest suffix of the
    text that is a prefix of a phrase.
    """

    def __init__(self, vocabulary: Vocabulary, phrases: Sequence[str]) -> None:
        """Take phrases; white space counts as single spaces, and blank ones are ignored.

        Raises UserError for a phrase of more than MAX_CHARACTERS.
        """
        self._trie = _Trie(_bounded(phrases))
        self._tokens = [
            b"" if i < FIRST_ID else _bytes_of(token, vocabulary.has_byte_fallback)
            for i, token in enumerate(vocabulary.tokens(range(len(vocabulary))))
        ]
        self._ids = sorted(range(FIRST_ID, len(self._tokens)), key=self._tokens.__getitem__)
        self._sorted = [self._tokens[i] for i in self._ids]
        self.start = self._trie.after(_ROOT, b" ")
        self._after_token: dict[tuple[int, int], int] = {}
        self._forbidden: dict[tuple[int, bool], NDArray[np.int64]] = {}

    def occurs_in(self, text: str) -> bool:
        """Return whether a text between spaces contains a phrase."""
        return self._trie.completes(self.start, text.encode(), is_last=True)

    def after(self, state: int, token: int) -> int:
        """Return the state after a token."""
        key = state, token
        if key not in self._after_token:
            self._after_token[key] = self._trie.after(state, self._tokens[token])
        return self._after_token[key]

    def forbidden_tokens(self, state: int, is_last: bool) -> NDArray[np.int64]:
        """Return the tokens [M] that a state forbids; `is_last` if end-of-sentence must follow."""
        key = state, is_last
        if key not in self._forbidden:
            self._forbidden[key] = np.array(sorted(self._completing(state, is_last)), np.int64)
        return self._forbidden[key]

    def _completing(self, state: int, is_last: bool) -> set[int]:
        """Return the tokens that complete a phrase, or end its word, after the text of a state.

        A phrase starts within the token, or with a suffix of the text: only tokens that continue a
        phrase along the trie are visited for each suffix.
        """
        if state == _ROOT:
            return {i for i in self._ids if self._trie.completes(_ROOT, self._tokens[i], is_last)}
        found = set(self.forbidden_tokens(_ROOT, is_last).tolist())
        if self._trie.ends_word[state]:
            found.update(self._ending_word)
        for node in self._trie.suffixes(state):
            found.update(self._continuing(node, is_last))
        return found

    def _continuing(self, state: int, is_last: bool) -> Iterator[int]:
        """Yield the tokens that complete a phrase which starts with the text of a node."""
        pending = [(state, b"", 0, len(self._sorted))]
        while pending:
            node, start, low, high = pending.pop()  # tokens [low, high) begin with `start`
            if start and self._trie.ends[node]:
                yield from self._ids[low:high]
                continue
            if start and self._trie.ends_word[node]:
                for i in self._ids[low:high]:
                    rest = self._tokens[i][len(start) :]
                    if not _continues(rest) if rest else is_last:
                        yield i
            for byte, child in self._trie.children[node].items():
                first = bisect_left(self._sorted, start + bytes([byte]), low, high)
                end = bisect_left(self._sorted, start + bytes([byte + 1]), first, high)
                if first < end:
                    pending.append((child, start + bytes([byte]), first, end))

    @cached_property
    def _ending_word(self) -> list[int]:
        """Tokens that end the word before them, end-of-sentence included."""
        tokens = [i for i in self._ids if self._tokens[i] and not _continues(self._tokens[i])]
        return [EOS_ID, *tokens]


class _Trie:
    """Trie of phrases as bytes, with the suffix links of Aho & Corasick (1975)."""

    def __init__(self, phrases: Mapping[bytes, bool]) -> None:
        """Take phrases, and whether each is one only at the end of a word."""
        self.children: list[dict[int, int]] = [{}]  # byte -> node
        self.ends, self.ends_word = [False], [False]  # a suffix is a phrase, or one if a word ends
        self._suffix = [_ROOT]  # longest suffix that is a node, but for the node itself
        for phrase, at_word_end in phrases.items():
            node = self._insert(phrase)
            (self.ends_word if at_word_end else self.ends)[node] = True
        self._link()

    def _insert(self, phrase: bytes) -> int:
        node = _ROOT
        for byte in phrase:
            if byte not in self.children[node]:
                self.children[node][byte] = len(self.children)
                self.children.append({})
                self.ends.append(False)
                self.ends_word.append(False)
                self._suffix.append(_ROOT)
            node = self.children[node][byte]
        return node

    def _link(self) -> None:
        """Set the suffix of each node, shorter ones first, and what the node has from it."""
        pending = deque(self.children[_ROOT].values())
        while pending:
            node = pending.popleft()
            suffix = self._suffix[node]
            self.ends[node] |= self.ends[suffix]
            self.ends_word[node] |= self.ends_word[suffix]
            for byte, child in self.children[node].items():
                self._suffix[child] = self._after(suffix, byte)
                pending.append(child)

    def after(self, node: int, text: bytes) -> int:
        """Return the node of the longest suffix after more text."""
        for byte in text:
            node = self._after(node, byte)
        return node

    def _after(self, node: int, byte: int) -> int:
        while node != _ROOT and byte not in self.children[node]:
            node = self._suffix[node]
        return self.children[node].get(_AS_START[byte] if node == _ROOT else byte, _ROOT)

    def suffixes(self, node: int) -> Iterator[int]:
        """Yield a node and those of its suffixes, longest first, without the root."""
        while node != _ROOT:
            yield node
            node = self._suffix[node]

    def completes(self, node: int, text: bytes, is_last: bool) -> bool:
        """Return whether a phrase is complete within more text, or at its end if that is last."""
        for place, byte in enumerate(text):
            if self.ends_word[node] and not _continues(text[place:]):
                return True
            node = self._after(node, byte)
            if self.ends[node]:
                return True
        return is_last and self.ends_word[node]


def _bounded(phrases: Sequence[str]) -> dict[bytes, bool]:
    """Return the phrases with the space before them, and whether each is one only at a word's end.

    A phrase of a script without spaces may follow any character, others follow a space.
    """
    found: dict[bytes, bool] = {}
    for number, phrase in enumerate(phrases, start=1):
        text = checked_phrase(phrase, f"forbidden phrase {number}")
        if not text:
            continue
        anywhere = not is_letter(text[0]) and not text[0].isascii()
        for start in (" ", "") if anywhere else (" ",):
            found[f"{start}{text}".encode()] = is_letter(text[-1])
    return found


def checked_phrase(phrase: str, place: str) -> str:
    """Return the text of a phrase with single spaces; raises UserError if it is too long."""
    text = " ".join(normalized(phrase).replace(SPACE, " ").split())
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"{place}: too long ({len(text):,} characters); use at most {MAX_CHARACTERS}"
        )
    return text


def _bytes_of(token: str, with_bytes: bool) -> bytes:
    found = BYTE_TOKEN.fullmatch(token) if with_bytes else None
    return bytes([int(found[1], 16)]) if found else token.replace(SPACE, " ").encode()


def _continues(rest: bytes) -> bool:
    """Return whether text that follows a word continues it, as a byte of a character may."""
    character = rest[:4].decode(errors="surrogateescape")[0]
    category = unicodedata.category(character)
    return category[0] in "LMN" or category == "Cs"  # a surrogate is a byte that does not decode
