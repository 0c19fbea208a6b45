"""Forbidden words: an automaton over the text of hypotheses, whatever its tokens."""

import codecs
import re
import unicodedata
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import (
    EOS_ID,
    FIRST_ID,
    UNK_ID,
    UNKNOWN,
    Vocabulary,
    normalized,
)
from seq2seq.inference.search.lexical import BYTE_TOKEN, is_letter
from seq2seq.names.words import PLACEHOLDERS
from seq2seq.runtime.errors import UserError

MAX_CHARACTERS = 200  # per phrase; search visits all suffixes of a state
_ROOT = 0
_AS_SPACE = re.compile(rf"[\s\0{SPACE}]")  # characters that may be printed as a space
_NAME = re.compile(f"[{''.join(PLACEHOLDERS)}]")  # a space separates names from letters before
_HIGHEST = "\U0010ffff"  # sorts behind all characters of text
_LETTERS_END = 0x40000  # beyond are only variation selectors of ideographs, and private use
_NO_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # printed for bytes that are no character


class Forbidden:
    """Words and phrases that no translation contains as complete words, in any segmentation.

    A state is a node of the trie of all phrases (Aho & Corasick 1975), the longest suffix of the
    text that is a prefix of a phrase, and the first bytes of a character that is not complete.
    """

    def __init__(self, vocabulary: Vocabulary, phrases: Sequence[str]) -> None:
        """Take phrases; white space counts as single spaces, and blank ones are ignored.

        Raises UserError for a phrase of more than MAX_CHARACTERS.
        """
        self._trie = _Trie(_bounded(phrases))
        self._are_words = not vocabulary.has_byte_fallback  # every token is a complete word
        tokens = vocabulary.tokens(range(len(vocabulary)))
        self._bytes = {} if self._are_words else _partial_characters(tokens)  # id -> byte
        self._tokens = [
            "" if i < FIRST_ID or i in self._bytes else _printed(token, not self._are_words)
            for i, token in enumerate(tokens)
        ]
        self._tokens[UNK_ID] = f" {UNKNOWN}"
        texts = (i for i in range(FIRST_ID, len(self._tokens)) if i not in self._bytes)
        self._ids = sorted(texts, key=self._tokens.__getitem__)
        self._sorted = [self._tokens[i] for i in self._ids]
        self.start = self._trie.after(_ROOT, " ")
        self._after_token: dict[tuple[int, int], int] = {}
        self._forbidden: dict[tuple[int, bool], NDArray[np.int64]] = {}

    def occurs_in(self, text: str) -> bool:
        """Return whether a text between spaces contains a phrase."""
        return self._trie.completes(self.start, _AS_SPACE.sub(" ", text), is_last=True)

    def after(self, state: int, token: int) -> int:
        """Return the state after a token."""
        key = state, token
        if key not in self._after_token:
            node, start = self._node(state)
            text, undecoded = self._decoded(start, token)
            self._after_token[key] = self._state(self._trie.after(node, text), undecoded)
        return self._after_token[key]

    def forbidden_tokens(self, state: int, is_last: bool) -> NDArray[np.int64]:
        """Return the tokens [M] that a state forbids; `is_last` if end-of-sentence must follow."""
        key = state, is_last or self._are_words
        if key not in self._forbidden:
            node, start = self._node(state)
            tokens = self._completing_bytes(node, start, key[1]) | (
                self._completing_after(node, key[1]) if start else self._completing(node, key[1])
            )
            self._forbidden[key] = np.array(sorted(tokens), np.int64)
        return self._forbidden[key]

    def _state(self, node: int, start: bytes) -> int:
        return int.from_bytes(start) * len(self._trie.children) + node

    def _node(self, state: int) -> tuple[int, bytes]:
        """Return the node of a state and the first bytes of an incomplete character."""
        number, node = divmod(state, len(self._trie.children))
        return node, number.to_bytes((number.bit_length() + 7) // 8)

    def _decoded(self, start: bytes, token: int) -> tuple[str, bytes]:
        """Return the characters that a token adds, and the bytes of an incomplete one after it."""
        if token in self._bytes:
            return _characters(start + bytes([self._bytes[token]]))
        return (_NO_CHARACTER if start else "") + self._tokens[token], b""

    def _completing_bytes(self, node: int, start: bytes, is_last: bool) -> set[int]:
        """Return the byte tokens that complete a phrase, or end its word, or inevitably do so."""
        if not start and not self._trie.completes(node, _NO_CHARACTER, is_last=True):
            return set()  # a single byte is no character
        return {i for i in self._bytes if self._byte_completes(node, start, i, is_last)}

    def _byte_completes(self, node: int, start: bytes, token: int, is_last: bool) -> bool:
        text, undecoded = self._decoded(start, token)
        if not undecoded:
            return self._trie.completes(node, text, is_last)
        after = self._trie.after(node, text)
        return (
            self._trie.completes(node, text, is_last=False)
            or (is_last and self._trie.completes(after, _NO_CHARACTER, is_last))
            or (self._trie.ends_word[after] and not _may_continue(undecoded))
        )

    def _completing_after(self, node: int, is_last: bool) -> set[int]:
        """Return the other tokens that do so after bytes that they leave without a character."""
        if self._trie.completes(node, _NO_CHARACTER, is_last=False):
            return {EOS_ID, *self._ids}
        tokens = self._completing(self._trie.after(node, _NO_CHARACTER), is_last)
        return tokens.difference(self._bytes)

    def _completing(self, node: int, is_last: bool) -> set[int]:
        """Return the tokens of text that complete a phrase, or end its word, after that of a node.

        A phrase starts within the token, or with a suffix of the text: only tokens that continue a
        phrase along the trie are visited for each suffix.
        """
        if node == _ROOT:
            return {i for i in self._ids if self._trie.completes(_ROOT, self._tokens[i], is_last)}
        tokens = set(self._ending_word if self._trie.ends_word[node] else ())
        for suffix in self._trie.suffixes(node):
            if (listed := self._forbidden.get((suffix, is_last))) is not None:
                return tokens.union(listed.tolist())
            tokens.update(self._continuing(suffix, is_last))
        return tokens.union(self.forbidden_tokens(_ROOT, is_last).tolist())

    def _continuing(self, state: int, is_last: bool) -> Iterator[int]:
        """Yield the tokens that complete a phrase which starts with the text of a node."""
        pending = [(state, "", 0, len(self._sorted))]
        while pending:
            node, start, low, high = pending.pop()  # tokens [low, high) begin with `start`
            if start and self._trie.ends[node]:
                yield from self._ids[low:high]
                continue
            if start and self._trie.ends_word[node]:
                for i in self._ids[low:high]:
                    remainder = self._tokens[i][len(start) :]
                    if not _is_of_word(remainder[0]) if remainder else is_last:
                        yield i
            for character, child in self._trie.children[node].items():
                longer = start + character
                first = bisect_left(self._sorted, longer, low, high)
                end = bisect_left(self._sorted, longer + _HIGHEST, first, high)
                if first < end:
                    pending.append((child, longer, first, end))

    @cached_property
    def _ending_word(self) -> list[int]:
        """Tokens that end the word before them, end-of-sentence included.

        None in a vocabulary of words, where only a prefix can end in a phrase.
        """
        if self._are_words:
            return []
        texts = zip(self._ids, self._sorted, strict=True)
        return [EOS_ID, *(i for i, text in texts if text and not _is_of_word(text[0]))]


class _Trie:
    """Trie of the characters of phrases, with the suffix links of Aho & Corasick (1975)."""

    def __init__(self, phrases: Mapping[str, bool]) -> None:
        """Take phrases, and whether each is one only at the end of a word."""
        self.children: list[dict[str, int]] = [{}]  # character -> node
        self.ends, self.ends_word = [False], [False]  # a suffix is a phrase, or one if a word ends
        self._suffix = [_ROOT]  # longest suffix that is a node, but for the node itself
        for phrase, at_word_end in phrases.items():
            node = self._insert(phrase)
            (self.ends_word if at_word_end else self.ends)[node] = True
        self._link()

    def _insert(self, phrase: str) -> int:
        node = _ROOT
        for character in phrase:
            if character not in self.children[node]:
                self.children[node][character] = len(self.children)
                self.children.append({})
                self.ends.append(False)
                self.ends_word.append(False)
                self._suffix.append(_ROOT)
            node = self.children[node][character]
        return node

    def _link(self) -> None:
        """Set the suffix of each node, shorter ones first, and what the node has from it."""
        pending = deque(self.children[_ROOT].values())
        for character, node in self.children[_ROOT].items():
            if character != " " and not _is_of_word(character):
                self._suffix[node] = self.children[_ROOT].get(" ", _ROOT)
        while pending:
            node = pending.popleft()
            suffix = self._suffix[node]
            self.ends[node] |= self.ends[suffix]
            self.ends_word[node] |= self.ends_word[suffix]
            for character, child in self.children[node].items():
                self._suffix[child] = self._after(suffix, character)
                pending.append(child)

    def after(self, node: int, text: str) -> int:
        """Return the node of the longest suffix after more text."""
        for character in text:
            node = self._after(node, character)
        return node

    def _after(self, node: int, character: str) -> int:
        """Return the node after a character; a word may start after any that is not of a word."""
        while node != _ROOT and character not in self.children[node]:
            node = self._suffix[node]
        children = self.children[node]
        if character not in children and not _is_of_word(character):
            character = " "
        return children.get(character, _ROOT)

    def suffixes(self, node: int) -> Iterator[int]:
        """Yield a node and those of its suffixes, longest first, without the root."""
        while node != _ROOT:
            yield node
            node = self._suffix[node]

    def completes(self, node: int, text: str, is_last: bool) -> bool:
        """Return whether a phrase is complete within more text, or at its end if that is last."""
        for character in text:
            if self.ends_word[node] and not _is_of_word(character):
                return True
            node = self._after(node, character)
            if self.ends[node]:
                return True
        return is_last and self.ends_word[node]


def _bounded(phrases: Sequence[str]) -> dict[str, bool]:
    """Return the phrases with the space before them, and whether each is one only at a word's end.

    A phrase of a script without spaces may follow any character, others follow a space.
    """
    bounded: dict[str, bool] = {}
    for number, phrase in enumerate(phrases, start=1):
        text = checked_phrase(phrase, f"forbidden phrase {number}")
        if not text:
            continue
        anywhere = not is_letter(text[0]) and not text[0].isascii()
        for start in (" ", "") if anywhere else (" ",):
            bounded[f"{start}{text}"] = is_letter(text[-1])
    return bounded


def checked_phrase(phrase: str, place: str) -> str:
    """Return the text of a phrase with single spaces; raises UserError if it is too long."""
    text = " ".join(normalized(phrase).replace(SPACE, " ").split())
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"{place}: too long ({len(text):,} characters); use at most {MAX_CHARACTERS}"
        )
    return text


