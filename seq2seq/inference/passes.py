"""Passes: the searches of a part, one after the other.

PASSES is the list. A pass requests a search of a part, or the score of one given translation, and
merges what is found. Search does not depend on what is searched together.
"""

# ruff: noqa: ARG002 -- a pass need not look at the search that it has requested

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seq2seq.data.vocabulary.vocabulary import NAME_IDS
from seq2seq.inference import nbest, terms
from seq2seq.inference.giving_way import GIVING_WAY, weaker
from seq2seq.inference.line_preparation import Preparation
from seq2seq.inference.loaded_model import LoadedModel, no_translation
from seq2seq.inference.nbest import MAX_BEAM, WIDENINGS, Candidate
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.searched_part import RequestedSearch, SearchedPart
from seq2seq.text.characters import normalized
from seq2seq.text.names.names import Masked, Names
from seq2seq.text.steps import without_forbidden

MAX_PLACED = 100  # translations of an n-best list in which terms are placed, at most


@dataclass(frozen=True)
class PassContext:
    """A model and a call, as far as passes know them."""

    loaded: LoadedModel
    preparation: Preparation
    n_best: int = 1
    places_terms: bool = True  # terms of a glossary take the places of words
    merges_texts: bool = True  # not so samples

    def is_forbidden(self, text: str) -> bool:
        """Return whether a text has a forbidden word or phrase."""
        return self.preparation.requirements.is_forbidden(text)


