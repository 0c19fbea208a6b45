"""Translations of the parts of lines: what the passes search, by one model."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from seq2seq.data.vocabulary.vocabulary import UNK_ID, UNKNOWN
from seq2seq.inference import attention_map, nbest, passes, scoring
from seq2seq.inference.line_preparation import Preparation, PreparedPart
from seq2seq.inference.lines import bounded_slices
from seq2seq.inference.loaded_model import LoadedModel, no_translation
from seq2seq.inference.nbest import AttentionBlocks, Candidate, Metric, NBestEntry
from seq2seq.inference.passes import Pass
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.inference.searched_part import RequestedSearch, SearchedPart
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import LINE_BREAKS, Translation, with_names
from seq2seq.text.characters import is_blank

OnFound = Callable[[int], None] | None
HEAD_SCORINGS = 1  # of each part whose weights of heads are wanted
_GAVE_WAY = "no translation obeys all rules of its search; left out: "
_VANISHED = "such characters that the translation lacks: "
_UNPLACED = "terms of the glossary that replace no word, but are required: "


class PartSearch:
    """Translates parts of lines by the searches of one model."""

    def __init__(
        self,
        loaded: LoadedModel,
        preparation: Preparation,
        settings: SearchSettings,
        options: SearchOptions,
        n_best: int,
    ) -> None:
        self._loaded = loaded
        self._preparation = preparation
        self._settings = settings
        self._is_forbidden = preparation.requirements.is_forbidden
        # A pass looks at all candidates for forbidden text: the best one depends on no `n_best`.
        is_single = not (n_best > 1 or settings.mbr or options.sampling)
        if is_single and preparation.requirements.forbidden is None:
            options = replace(options, returned=1)
        self._options = options
        self._n_best = n_best
        is_plain = settings.mbr is None
        context = passes.PassContext(
            loaded,
            preparation,
            n_best,
            places_terms=is_plain,
            merges_texts=is_plain and options.sampling is None,
        )
        self._passes = passes.passes_of(context)

    def translate(self, parts: Sequence[PreparedPart], on_found: OnFound) -> Iterator[Translation]:
        """Yield the translation of each part."""
        for rows in bounded_slices([part.request.squared_length for part in parts]):
            searched = [part.searched(self._options) for part in parts[rows]]
            report = None if on_found is None else _shifted(on_found, rows.start)
            for one_pass in self._passes:
                self._run(one_pass, searched, report)
                report = None  # after the first one
            for part in searched:
                self._rank(part)
            yield from map(self._translation, searched, self._head_blocks(searched))

    def _run(self, one_pass: Pass, parts: Sequence[SearchedPart], on_found: OnFound) -> None:
        """Search what a pass requests, and let it merge what is found, as often as it may."""
        for _ in range(one_pass.rounds):
            pairs = [(part, one_pass.request(part)) for part in parts]
            requested = [(part, request) for part, request in pairs if request is not None]
            if not requested:
                return
            lists = self._search([request for _, request in requested], on_found)
            for (part, request), candidates in zip(requested, lists, strict=True):
                one_pass.merge(part, request, candidates)

    def _search(
        self, searches: Sequence[RequestedSearch], on_found: OnFound
    ) -> list[list[Candidate]]:
        """Return the candidates of each search; those of equal options are searched together."""
        lists: list[list[Candidate]] = [[] for _ in searches]
        numbers_of = defaultdict[SearchOptions, list[int]](list)
        for number, requested in enumerate(searches):
            numbers_of[requested.options].append(number)
        for options, numbers in numbers_of.items():
            report = None if on_found is None else _renumbered(on_found, numbers)
            found = self._hypotheses([searches[number] for number in numbers], options, report)
            for number, hypotheses in zip(numbers, found, strict=True):
                lists[number] = [
                    Candidate(self._text(searches[number], hypothesis), hypothesis)
                    for hypothesis in hypotheses
                ]
        return lists

    def _hypotheses(
        self, searches: Sequence[RequestedSearch], options: SearchOptions, on_found: OnFound
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each search; raises RunError if the model's output overflows."""
        requests = [search.request for search in searches]
        try:
            return search(self._loaded.engine, requests, options, on_found)
        except NonFiniteError as error:
            fault = f"the best next token of a translation has the log-probability {error.value}"
            source = requests[error.sentence].source
            fault += ", not a finite number"
            raise no_translation(self._loaded, source, fault) from None

    def _rank(self, searched_part: SearchedPart) -> None:
        """Rank the candidates by utility if that is wanted, and keep the n-best list."""
        if self._settings.mbr is not None:
            searched_part.candidates = self._by_utility(
                searched_part.candidates, self._settings.mbr
            )
        searched_part.candidates = searched_part.candidates[: self._n_best]

    def _by_utility(self, candidates: Sequence[Candidate], metric: Metric) -> list[Candidate]:
        """Rank by utility, with samples of equal weights, and hypotheses by their probability."""
        totals = [sum(candidate.hypothesis.log_probs) for candidate in candidates]
        weights = [1.0 if self._options.sampling else math.exp(t - max(totals)) for t in totals]
        texts = [candidate.text for candidate in candidates]
        utilities = nbest.expected_utilities(texts, weights, metric)
        order = sorted(range(len(candidates)), key=lambda number: -utilities[number])
        return nbest.merged([candidates[number] for number in order])

    def _head_blocks(self, parts: Sequence[SearchedPart]) -> list[AttentionBlocks | None]:
        """Score the best candidates again for the weights of heads: search keeps their mean."""
        if not self._settings.head_attention:
            return [None] * len(parts)
        pairs = [
            (part.search.request.source, part.candidates[0].hypothesis.ids[:-1])
            for part in parts
            if part.return_attention
        ]
        decoded = iter(scoring.forced_decodings(self._loaded.engine, pairs, heads=True))
        return [
            scoring.as_blocks(next(decoded).head_weights) if part.return_attention else None
            for part in parts
        ]

    def _translation(
        self, searched_part: SearchedPart, head_blocks: AttentionBlocks | None
    ) -> Translation:
        """Return the translation of a part by its n-best candidates; the first has the heads."""
        src, tgt, names = self._loaded.vocabularies
        masked = searched_part.part.masked
        return_attention = searched_part.return_attention
        spellings = names.spellings(masked) if names else {}
        n_best = [
            NBestEntry(
                text,
                hypothesis.score,
                with_names(tgt.tokens(hypothesis.ids), spellings),
                list(hypothesis.log_probs),
                scoring.as_blocks(hypothesis.attention_weights) if return_attention else None,
            )
            for text, hypothesis in searched_part.candidates
        ]
        n_best[0] = replace(n_best[0], head_blocks=head_blocks)
        source = searched_part.search.request.source
        tokens = with_names([*src.tokens(source), "</s>"], masked.names)
        notes = self._notes(searched_part, tokens)
        return Translation(n_best, tokens, notes=notes, sources=[searched_part.part.written])

    def _notes(self, searched_part: SearchedPart, tokens: Sequence[str]) -> list[str]:
        """Return what a translation lacks of its source, and the rules that it breaks."""
        text, hypothesis = searched_part.candidates[0]
        source = searched_part.part
        notes = attention_map.notes_on_coverage(tokens, hypothesis.attention_weights)
        written = f"{source.head}{source.masked.text}{source.tail}"
        notes += self._loaded.source.notes_on_numbers(written, text)
        vanished = [character for character in source.unknown if character not in text]
        if vanished:
            notes.append(_VANISHED + "".join(vanished))
        if searched_part.left_out_rules:
            notes.append(_GAVE_WAY + ", ".join(searched_part.left_out_rules))
        elif source.terms and not searched_part.has_placed_terms:
            notes.append(_UNPLACED + ", ".join(dict.fromkeys(term.target for term in source.terms)))
        return notes

    def _text(self, search: RequestedSearch, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, or the source if it is blank."""
        text = self._preparation.undo(search.part, _one_line(self._decoded(search, hypothesis)))
        if not is_blank(text):
            return text
        source = " ".join(search.words)
        source = source or self._loaded.vocabularies.src.decode(search.request.source)
        text = self._preparation.undo(search.part, _one_line(source))
        return UNKNOWN if self._is_forbidden(text) else text

    def _decoded(self, search: RequestedSearch, hypothesis: Hypothesis) -> str:
        """Return the text; attended source words may replace unknown ones (Jean et al. 2015)."""
        decode = self._loaded.vocabularies.tgt.decode
        prefix = search.request.prefix.words
        words = self._attended_words(search, hypothesis)[len(prefix) :]
        copied = [UNKNOWN if self._is_forbidden(word) else word for word in words]
        text = decode(hypothesis.ids, prefix + copied)
        if copied and self._is_forbidden(text):  # as a phrase with words beside, or in a prefix
            without_words = decode(hypothesis.ids, prefix)
            return text if self._is_forbidden(without_words) else without_words
        return text

    def _attended_words(self, search: RequestedSearch, hypothesis: Hypothesis) -> list[str]:
        """Return for each unknown token the source word that it attends to most, if wanted."""
        weights = hypothesis.attention_weights
        words = search.words
        if not self._loaded.decoding.replace_unknown or weights is None or not words:
            return []
        is_unknown = np.array(hypothesis.ids) == UNK_ID
        attended = weights[is_unknown, : len(words)].argmax(axis=1)  # not end-of-sentence
        return [words[column] for column in attended.tolist()]


def _shifted(on_found: Callable[[int], None], first: int) -> Callable[[int], None]:
    return lambda number: on_found(first + number)


def _renumbered(on_found: Callable[[int], None], numbers: Sequence[int]) -> Callable[[int], None]:
    return lambda place: on_found(numbers[place])


def _one_line(text: str) -> str:
    return LINE_BREAKS.sub(" ", text).strip()
