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
from seq2seq.inference.searched import RequestedSearch, SearchedPart
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

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        """Return the search that the part needs, if any; it is recorded in the part."""
        raise NotImplementedError

    def merge(
        self, part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Take what the requested search has found, which may be nothing."""
        part.candidates = candidates


class FirstSearch(Pass):
    """Search the part; one with terms of a glossary without these, to see where they belong."""

    most_searches = 1

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        search = part.search
        if not (self.context.places_terms and search.part.terms):
            return search
        is_single = self.context.n_best == 1
        returned = 1 if is_single else search.options.returned
        return _plain(search, replace(search.options, returned=returned))


def _plain(search: RequestedSearch, options: SearchOptions) -> RequestedSearch:
    """Return a search without the terms of the glossary, which shows where they belong."""
    request = search.request._replace(lexical=search.phrases)
    options = replace(options, return_attention=True)
    return replace(search, request=request, options=options)


class PlaceTerms(Pass):
    """Score the first translation with the terms of the glossary in the places of words."""

    most_scorings = 1

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        if not (self.context.places_terms and part.search.part.terms and part.candidates):
            return None
        return _with_terms(self.context, part.search, part.candidates[0])

    def merge(
        self, part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Take the scored translation, unless it breaks a rule."""
        if candidates:
            part.placed = candidates[0]
            part.scored.add(tuple(search.request.fixed or ()))
            part.further = part.candidates[1:]
            part.candidates = candidates


class PlaceFurtherTerms(Pass):
    """Place them in the further translations of an n-best list too; search for more of these."""

    most_searches = WIDENINGS
    most_scorings = MAX_PLACED
    rounds = most_searches + most_scorings

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        if part.placed is None or len(part.candidates) >= self.context.n_best:
            return None
        while part.further and len(part.scored) <= MAX_PLACED:
            search = _with_terms(self.context, part.search, part.further.pop(0))
            if search is not None and (ids := tuple(search.request.fixed or ())) not in part.scored:
                part.scored.add(ids)
                return search
        return self._wider(part)

    def _wider(self, part: SearchedPart) -> RequestedSearch | None:
        """Return a search without the terms by twice the beam."""
        size = part.search.options.beam_size
        further_size = 2 * max(size, part.further_beam)
        is_last = further_size > min(size << WIDENINGS, MAX_BEAM)
        if is_last or len(part.scored) > MAX_PLACED:
            return None
        part.further_beam = further_size
        return _plain(part.search, replace(part.search.options, beam_size=further_size))

    def merge(
        self, part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Add other texts below the best translation."""
        if search.request.fixed is None:
            part.further = candidates
        else:
            nbest.extend(part.candidates, candidates)


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
    return replace(search, request=search.request._replace(lexical=search.phrases, fixed=ids))


def _obeys(ids: Sequence[int], search: RequestedSearch) -> bool:
    """Return whether a translation obeys its prefix, its phrases, names and the least length."""
    is_long = len(ids) > search.options.min_length
    names = {token for token in search.request.source if token in search.options.kept_ids}
    has_names = all(ids.count(token) == 1 for token in names)
    has_phrases = search.phrases.is_met_by(ids)
    return is_long and has_names and has_phrases and search.request.prefix.begins(ids)


class RequireTerms(Pass):
    """Search the part with its terms required, if they have no places."""

    most_searches = 1

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        if not (self.context.places_terms and part.search.part.terms):
            return None
        return part.search if part.placed is None else None


class GiveWay(Pass):
    """Search a part to which all rules leave no translation without one of them after another."""

    most_searches = len(GIVING_WAY) - 1  # a beam is narrow, or there are samples or groups
    rounds = most_searches + 1  # the last one finds that nothing remains to leave out

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        if part.candidates:
            return None
        weaker_search = weaker(part.search)
        if weaker_search is None:
            source = part.search.request.source
            raise no_translation(self.context.loaded, source, "no token may follow")
        name, part.search = weaker_search
        if name:
            part.left_out_rules.append(name)
        return part.search


class Repair(Pass):
    """Search again what lost a name or a word to copy: all names are masked, the words required."""

    most_searches = 1

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        if part.original.part.is_in_capitals:  # in which no word is as the training text has it
            return None
        best = part.placed or part.candidates[0]
        repaired = self._repaired(part.original, [best, *part.candidates[1:]])
        return None if repaired is part.original else repaired

    def merge(
        self, part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Take what is found, unless it is nothing or forbidden."""
        if candidates and not self.context.is_forbidden(candidates[0].text):
            part.search = search
            part.candidates = candidates
            part.placed = None
            part.left_out_rules = []

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
        more = without_forbidden(names.mask_more(masked), names, masked.names, is_forbidden)
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

    def request(self, part: SearchedPart) -> RequestedSearch | None:
        if part.placed is not None:
            part.candidates = [part.placed, *nbest.below(part.placed, part.candidates)]
        part.candidates = nbest.merged(part.candidates)
        size = 2 * part.search.options.beam_size
        is_complete = len(part.candidates) >= self.context.n_best or part.placed is not None
        if is_complete or size > MAX_BEAM:
            return None
        part.search = replace(part.search, options=replace(part.search.options, beam_size=size))
        return part.search

    def merge(
        self, part: SearchedPart, search: RequestedSearch, candidates: list[Candidate]
    ) -> None:
        """Add what is found below the best translation."""
        nbest.extend(part.candidates, candidates)


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
