"""Requirements on translations, from text: prefixes, phrases and forbidden words."""

from collections.abc import Container, Iterable, Sequence
from functools import cached_property

from seq2seq.data.lines import is_blank
from seq2seq.data.vocabulary.vocabulary import Vocabularies, normalized
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.lexical import Lexical, LexicalMaker
from seq2seq.inference.search.prefixes import NO_PREFIX, Prefix, PrefixMaker, check_prefixes
from seq2seq.inference.translation import LINE_BREAKS
from seq2seq.names.names import Masked, Names
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError


class Requirements:
    """Converts texts that translations must or must not contain to automata over tokens."""

    def __init__(self, vocabularies: Vocabularies) -> None:
        self._vocabularies = vocabularies
        self._last_forbidden: tuple[tuple[str, ...], Forbidden] | None = None

    def prefix_texts(
        self, lines: Sequence[Sequence[Masked]], prefixes: Iterable[str] | None
    ) -> list[str]:
        """Return the text of each line's prefix with its names masked, "" for none."""
        if prefixes is None:
            return [""] * len(lines)
        prefixes = argument_types.text_list(prefixes, "prefixes", "one per line, '' for none")
        if len(prefixes) != len(lines):
            raise UserError(
                f"{len(prefixes)} prefixes for {len(lines)} lines; give one per line, '' for none"
            )
        check_prefixes(prefixes)
        if (names := self._vocabularies.names) is not None:
            prefixes = [
                names.mask_target(normalized(prefix), parts[0].names)
                for prefix, parts in zip(prefixes, lines, strict=True)
            ]
        return prefixes

    def prefixes(self, texts: Sequence[str]) -> list[Prefix]:
        """Return the prefixes for these texts; equal texts are converted once."""
        made = {
            text: NO_PREFIX
            if is_blank(text)
            else self._prefix_maker.prefix(LINE_BREAKS.sub(" ", text))
            for text in set(texts)
        }
        return [made[text] for text in texts]

    def lexical(
        self,
        phrases: Sequence[str],
        masked: Masked,
        place: str,
        forbidden: Forbidden | None,
        terms: Sequence[str] = (),
    ) -> Lexical:
        """Return the constraint that a translation contains the phrases, its names masked.

        It contains as many of the `terms`, too, as there is room for. Raises UserError, with the
        place, for phrases and terms that no translation can contain.
        """
        for phrase in (*phrases, *terms):
            if forbidden is not None and forbidden.occurs_in(" ".join(normalized(phrase).split())):
                raise UserError(
                    f"{place}: {phrase[:60]!r} is required and contains a forbidden word; allow "
                    "the word, or do not require it"
                )
        if (names := self._vocabularies.names) is not None:
            phrases = [names.mask_target(each, masked.names) for each in phrases]
            terms = [names.mask_target(each, masked.names) for each in terms]
        return self._lexical_maker.lexical(phrases, place, terms)

    def forbidden(self, words: tuple[str, ...]) -> Forbidden | None:
        """Return the automaton of forbidden words; it is kept for the next call."""
        if all(map(is_blank, words)):
            return None
        last = self._last_forbidden
        if last is None or last[0] != words:
            self._last_forbidden = last = words, Forbidden(self._vocabularies.tgt, words)
        return last[1]

    @cached_property
    def _prefix_maker(self) -> PrefixMaker:
        return PrefixMaker(self._vocabularies.tgt)

    @cached_property
    def _lexical_maker(self) -> LexicalMaker:
        return LexicalMaker(self._vocabularies.tgt)


def without_forbidden_names(
    masked: Masked, names: Names, forbidden: Forbidden | None, kept: Container[str]
) -> Masked:
    """Mask no name whose spelling is forbidden, so that search avoids it; `kept`: but for these."""
    if forbidden is None:
        return masked
    written = {
        mark: name
        for mark, name in masked.names.items()
        if mark not in kept and forbidden.occurs_in(names.restore(mark, masked))
    }
    others = {mark: name for mark, name in masked.names.items() if mark not in written}
    return Masked(Masked(masked.text, written).written, others, masked.given)


def phrase_lists(
    lines: Sequence[str], constraints: Iterable[Sequence[str]] | None
) -> list[Sequence[str]]:
    """Return the phrases of each line; raises UserError for another number of lines.

    Raises TypeError for anything but an ordered iterable of phrases for each line.
    """
    if constraints is None:
        return [()] * len(lines)
    constraints = argument_types.ordered(
        constraints, "constraints", "a list with a list of str for each line, [] for none"
    )
    phrases = [
        argument_types.text_list(each, f"constraints[{number}]", "phrases, [] for none")
        for number, each in enumerate(constraints)
    ]
    if len(phrases) != len(lines):
        raise UserError(
            f"{len(phrases)} constraints for {len(lines)} lines; give one list per line, [] for "
            "none"
        )
    return [[each for each in texts if not is_blank(each)] for texts in phrases]
