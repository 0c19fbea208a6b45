"""Requirements on translations, from text: prefixes, phrases and forbidden words."""

from collections.abc import Iterable, Sequence
from functools import cached_property

from seq2seq.data.vocabulary.vocabulary import UNK_ID, Ids, Vocabularies
from seq2seq.inference.search import lexical as automata
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_LEXICAL, Lexical, Prefix
from seq2seq.inference.translation import LINE_BREAKS
from seq2seq.runtime import argument_types, errors
from seq2seq.text.characters import MARKS, SPACE, is_blank, is_letter, is_spaced, normalized
from seq2seq.text.names.names import Masked

_MARKS = frozenset(MARKS)
# A phrase of a script without spaces is encoded after it, as within a line: without the mark of the
# start of a word.
_ANCHOR = "\u3002"
_Encoded = tuple[Ids, bool]  # a phrase, and whether it ends in a letter


class Requirements:
    """Converts the texts that translations must or must not contain to constraints on tokens."""

    def __init__(self, vocabularies: Vocabularies, words: tuple[str, ...] = ()) -> None:
        """Take the vocabularies, and words and phrases that no translation contains."""
        self._vocabularies = vocabularies
        tgt = vocabularies.tgt
        self.forbidden = None if all(map(is_blank, words)) else Forbidden(tgt, words)

    @cached_property
    def _prefixes(self) -> automata.PrefixMaker:
        return automata.PrefixMaker(self._vocabularies.tgt)

    @cached_property
    def _marks(self) -> tuple[int, ...]:
        """Return the tokens that consist of marks that end sentences."""
        tgt = self._vocabularies.tgt
        spelled_words = [token.strip(SPACE) for token in tgt.tokens(range(len(tgt)))]
        return tuple(i for i, text in enumerate(spelled_words) if text and not text.strip(MARKS))

    def waiting_marks(self, text: str) -> tuple[int, ...]:
        """Return the tokens of final marks for a source of one sentence, else none."""
        return self._marks if _MARKS.isdisjoint(text.strip()[:-1]) else ()

    def is_forbidden(self, text: str) -> bool:
        """Return whether a text has a forbidden word or phrase."""
        return self.forbidden is not None and self.forbidden.occurs_in(text)

    def prefix(self, text: str) -> Prefix:
        """Return the prefix for a text."""
        if is_blank(text):
            return automata.NO_PREFIX
        return self._prefixes.prefix(LINE_BREAKS.sub(" ", text))

    def lexical(
        self, phrases: Sequence[str], masked: Masked, place: str, terms: Sequence[str] = ()
    ) -> Lexical:
        """Return the constraint that a translation contains the phrases, its names masked.

        It contains as many of the `terms`, too, as MAX_TOKENS allows, the first ones first. Phrases
        are segmented as text is, and have the bounds of words, except in scripts without spaces.
        Raises UserError, with the place, for phrases and terms that no translation can contain.
        """
        for phrase in (*phrases, *terms):
            if self.is_forbidden(" ".join(normalized(phrase).split())):
                text = f"{place}: {phrase[:60]!r} is required and contains a forbidden word"
                raise errors.UserError(f"{text}; allow the word, or do not require it")
        encoded = list[_Encoded]()
        room = MAX_TOKENS
        for texts in (phrases, *([term] for term in terms)):
            of_texts = self._encoded(texts, masked, place)
            count = sum(len(ids) for ids, _ in of_texts)
            if count > MAX_TOKENS:
                text = f"the phrases have {count:,} tokens; use at most {MAX_TOKENS} a line"
                raise errors.UserError(f"{place}: {text}")
            if (room := room - count) < 0:
                break
            encoded += of_texts
        return automata.lexical_of(encoded, self._continuing) if encoded else NO_LEXICAL

    def with_words(self, lexical: Lexical, words: Sequence[str]) -> Lexical:
        """Require words, too, as far as the vocabulary can spell them, up to MAX_TOKENS."""
        ids = self._vocabularies.tgt.encode(words)
        encoded = [
            (tokens, is_letter(word[-1]))
            for word, tokens in zip(words, ids, strict=True)
            if UNK_ID not in tokens
        ]
        if not encoded:
            return lexical
        return automata.merge(lexical, automata.lexical_of(encoded, self._continuing))

    def _encoded(self, phrases: Sequence[str], masked: Masked, place: str) -> list[_Encoded]:
        """Return each phrase that is not blank, its names masked."""
        if (names := self._vocabularies.names) is not None:
            phrases = [names.mask_target(phrase, masked.names) for phrase in phrases]
        texts = [" ".join(normalized(text).replace(SPACE, " ").split()) for text in phrases]
        return [(self._encode(text, place), is_letter(text[-1])) for text in texts if text]

    def _encode(self, text: str, place: str) -> Ids:
        tgt = self._vocabularies.tgt
        (ids,) = tgt.encode([text])
        if UNK_ID in ids:
            raise errors.UserError(
                f"{place}: {text[:60]!r} has a word that the vocabulary lacks, so that no "
                "translation can contain it; leave it out"
            )
        if not is_spaced(text[0]):
            (anchored,) = tgt.encode([_ANCHOR + text])
            tokens = tgt.tokens(anchored)
            for n in range(1, len(tokens)):
                if "".join(tokens[:n]).replace(SPACE, "") == _ANCHOR:
                    return anchored[n:]
        return ids

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """Return the tokens that continue a word, with bytes that may be of a letter."""
        tgt = self._vocabularies.tgt
        continuing = set[int]()
        for number, token in enumerate(tgt.tokens(range(len(tgt)))):
            byte = automata.byte_of(token) if tgt.has_byte_fallback else None
            if is_letter(token[:1]) or (byte is not None and (byte >= 128 or chr(byte).isalnum())):
                continuing.add(number)
        return frozenset(continuing)


def prefix_texts(count: int, prefixes: Iterable[str] | None) -> list[str]:
    """Return the prefixes of lines, "" for none; raises UserError for others, or TypeError."""
    if prefixes is None:
        return [""] * count
    prefixes = argument_types.text_list(prefixes, "prefixes", "one per line, '' for none")
    _check_count(prefixes, "prefixes", count, "one per line, '' for none")
    automata.check_prefixes(prefixes)
    return prefixes


def phrase_lists(count: int, constraints: Iterable[Sequence[str]] | None) -> list[Sequence[str]]:
    """Return the phrases of lines; raises UserError for another number, or TypeError."""
    if constraints is None:
        return [()] * count
    rule = "a list with a list of str for each line, [] for none"
    phrases = [
        argument_types.text_list(texts, f"constraints[{number}]", "phrases, [] for none")
        for number, texts in enumerate(argument_types.ordered(constraints, "constraints", rule))
    ]
    _check_count(phrases, "constraints", count, "one list per line, [] for none")
    return [[phrase for phrase in texts if not is_blank(phrase)] for texts in phrases]


def _check_count(values: Sequence[object], name: str, count: int, rule: str) -> None:
    if len(values) != count:
        raise errors.UserError(f"{len(values)} {name} for {count} lines; give {rule}")
