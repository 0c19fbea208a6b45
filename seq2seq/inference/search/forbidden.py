"""Forbidden words: states of the text of hypotheses, whatever its tokens."""

import codecs
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.vocabulary.vocabulary import EOS_ID, FIRST_ID, UNK_ID, UNKNOWN, Vocabulary
from seq2seq.inference.search.lexical import byte_of, check_length
from seq2seq.text.characters import SPACE, is_letter, normalized
from seq2seq.text.names.words import PLACEHOLDERS

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
        self._phrases = _Phrases(phrases)
        self._are_words = not vocabulary.has_byte_fallback  # every token is a complete word
        self._bytes = dict[int, int]()
        self._tokens = list[str]()
        for i, token in enumerate(vocabulary.tokens(range(len(vocabulary)))):
            byte = None if self._are_words else byte_of(token)
            text = _NAME.sub(r" \g<0>", token) if byte is None else chr(byte)
            if byte is not None and byte >= 128:  # a part of a character
                self._bytes[i] = byte
                text = ""
            self._tokens.append("" if i < FIRST_ID else _AS_SPACE.sub(" ", text))
        self._tokens[UNK_ID] = f" {UNKNOWN}"
        texts = (i for i in range(FIRST_ID, len(self._tokens)) if i not in self._bytes)
        self._ids = sorted(texts, key=self._tokens.__getitem__)
        self._sorted = [self._tokens[i] for i in self._ids]
        self.after = cache(self._after)
        self.forbidden_tokens = cache(self._forbidden_tokens)
        self.start: State = self._phrases.after("", " "), b""

    def occurs_in(self, text: str) -> bool:
        """Return whether a text between spaces contains a phrase."""
        return self._phrases.complete(self.start[0], _AS_SPACE.sub(" ", text), is_last=True)

    def _after(self, state: State, token: int) -> State:
        """Return the state after a token."""
        earlier_text, start = state
        text, undecoded = self._decoded(start, token)
        return self._phrases.after(earlier_text, text), undecoded

    def _forbidden_tokens(self, state: State, is_last: bool) -> NDArray[np.int64]:
        """Return the tokens [M] that a state forbids; `is_last` if end-of-sentence must follow."""
        earlier_text, start = state
        is_last = is_last or self._are_words
        undecoded = _NO_CHARACTER if start else ""  # printed before a token that is no byte
        if self._phrases.complete(earlier_text, undecoded, is_last=False):
            tokens = {EOS_ID, *self._ids}
        else:
            tokens = self._completing(self._phrases.after(earlier_text, undecoded), is_last)
        if start or self._phrases.complete(earlier_text, _NO_CHARACTER, is_last=True):
            tokens |= {
                i for i in self._bytes if self._byte_completes(earlier_text, start, i, is_last)
            }
        return np.array(sorted(tokens), np.int64)

    def _decoded(self, start: bytes, token: int) -> tuple[str, bytes]:
        """Return the characters that a token adds, and the bytes of an incomplete one after it."""
        if token in self._bytes:
            return _characters(start + bytes([self._bytes[token]]))
        return (_NO_CHARACTER if start else "") + self._tokens[token], b""

    def _byte_completes(self, earlier_text: str, start: bytes, token: int, is_last: bool) -> bool:
        """Return whether a byte completes a phrase, or ends its word, or inevitably does so."""
        text, undecoded = self._decoded(start, token)
        if not undecoded:
            return self._phrases.complete(earlier_text, text, is_last)
        text_so_far = self._phrases.after(earlier_text, text)
        return (
            self._phrases.complete(earlier_text, text, is_last=False)
            or (is_last and self._phrases.complete(text_so_far, _NO_CHARACTER, is_last))
            or (self._phrases.ends_word(text_so_far) and not _may_continue(undecoded))
        )

    def _completing(self, earlier_text: str, is_last: bool) -> set[int]:
        """Return the tokens of text that complete a phrase, or end its word, after others.

        A phrase starts within the token, or with a suffix of the text.
        """
        if not earlier_text:
            return {i for i in self._ids if self._phrases.complete("", self._tokens[i], is_last)}
        tokens = set(self._ending_word if self._phrases.ends_word(earlier_text) else ())
        for suffix in self._phrases.suffixes(earlier_text):
            for remainder, at_word_end in self._phrases.continuing(suffix):
                first = bisect_left(self._sorted, remainder)
                end = bisect_left(self._sorted, remainder + _HIGHEST, first)
                for i in self._ids[first:end]:
                    following = self._tokens[i][len(remainder) :][:1]
                    if not at_word_end or (not is_of_word(following) if following else is_last):
                        tokens.add(i)
        return tokens.union(self.forbidden_tokens(("", b""), is_last).tolist()).difference(
            self._bytes
        )

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

    def __init__(self, phrases: Sequence[str]) -> None:
        """Take phrases; one of a script without spaces may follow any character, others a space."""
        self._phrases: dict[str, bool] = {}  # True: only at the end of a word
        for number, phrase in enumerate(phrases, start=1):
            text = checked_phrase(phrase, f"forbidden phrase {number}")
            if not text:
                continue
            anywhere = not is_letter(text[0]) and not text[0].isascii()
            for start in (" ", "") if anywhere else (" ",):
                self._phrases[f"{start}{text}"] = is_letter(text[-1])
        self._sorted = sorted(self._phrases)
        self.ends_word = cache(self._ends_word)

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

    def _ends_word(self, state: str, at_word_end: bool = True) -> bool:
        """Return whether a suffix is a phrase, if its word ends."""
        return any(self._phrases.get(text) == at_word_end for text in self.suffixes(state))

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


def checked_phrase(phrase: str, place: str) -> str:
    """Return the text of a phrase with single spaces; raises UserError if it is too long."""
    text = " ".join(normalized(phrase).replace(SPACE, " ").split())
    check_length(text, place, MAX_CHARACTERS)
    return text


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
