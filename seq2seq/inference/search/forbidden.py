"""Forbidden words: states of the text of hypotheses, whatever its tokens."""

import codecs
import re
import unicodedata
from bisect import bisect_left, bisect_right
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
_AS_SPACE = re.compile(rf"[\s\0{SPACE}]")  # characters that may be printed as a space
_NAME = re.compile(f"[{''.join(PLACEHOLDERS)}]")  # a space separates names from letters before
_HIGHEST = "\U0010ffff"  # sorts behind all characters of text
_LETTERS_END = 0x40000  # beyond are only variation selectors of ideographs, and private use
_NO_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # printed for bytes that are no character


State = tuple[str, bytes]  # longest suffix that begins a phrase, bytes of a partial character


class Forbidden:
    """Words and phrases that no translation contains as complete words, in any segmentation."""

    def __init__(self, vocabulary: Vocabulary, phrases: Sequence[str]) -> None:
        """Take phrases; white space counts as single spaces, and blank ones are ignored.

        Raises UserError for a phrase of more than MAX_CHARACTERS.
        """
        self._phrases = _Phrases(_bounded(phrases))
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
        self._states: list[State] = [("", b"")]
        self._numbers: dict[State, int] = {("", b""): 0}
        self._after_token: dict[tuple[int, int], int] = {}
        self._forbidden: dict[tuple[int, bool], NDArray[np.int64]] = {}
        self.start = self._number(self._phrases.after("", " "), b"")

    def occurs_in(self, text: str) -> bool:
        """Return whether a text between spaces contains a phrase."""
        return self._phrases.complete(
            self._states[self.start][0], _AS_SPACE.sub(" ", text), is_last=True
        )

    def after(self, state: int, token: int) -> int:
        """Return the number of the state after a token."""
        key = state, token
        if key not in self._after_token:
            before, start = self._states[state]
            text, undecoded = self._decoded(start, token)
            self._after_token[key] = self._number(self._phrases.after(before, text), undecoded)
        return self._after_token[key]

    def _number(self, text: str, start: bytes) -> int:
        state = text, start
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
        return self._numbers[state]

    def forbidden_tokens(self, state: int, is_last: bool) -> NDArray[np.int64]:
        """Return the tokens [M] that a state forbids; `is_last` if end-of-sentence must follow."""
        key = state, is_last or self._are_words
        if key not in self._forbidden:
            (text, start), is_last = self._states[state], key[1]
            tokens = self._completing_bytes(text, start, is_last) | (
                self._completing_after(text, is_last) if start else self._completing(text, is_last)
            )
            self._forbidden[key] = np.array(sorted(tokens), np.int64)
        return self._forbidden[key]

    def _decoded(self, start: bytes, token: int) -> tuple[str, bytes]:
        """Return the characters that a token adds, and the bytes of an incomplete one after it."""
        if token in self._bytes:
            return _characters(start + bytes([self._bytes[token]]))
        return (_NO_CHARACTER if start else "") + self._tokens[token], b""

    def _completing_bytes(self, before: str, start: bytes, is_last: bool) -> set[int]:
        """Return the byte tokens that complete a phrase, or end its word, or inevitably do so."""
        if not start and not self._phrases.complete(before, _NO_CHARACTER, is_last=True):
            return set()  # a single byte is no character
        return {i for i in self._bytes if self._byte_completes(before, start, i, is_last)}

    def _byte_completes(self, before: str, start: bytes, token: int, is_last: bool) -> bool:
        text, undecoded = self._decoded(start, token)
        if not undecoded:
            return self._phrases.complete(before, text, is_last)
        after = self._phrases.after(before, text)
        return (
            self._phrases.complete(before, text, is_last=False)
            or (is_last and self._phrases.complete(after, _NO_CHARACTER, is_last))
            or (self._phrases.ends_word(after) and not _may_continue(undecoded))
        )

    def _completing_after(self, before: str, is_last: bool) -> set[int]:
        """Return the other tokens that do so after bytes that they leave without a character."""
        if self._phrases.complete(before, _NO_CHARACTER, is_last=False):
            return {EOS_ID, *self._ids}
        tokens = self._completing(self._phrases.after(before, _NO_CHARACTER), is_last)
        return tokens.difference(self._bytes)

    def _completing(self, before: str, is_last: bool) -> set[int]:
        """Return the tokens of text that complete a phrase, or end its word, after others.

        A phrase starts within the token, or with a suffix of the text.
        """
        if not before:
            return {i for i in self._ids if self._phrases.complete("", self._tokens[i], is_last)}
        tokens = set(self._ending_word if self._phrases.ends_word(before) else ())
        for suffix in self._phrases.suffixes(before):
            for remainder, at_word_end in self._phrases.continuing(suffix):
                first = bisect_left(self._sorted, remainder)
                end = bisect_left(self._sorted, remainder + _HIGHEST, first)
                for i in self._ids[first:end]:
                    following = self._tokens[i][len(remainder) :][:1]
                    if not at_word_end or (not is_of_word(following) if following else is_last):
                        tokens.add(i)
        return tokens.union(self.forbidden_tokens(0, is_last).tolist())

    @cached_property
    def _ending_word(self) -> list[int]:
        """Tokens that end the word before them, end-of-sentence included.

        None in a vocabulary of words, where only a prefix can end in a phrase.
        """
        if self._are_words:
            return []
        texts = zip(self._ids, self._sorted, strict=True)
        return [EOS_ID, *(i for i, text in texts if text and not is_of_word(text[0]))]