def _partial_characters(tokens: Sequence[str]) -> dict[int, int]:
    """Return the byte tokens that are parts of characters, by their ids."""
    matches = {i: BYTE_TOKEN.fullmatch(token) for i, token in enumerate(tokens)}
    values = {i: int(match[1], 16) for i, match in matches.items() if match}
    return {i: byte for i, byte in values.items() if byte >= 128}


def _printed(token: str, with_bytes: bool) -> str:
    """Return the text of a token, with spaces for characters that may be printed as one."""
    match = BYTE_TOKEN.fullmatch(token) if with_bytes else None
    text = chr(int(match[1], 16)) if match else _NAME.sub(r" \g<0>", token)
    return _AS_SPACE.sub(" ", text)


@cache
def _characters(text: bytes) -> tuple[str, bytes]:
    """Return the characters of some bytes, and those of an incomplete one at their end."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return _AS_SPACE.sub(" ", decoder.decode(text)), decoder.getstate()[0]


def _is_of_word(character: str) -> bool:
    """Return whether a character, or the name in its place, is a part of the word beside it."""
    return unicodedata.category(character)[0] in "LMN" or character in PLACEHOLDERS


@cache
def _may_continue(start: bytes) -> bool:
    """Return whether a character that begins with these bytes may be a part of a word."""
    length = 2 if start[0] < 0xE0 else 3 if start[0] < 0xF0 else 4
    code = start[0] & (0x7F >> length)
    for byte in start[1:]:
        code = code << 6 | byte & 0x3F
    bits = 6 * (length - len(start))
    return any(
        _is_of_word(chr(n)) for n in range(code << bits, min(code + 1 << bits, _LETTERS_END))
    )