class Pass:
    """A search of a part after those of the passes before."""

    most_searches = 0  # of a part, in all rounds; a table of the docs has it, and a test counts
    most_scorings = 0  # likewise, of given translations
    rounds = 1

    def __init__(self, context: PassContext) -> None:
        self.context = context

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        """Return the search that the part needs, if any.

        `GiveWay` and `Widen` make it the search of the part at once, others only if it finds more.
        """
        raise NotImplementedError

    def merge(
        self, searched_part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Take what the requested search has found, which may be nothing."""
        searched_part.candidates = candidates


class FirstSearch(Pass):
    """Search the part; one with terms of a glossary without these, to see where they belong."""

    most_searches = 1

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        search = searched_part.search
        if not (self.context.places_terms and search.part.terms):
            return search
        is_single = self.context.n_best == 1
        returned = 1 if is_single else search.options.returned
        return _plain(search, replace(search.options, returned=returned))


def _plain(search: RequestedSearch, options: SearchOptions) -> RequestedSearch:
    """Return a search without the terms of the glossary, which shows where they belong."""
    request = search.request._replace(lexical=search.phrases_without_terms)
    options = replace(options, return_attention=True)
    return replace(search, request=request, options=options)


class PlaceTerms(Pass):
    """Score the first translation with the terms of the glossary in the places of words."""

    most_scorings = 1

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        if not (
            self.context.places_terms and searched_part.part.terms and searched_part.candidates
        ):
            return None
        return _with_terms(self.context, searched_part.search, searched_part.candidates[0])

    def merge(
        self, searched_part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Take the scored translation, unless it breaks a rule."""
        if candidates:
            searched_part.has_placed_terms = True
            searched_part.scored.add(tuple(search.request.fixed or ()))
            searched_part.further = searched_part.candidates[1:]
            searched_part.candidates = candidates


class PlaceFurtherTerms(Pass):
    """Place them in the further translations of an n-best list too; search for more of these."""

    most_searches = WIDENINGS
    most_scorings = MAX_PLACED
    rounds = most_searches + most_scorings

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        is_complete = len(searched_part.candidates) >= self.context.n_best
        if is_complete or not searched_part.has_placed_terms:
            return None
        while searched_part.further and len(searched_part.scored) <= MAX_PLACED:
            search = _with_terms(self.context, searched_part.search, searched_part.further.pop(0))
            ids = () if search is None else tuple(search.request.fixed or ())
            if search is not None and ids not in searched_part.scored:
                searched_part.scored.add(ids)
                return search
        return self._wider(searched_part)

    def _wider(self, searched_part: SearchedPart) -> RequestedSearch | None:
        """Return a search without the terms by twice the beam."""
        search = searched_part.search
        size = search.options.beam_size
        further_size = 2 * max(size, searched_part.further_beam)
        is_too_wide = further_size > min(size << WIDENINGS, MAX_BEAM)
        if is_too_wide or len(searched_part.scored) > MAX_PLACED:
            return None
        searched_part.further_beam = further_size
        return _plain(search, replace(search.options, beam_size=further_size))

    def merge(
        self, searched_part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Add other texts below the best translation."""
        if search.request.fixed is None:
            searched_part.further = candidates
        else:
            nbest.extend(searched_part.candidates, candidates)


def _with_terms(
    context: PassContext, search: RequestedSearch, candidate: Candidate
) -> RequestedSearch | None:
    """Return the scoring of a translation with the terms in place, if it obeys all rules."""
    vocabularies = context.loaded.vocabularies
    source = search.request.source
    ids = terms.placed(search.part, source, candidate.hypothesis, vocabularies)
    if ids is None or not _obeys(ids, search):
        return None
    if context.is_forbidden(vocabularies.tgt.decode(ids)):
        return None
    request = search.request._replace(lexical=search.phrases_without_terms, fixed=ids)
    return replace(search, request=request)


def _obeys(ids: Sequence[int], search: RequestedSearch) -> bool:
    """Return whether a translation obeys its prefix, its phrases, names and the least length."""
    is_long = len(ids) > search.options.min_length
    names = {token for token in search.request.source if token in search.options.kept_ids}
    has_names = all(ids.count(token) == 1 for token in names)
    has_phrases = search.phrases_without_terms.is_met_by(ids)
    return is_long and has_names and has_phrases and search.request.prefix.begins(ids)


class RequireTerms(Pass):
    """Search the part with its terms required, if they have no places."""

    most_searches = 1

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        if not (self.context.places_terms and searched_part.part.terms):
            return None
        return None if searched_part.has_placed_terms else searched_part.search


class GiveWay(Pass):
    """Search a part to which all rules leave no translation without one of them after another."""

    most_searches = len(GIVING_WAY) - 1  # a beam is narrow, or there are samples or groups
    rounds = most_searches + 1  # the last one finds that nothing remains to leave out

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        if searched_part.candidates:
            return None
        weaker_search = weaker(searched_part.search)
        if weaker_search is None:
            source = searched_part.search.request.source
            raise no_translation(self.context.loaded, source, "no token may follow")
        name, searched_part.search = weaker_search
        if name:
            searched_part.left_out_rules.append(name)
        return searched_part.search


class Repair(Pass):
    """Search again what lost a name or a word to copy: all names are masked, the words required."""

    most_searches = 1

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        original = searched_part.original
        if original.part.is_in_capitals:  # in which no word is as the training text has it
            return None
        repaired = self._repaired(original, searched_part.candidates)
        return None if repaired is original else repaired

    def merge(
        self, searched_part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Take what is found, unless it is nothing or forbidden."""
        if candidates and not self.context.is_forbidden(candidates[0].text):
            searched_part.search = search
            searched_part.candidates = candidates
            searched_part.has_placed_terms = False
            searched_part.left_out_rules = []

    def _repaired(
        self, search: RequestedSearch, candidates: Sequence[Candidate]
    ) -> RequestedSearch:
        """Return another search if something is lost.

        Names are words if one makes forbidden text; all are masked if the translation lost one; all
        words are required that are to be copied, if one is missing.
        """
        names = self.context.loaded.vocabularies.names
        if names is not None:
            masked = search.part.masked
            is_forbidden = self.context.is_forbidden
            if _may_be_words(search) and any(is_forbidden(text) for text, _ in candidates):
                return self.context.preparation.with_names(search, Masked(masked.written, {}))
            if names.loses(masked, candidates[0].text):
                search = self._with_all_names(search, names)
        return self._with_words(search, candidates[0])

    def _with_all_names(self, search: RequestedSearch, names: Names) -> RequestedSearch:
        masked = search.part.masked
        is_forbidden = self.context.is_forbidden
        more = without_forbidden(names.mask_frequent(masked), names, masked.names, is_forbidden)
        if more.names == masked.names:
            return search
        return self.context.preparation.with_names(search, more)

    def _with_words(self, search: RequestedSearch, candidate: Candidate) -> RequestedSearch:
        """Require all words that are to be copied, if the translation lacks one."""
        if search.options.sampling is not None or search.options.groups > 1:
            return search  # cannot be constrained
        copied = self.context.loaded.source.copied.copied_in(normalized(search.part.masked.text))
        words = [word for word in copied if not self.context.is_forbidden(word)]
        if all(word in candidate.text for word in words):
            return search
        requirements = self.context.preparation.requirements
        lexical = requirements.with_words(search.request.lexical, words)
        if lexical == search.request.lexical:
            return search
        return replace(search, request=search.request._replace(lexical=lexical))


def _may_be_words(search: RequestedSearch) -> bool:
    """Return whether no prefix and no phrase has the placeholders of a part's names."""
    if not search.part.masked.names or search.request.prefix.states:
        return False
    phrases = search.request.lexical.phrases
    return not any(token in NAME_IDS for phrase in phrases for token in phrase.tokens)


class Widen(Pass):
    """Merge equal texts; search an n-best list that lacks some with a beam of twice the size."""

    rounds = most_searches = WIDENINGS

    def request(self, searched_part: SearchedPart) -> RequestedSearch | None:
        if searched_part.has_placed_terms:  # its list is merged, and has been widened
            return None
        searched_part.candidates = nbest.merged(searched_part.candidates)
        is_complete = len(searched_part.candidates) >= self.context.n_best
        size = 2 * searched_part.search.options.beam_size
        if is_complete or size > MAX_BEAM:
            return None
        searched_part.search = searched_part.search.with_beam(size)
        return searched_part.search

    def merge(
        self, searched_part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Add what is found below the best translation."""
        nbest.extend(searched_part.candidates, candidates)


PASSES: tuple[type[Pass], ...] = (
    FirstSearch,
    PlaceTerms,
    PlaceFurtherTerms,
    RequireTerms,
    GiveWay,
    Repair,
    Widen,
)


def passes_of(context: PassContext) -> list[Pass]:
    """Return the passes that find translations, in order."""
    return [kind(context) for kind in PASSES if kind is not Widen or context.merges_texts]
