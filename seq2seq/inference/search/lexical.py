"""Lexical constraints: phrases that a translation must contain (Post & Vilar 2018)."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import UNK_ID, Ids, Vocabulary, normalized
from seq2seq.runtime.errors import UserError

MAX_TOKENS = 200  # in all phrases of one line; search keeps a bank of hypotheses for each number
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_ANCHOR = "\u3002"  # a text before a phrase of a script without spaces
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


class PhraseProgress(NamedTuple):
    """Occurrences of the phrases in a hypothesis so far."""

    missing: tuple[int, ...]  # occurrences that each phrase still needs
    matched: tuple[int, ...]  # tokens of each phrase at the end of the hypothesis
    closed: bool = False  # a missing phrase has just ended in a letter: its word may not continue


class Lexical(NamedTuple):
    """Phrases, as tokens, that a hypothesis must contain, and how often.

    Occurrences of one phrase do not overlap. `met` counts tokens: of complete occurrences, and of
    the longest incomplete one at the end of the hypothesis.
    """

    phrases: tuple[tuple[int, ...], ...] = ()
    counts: tuple[int, ...] = ()
    borders: tuple[tuple[int, ...], ...] = ()  # failure function of Knuth, Morris & Pratt (1977)
    ends_in_letter: tuple[bool, ...] = ()
    continuing: frozenset[int] = frozenset()  # tokens that continue a word

    @property
    def total(self) -> int:
        """Return the number of tokens to be met."""
        if not self.phrases:
            return 0
        return sum(n * len(phrase) for n, phrase in zip(self.counts, self.phrases, strict=True))

    def start(self) -> PhraseProgress:
        """Return the progress of the empty hypothesis."""
        return PhraseProgress(self.counts, (0,) * len(self.phrases))

    def after(self, progress: PhraseProgress, token: int) -> PhraseProgress:
        """Return the progress after one more token."""
        missing, matched = list(progress.missing), list(progress.matched)
        closed = False
        for i, phrase in enumerate(self.phrases):
            length = matched[i]
            while length and phrase[length] != token:
                length = self.borders[i][length - 1]
            matched[i] = length + (phrase[length] == token)
            if matched[i] == len(phrase):
                closed = closed or (missing[i] > 0 and self.ends_in_letter[i])
                matched[i], missing[i] = 0, max(0, missing[i] - 1)
        if closed:  # a phrase in the middle of that word is not met there
            for i, phrase in enumerate(self.phrases):
                while matched[i] and phrase[matched[i]] in self.continuing:
                    matched[i] = self.borders[i][matched[i] - 1]
        return PhraseProgress(tuple(missing), tuple(matched), closed)

    def met(self, progress: PhraseProgress) -> int:
        """Return the number of tokens that are met."""
        done, longest = self.total, 0
        for phrase, missing, matched in zip(
            self.phrases, progress.missing, progress.matched, strict=True
        ):
            done -= missing * len(phrase)
            longest = max(longest, matched if missing else 0)
        return done + longest

    def advancing(self, progress: PhraseProgress) -> dict[int, int]:
        """Return the tokens that start or continue a phrase that is missing, in ascending order.

        Each with the number of tokens at the end of the hypothesis that then belong to the phrase.
        """
        matched_by = sorted(
            (phrase[matched], matched + 1)
            for phrase, missing, matched in zip(
                self.phrases, progress.missing, progress.matched, strict=True
            )
            if missing
        )
        return dict(matched_by)

    def needed(self, progress: PhraseProgress) -> list[int]:
        """Return the tokens of the phrases that are missing."""
        pairs = zip(self.phrases, progress.missing, strict=True)
        return [token for phrase, missing in pairs if missing for token in phrase]

    def begun(self, progress: PhraseProgress) -> list[int]:
        """Return the tokens at the end of the hypothesis with which a missing phrase begins."""
        parts = zip(self.phrases, progress.missing, progress.matched, strict=True)
        return [token for phrase, missing, n in parts if missing for token in phrase[:n]]


NO_LEXICAL = Lexical()


def lexical_of(
    phrases: Sequence[tuple[Ids, bool]], continuing: frozenset[int] = frozenset()
) -> Lexical:
    """Return the constraints of phrases, each as tokens and whether it ends in a letter.

    A phrase that is given twice must occur twice.
    """
    counts: dict[tuple[int, ...], int] = {}
    letters = {tuple(ids): ends_in_letter for ids, ends_in_letter in phrases}
    for ids, _ in phrases:
        counts[tuple(ids)] = counts.get(tuple(ids), 0) + 1
    distinct = tuple(counts)
    return Lexical(
        distinct,
        tuple(counts.values()),
        tuple(map(_borders, distinct)),
        tuple(letters[ids] for ids in distinct),
        continuing,
    )


def merge(first: Lexical, second: Lexical) -> Lexical:
    """Return the constraints of both, as far as their tokens are no more than MAX_TOKENS."""
    counts: dict[tuple[int, ...], int] = {}
    letters: dict[tuple[int, ...], bool] = {}
    room = MAX_TOKENS
    for lexical in (first, second):
        for phrase, count, ends_in_letter in zip(
            lexical.phrases, lexical.counts, lexical.ends_in_letter, strict=True
        ):
            missing = count - counts.get(phrase, 0)
            if 0 < missing * len(phrase) <= room:
                room -= missing * len(phrase)
                counts[phrase], letters[phrase] = count, ends_in_letter
    phrases = [(list(phrase), letters[phrase]) for phrase, n in counts.items() for _ in range(n)]
    return lexical_of(phrases, first.continuing | second.continuing)


def _borders(phrase: Sequence[int]) -> tuple[int, ...]:
    """Return the length of the longest proper border of each prefix of a phrase."""
    borders = [0]
    for token in phrase[1:]:
        length = borders[-1]
        while length and phrase[length] != token:
            length = borders[length - 1]
        borders.append(length + (phrase[length] == token))
    return tuple(borders)


class LexicalMaker:
    """Converts phrases of text to constraints in the tokens of one vocabulary.

    A phrase is segmented as text is, and begins and ends at the bounds of words, except in scripts
    without spaces.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def lexical(self, phrases: Sequence[str], place: str, terms: Sequence[str] = ()) -> Lexical:
        """Return the constraints of a line's phrases; `place` names the line in errors.

        Then of as many `terms` as MAX_TOKENS allows, the first ones first. Raises UserError for a
        word that a word vocabulary lacks, or if the phrases, or one term, have too many tokens.
        """
        encoded = self._encoded(phrases, place)
        room = MAX_TOKENS - _bounded(encoded, place)
        for term in terms:
            of_term = self._encoded([term], place)
            if (room := room - _bounded(of_term, place)) < 0:
                break
            encoded += of_term
        return lexical_of(encoded, self._continuing) if encoded else NO_LEXICAL

    def _encoded(self, phrases: Sequence[str], place: str) -> list[tuple[Ids, bool]]:
        """Return the ids of each phrase that is not blank, and whether it ends in a letter."""
        texts = [" ".join(normalized(phrase).replace(SPACE, " ").split()) for phrase in phrases]
        return [(self._encode(text, place), is_letter(text[-1])) for text in texts if text]

    def possible(self, words: Sequence[str]) -> Lexical:
        """Return the constraints of those words that the vocabulary can spell, up to MAX_TOKENS."""
        ids = self._vocabulary.encode(words)
        encoded = [
            (tokens, is_letter(word[-1]))
            for word, tokens in zip(words, ids, strict=True)
            if UNK_ID not in tokens
        ]
        return merge(NO_LEXICAL, lexical_of(encoded, self._continuing))

    def _encode(self, text: str, place: str) -> Ids:
        (ids,) = self._vocabulary.encode([text])
        if UNK_ID in ids:
            raise UserError(
                f"{place}: {text[:60]!r} has a word that the vocabulary lacks, so that no "
                "translation can contain it; leave it out"
            )
        if not _is_spaced(text[0]):
            (anchored,) = self._vocabulary.encode([_ANCHOR + text])
            tokens = self._vocabulary.tokens(anchored)
            for n in range(1, len(tokens)):
                if "".join(tokens[:n]).replace(SPACE, "") == _ANCHOR:
                    return anchored[n:]
        return ids

    @cached_property
    def _continuing(self) -> frozenset[int]:
        tokens = self._vocabulary.tokens(range(len(self._vocabulary)))
        with_bytes = self._vocabulary.has_byte_fallback
        return frozenset(
            i
            for i, token in enumerate(tokens)
            if is_letter(token[:1]) or (with_bytes and _is_byte_of_letter(token))
        )


def _bounded(phrases: Sequence[tuple[Ids, bool]], place: str) -> int:
    """Return the number of tokens of phrases; raises UserError for more than MAX_TOKENS."""
    if (count := sum(len(ids) for ids, _ in phrases)) > MAX_TOKENS:
        raise UserError(
            f"{place}: the phrases have {count:,} tokens; use at most {MAX_TOKENS} a line"
        )
    return count


def _is_byte_of_letter(token: str) -> bool:
    """Return whether a byte token is a letter or digit, or a part of one, which may be a letter."""
    match = BYTE_TOKEN.fullmatch(token)
    byte = int(match[1], 16) if match else 0
    return byte >= 128 or chr(byte).isalnum()


def is_letter(character: str) -> bool:
    """Return whether a character continues a word of a script with spaces."""
    return character != "" and unicodedata.category(character)[0] in "LMN" and _is_spaced(character)


def _is_spaced(character: str) -> bool:
    return not unicodedata.name(character, "").startswith(_WITHOUT_SPACES)
