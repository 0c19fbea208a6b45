"""Translations of the parts of lines: one search, and at most one repair, of each."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from seq2seq.data.lines import is_blank
from seq2seq.data.vocabulary.vocabulary import NAME_IDS, UNK_ID, UNKNOWN, Vocabulary, normalized
from seq2seq.inference import nbest, terms
from seq2seq.inference.attention_map import notes_on_coverage
from seq2seq.inference.lines import bounded_slices
from seq2seq.inference.loading import LoadedModel
from seq2seq.inference.nbest import AttentionBlocks, Candidate, Metric, NBestEntry
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.scoring import as_blocks, forced_decodings
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, Request, SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.text_steps import LineSteps, Part
from seq2seq.inference.translation import LINE_BREAKS, Translation, with_names
from seq2seq.names.names import Masked
from seq2seq.runtime.errors import RunError

_UNPLACED = "terms of the glossary that replace no word, but are required: "


class PartSearch:
    """Translates parts of lines by the searches of one model."""

    def __init__(self, loaded: LoadedModel, steps: LineSteps, requirements: Requirements) -> None:
        self._loaded, self._steps, self._requirements = loaded, steps, requirements

    def translate(
        self,
        parts: Sequence[Part],
        options: SearchOptions,
        n_best: int,
        on_found: Callable[[int], None] | None,
        settings: SearchSettings,
    ) -> Iterator[Translation]:
        """Yield the translation of each part."""
        mbr = settings.mbr
        is_single = not (n_best > 1 or mbr or options.sampling)
        if is_single and self._requirements.forbidden is None:
            options = options._replace(returned=1)
        lengths = [(len(part.ids) + 1, len(part.prefix.states)) for part in parts]
        for rows in bounded_slices([source * (source + prefix) for source, prefix in lengths]):
            chunk = list(parts[rows])
            placed = self._with_placed_terms(chunk, options) if mbr is None else {}
            for number, part in placed.items():
                chunk[number] = part if n_best == 1 else replace(chunk[number], terms=())
            lists = self._search(chunk, options, on_found, rows.start)
            self._repair(chunk, lists, options)
            if mbr is not None:
                lists = [_by_utility(candidates, mbr, options) for candidates in lists]
            elif options.sampling is None:
                lists = [nbest.merged(candidates) for candidates in lists]
                nbest.fill(lists, n_best, options.size, partial(self._wider, chunk, options))
                if n_best > 1 and placed:
                    self._put_first(placed, lists, options)
            lists = [candidates[:n_best] for candidates in lists]
            heads = (
                self._head_blocks(chunk, lists) if settings.head_attention else [None] * len(chunk)
            )
            yield from map(self._translation, chunk, lists, heads)

    def _with_placed_terms(self, parts: Sequence[Part], options: SearchOptions) -> dict[int, Part]:
        """Return the parts with terms of the glossary that have a place in a free translation."""
        numbers = [number for number, part in enumerate(parts) if part.terms]
        if not numbers:
            return {}
        free = [replace(parts[number], lexical=parts[number].phrases) for number in numbers]
        options = options._replace(returned=1, return_attention=True)
        placed = {}
        for number, (best,) in zip(numbers, self._search(free, options), strict=True):
            part = terms.placed(parts[number], best.hypothesis, self._loaded.vocabularies)
            if part is None or len(part.prefix.states) <= options.min_length:
                continue
            tokens = [int(state.tokens[0]) for state in part.prefix.states]  # all are fixed
            text = self._loaded.vocabularies.tgt.decode(tokens)
            if not self._requirements.is_forbidden(text):
                placed[number] = part
        return placed

    def _put_first(
        self, placed: dict[int, Part], lists: list[list[Candidate]], options: SearchOptions
    ) -> None:
        """Let the translations with placed terms lead the lists of required ones."""
        searched = self._search([*placed.values()], options._replace(returned=1))
        for number, (first,) in zip(placed, searched, strict=True):
            lists[number] = [first, *nbest.below(first, lists[number])]

    def _wider(
        self, parts: Sequence[Part], options: SearchOptions, numbers: Sequence[int], size: int
    ) -> list[list[Candidate]]:
        return self._search([parts[number] for number in numbers], options._replace(size=size))

    def _repair(
        self, parts: list[Part], lists: list[list[Candidate]], options: SearchOptions
    ) -> None:
        """Search the parts again, once, whose best translations lack what they must have."""
        repaired = {
            number: better
            for number, (part, candidates) in enumerate(zip(parts, lists, strict=True))
            if (better := self._repaired(part, candidates, options)) != part
        }
        searched = self._search([*repaired.values()], options) if repaired else []
        for (number, part), candidates in zip(repaired.items(), searched, strict=True):
            if not self._requirements.is_forbidden(candidates[0].text):
                parts[number], lists[number] = part, candidates

    def _repaired(
        self, part: Part, candidates: Sequence[Candidate], options: SearchOptions
    ) -> Part:
        """Return a part as it is to be searched again: unchanged if nothing is missing.

        Its names are words if one makes forbidden text, by its ending or with the text beside it;
        all are masked if the translation lost one; all words are required that are to be copied, if
        one is missing.
        """
        names = self._loaded.vocabularies.names
        if names is not None:
            if self._makes_forbidden_text(part, candidates):
                return self._steps.encoded(part, Masked(part.masked.written, {}))
            if names.loses(part.masked, candidates[0].text):
                masked = self._requirements.allowed(names.mask_more(part.masked), part.masked.names)
                if masked.names != part.masked.names:
                    part = self._steps.encoded(part, masked)
        if options.sampling is not None or options.groups > 1:  # which cannot be constrained
            return part
        words = self._loaded.source.copied.copied_in(normalized(part.masked.text))
        words = [word for word in words if not self._requirements.is_forbidden(word)]
        text = self._text(part, candidates[0].hypothesis) if words else ""
        if any(word not in text for word in words):
            return replace(part, lexical=self._requirements.with_words(part.lexical, words))
        return part

    def _makes_forbidden_text(self, part: Part, candidates: Sequence[Candidate]) -> bool:
        """Return whether masked names make forbidden text, and nothing requires that they do."""
        required = any(
            token in NAME_IDS for phrase in part.lexical.phrases for token in phrase.tokens
        )
        if not part.masked.names or part.prefix.states or required:
            return False
        return any(self._requirements.is_forbidden(candidate.text) for candidate in candidates)

    def _search(
        self,
        parts: Sequence[Part],
        options: SearchOptions,
        on_found: Callable[[int], None] | None = None,
        first: int = 0,
    ) -> list[list[Candidate]]:
        """Return the hypotheses of each part; raises RunError if the model's output overflows."""
        loaded, most = self._loaded, self._loaded.decoding.max_length
        requests = [
            Request(
                part.ids, most or loaded.limit(len(part.ids)), part.prefix, part.lexical, part.marks
            )
            for part in parts
        ]
        try:
            shifted = None if on_found is None else (lambda number: on_found(first + number))
            lists = search(loaded.engine, requests, options, shifted)
        except NonFiniteError as error:
            text = loaded.vocabularies.src.decode(requests[error.sentence].source)
            raise RunError(
                f"{loaded.name}: the best next token of a translation has the log-probability "
                f"{error.value}, not a finite number, for the text {text[:60]!r}; use another model"
            ) from None
        return [
            [Candidate(self._text(part, hypothesis), hypothesis) for hypothesis in hypotheses]
            for part, hypotheses in zip(parts, lists, strict=True)
        ]

    def _head_blocks(
        self, parts: Sequence[Part], lists: Sequence[Sequence[Candidate]]
    ) -> list[AttentionBlocks | None]:
        """Decode the best candidates again for the weights of heads: search keeps their mean."""
        pairs = [
            (part.ids, candidates[0].hypothesis.ids[:-1])
            for part, candidates in zip(parts, lists, strict=True)
            if part.return_attention
        ]
        sources, targets = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        decoded = iter(forced_decodings(self._loaded.engine, sources, targets, return_heads=True))
        return [
            as_blocks(next(decoded).head_weights) if part.return_attention else None
            for part in parts
        ]

    def _translation(
        self, part: Part, candidates: Sequence[Candidate], head_blocks: AttentionBlocks | None
    ) -> Translation:
        """Return the translation of a part by its n-best candidates; the first has the heads."""
        src, tgt, names = self._loaded.vocabularies
        spellings = names.spellings(part.masked) if names else {}
        n_best = [
            NBestEntry(
                text,
                hypothesis.score,
                with_names(tgt.tokens(hypothesis.ids), spellings),
                list(hypothesis.log_probs),
                as_blocks(hypothesis.attention_weights) if part.return_attention else None,
            )
            for text, hypothesis in candidates
        ]
        n_best[0] = replace(n_best[0], head_blocks=head_blocks)
        tokens = with_names([*src.tokens(part.ids), "</s>"], part.masked.names)
        notes = notes_on_coverage(tokens, candidates[0].hypothesis.attention_weights)
        numbers = self._loaded.source.notes_on_numbers
        notes += numbers(f"{part.head}{part.masked.text}{part.tail}", candidates[0].text)
        if part.terms:
            notes.append(_UNPLACED + ", ".join({term.target: 0 for term in part.terms}))
        return Translation(n_best, tokens, notes=notes)

    def _text(self, part: Part, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, or the source if it is blank."""
        tgt = self._loaded.vocabularies.tgt
        if self._loaded.decoding.replace_unknown:
            text = text_with_words(part, hypothesis, tgt, self._requirements)
        else:
            text = tgt.decode(hypothesis.ids, part.prefix.words)
        text = self._steps.undo(part, _one_line(text))
        return self._source_text(part) if is_blank(text) else text

    def _source_text(self, part: Part) -> str:
        """Return the source of a part as its translation, unless it is forbidden."""
        text = " ".join(part.words) or self._loaded.vocabularies.src.decode(part.ids)
        text = self._steps.undo(part, _one_line(text))
        return UNKNOWN if self._requirements.is_forbidden(text) else text


def _by_utility(
    candidates: Sequence[Candidate], metric: Metric, options: SearchOptions
) -> list[Candidate]:
    """Rank by utility, with samples of equal weights, and hypotheses by their probability."""
    totals = [sum(candidate.hypothesis.log_probs) for candidate in candidates]
    weights = [1.0 if options.sampling else math.exp(total - max(totals)) for total in totals]
    utilities = nbest.expected_utilities(
        [candidate.text for candidate in candidates], weights, metric
    )
    order = sorted(range(len(candidates)), key=lambda number: -utilities[number])
    return nbest.merged([candidates[number] for number in order])


def _one_line(text: str) -> str:
    return LINE_BREAKS.sub(" ", text).strip()


def text_with_words(
    part: Part, hypothesis: Hypothesis, vocabulary: Vocabulary, requirements: Requirements
) -> str:
    """Return the text, with attended source words for unknown ones (Jean et al. 2015)."""
    prefix = part.prefix.words
    copied = [
        UNKNOWN if requirements.is_forbidden(word) else word
        for word in _attended_words(part, hypothesis)[len(prefix) :]
    ]
    text = vocabulary.decode(hypothesis.ids, prefix + copied)
    if copied and requirements.is_forbidden(text):  # as a phrase with words beside, or in a prefix
        without = vocabulary.decode(hypothesis.ids, prefix)
        return text if requirements.is_forbidden(without) else without
    return text


def _attended_words(part: Part, hypothesis: Hypothesis) -> Sequence[str]:
    """Return the most attended source word of each unknown token."""
    weights = hypothesis.attention_weights
    if weights is None or not part.words:
        return []
    unknown = np.array(hypothesis.ids) == UNK_ID
    attended = weights[unknown, : len(part.words)].argmax(axis=1)  # not end-of-sentence
    return [part.words[column] for column in attended.tolist()]