class _Phrases:
    """Phrases as strings, and states: the longest suffix of a text with which a phrase begins."""

    def __init__(self, phrases: Mapping[str, bool]) -> None:
        """Take phrases, and whether each is one only at the end of a word."""
        self._phrases, self._sorted = phrases, sorted(phrases)
        self._ends: dict[tuple[str, bool], bool] = {}

    def suffixes(self, text: str) -> Iterator[str]:
        """Yield the suffixes of a text with which a phrase begins, longest first.

        A word may start after any character that is not of a word, as after a space.
        """
        for place, character in enumerate(text):
            if self._begins(text[place:]):
                yield text[place:]
            spaced = " " + text[place + 1 :]
            if character != " " and not is_of_word(character) and self._begins(spaced):
                yield spaced

    def _begins(self, text: str) -> bool:
        place = bisect_left(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)

    def after(self, state: str, text: str) -> str:
        """Return the state after more text."""
        for character in text:
            state = next(self.suffixes(state + character), "")
        return state

    def ends_word(self, state: str, at_word_end: bool = True) -> bool:
        """Return whether a suffix is a phrase, if its word ends."""
        key = state, at_word_end
        if key not in self._ends:
            suffixes = self.suffixes(state)
            self._ends[key] = any(self._phrases.get(text) == at_word_end for text in suffixes)
        return self._ends[key]

    def complete(self, state: str, text: str, is_last: bool) -> bool:
        """Return whether a phrase is complete within more text, or at its end if that is last."""
        for character in text:
            if self.ends_word(state) and not is_of_word(character):
                return True
            state = self.after(state, character)
            if self.ends_word(state, at_word_end=False):
                return True
        return is_last and self.ends_word(state)

    def continuing(self, start: str) -> Iterator[tuple[str, bool]]:
        """Yield what is missing of each phrase that begins so, and whether its word must end."""
        for phrase in self._sorted[bisect_right(self._sorted, start) :]:
            if not phrase.startswith(start):
                return
            yield phrase[len(start) :], self._phrases[phrase]


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


def is_of_word(character: str) -> bool:
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
    return any(is_of_word(chr(n)) for n in range(code << bits, min(code + 1 << bits, _LETTERS_END)))
