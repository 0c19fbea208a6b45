"""Translations of the parts of lines: one search, and at most one repair, of each."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from seq2seq.data.vocabulary.vocabulary import NAME_IDS, UNK_ID, UNKNOWN, Ids
from seq2seq.inference import attention_map, loading, nbest, scoring, terms
from seq2seq.inference.giving_way import weaker_searches
from seq2seq.inference.lines import bounded_slices
from seq2seq.inference.nbest import AttentionBlocks, Candidate, Metric, NBestEntry
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, Request, SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.inference.text_steps import LineSteps, Part
from seq2seq.inference.translation import LINE_BREAKS, Translation, with_names
from seq2seq.runtime.errors import RunError
from seq2seq.text.characters import is_blank, normalized
from seq2seq.text.names.names import Masked

Lists = list[list[Candidate]]
OnFound = Callable[[int], None] | None
_GAVE_WAY = "no translation obeys all rules of its search; left out: "
_UNPLACED = "terms of the glossary that replace no word, but are required: "


class PartSearch:
    """Translates parts of lines by the searches of one model."""

    def __init__(
        self, loaded: loading.LoadedModel, steps: LineSteps, options: SearchOptions, n_best: int
    ) -> None:
        self._loaded, self._steps, self._requirements = loaded, steps, steps.requirements
        is_single = not (n_best > 1 or steps.settings.mbr or options.sampling)
        if is_single and self._requirements.forbidden is None:
            options = options._replace(returned=1)
        self._options, self._n_best = options, n_best

    def translate(self, parts: list[Part], on_found: OnFound) -> Iterator[Translation]:
        """Yield the translation of each part."""
        settings, n_best, mbr = self._steps.settings, self._n_best, self._steps.settings.mbr
        lengths = [(len(part.ids) + 1, len(part.prefix.states)) for part in parts]
        for rows in bounded_slices([source * (source + prefix) for source, prefix in lengths]):
            chunk = parts[rows]
            placed = self._with_placed_terms(chunk) if mbr is None else {}
            for number, part in placed.items():
                chunk[number] = part if n_best == 1 else replace(chunk[number], terms=())
            lists = self._search(chunk, on_found, rows.start)
            self._repair(chunk, lists)
            if mbr is not None:
                lists = [self._by_utility(candidates, mbr) for candidates in lists]
            elif self._options.sampling is None:
                lists = [nbest.merged(candidates) for candidates in lists]
                nbest.fill(lists, n_best, self._options.size, partial(self._wide, chunk))
                if n_best > 1 and placed:
                    self._put_first(placed, lists)
            lists = [candidates[:n_best] for candidates in lists]
            no_heads = [None] * len(chunk)
            heads = self._head_blocks(chunk, lists) if settings.head_attention else no_heads
            yield from map(self._translation, chunk, lists, heads)

    def _with_placed_terms(self, parts: Sequence[Part]) -> dict[int, Part]:
        """Return the parts with terms of the glossary that have a place in a free translation."""
        numbers = [number for number, part in enumerate(parts) if part.terms]
        if not numbers:
            return {}
        free = [replace(parts[number], lexical=parts[number].phrases) for number in numbers]
        searched = self._search(free, returned=1, return_attention=True)
        placed = {}
        for number, (best,) in zip(numbers, searched, strict=True):
            part = terms.placed(parts[number], best.hypothesis, self._loaded.vocabularies)
            if part is None or len(part.prefix.states) <= self._options.min_length:
                continue
            tokens = [int(state.tokens[0]) for state in part.prefix.states]  # all are fixed
            text = self._loaded.vocabularies.tgt.decode(tokens)
            if not self._requirements.is_forbidden(text):
                placed[number] = part
        return placed

    def _by_utility(self, candidates: Sequence[Candidate], metric: Metric) -> list[Candidate]:
        """Rank by utility, with samples of equal weights, and hypotheses by their probability."""
        totals = [sum(candidate.hypothesis.log_probs) for candidate in candidates]
        weights = [1.0 if self._options.sampling else math.exp(t - max(totals)) for t in totals]
        texts = [candidate.text for candidate in candidates]
        utilities = nbest.expected_utilities(texts, weights, metric)
        order = sorted(range(len(candidates)), key=lambda number: -utilities[number])
        return nbest.merged([candidates[number] for number in order])

    def _put_first(self, placed: dict[int, Part], lists: Lists) -> None:
        searched = self._search([*placed.values()], returned=1)
        for number, (first,) in zip(placed, searched, strict=True):
            lists[number] = [first, *nbest.below(first, lists[number])]

    def _wide(self, parts: list[Part], rows: list[int], size: int) -> Lists:
        return self._search([parts[row] for row in rows], size=size)

    def _repair(self, parts: list[Part], lists: Lists) -> None:
        """Search the parts again, once, whose best translations lack what they must have."""
        repaired = {
            number: replace(better, left_out_rules=())
            for number, (part, candidates) in enumerate(zip(parts, lists, strict=True))
            if (better := self._repaired(part, candidates)) != part
        }
        searched = self._search([*repaired.values()]) if repaired else []
        for (number, part), candidates in zip(repaired.items(), searched, strict=True):
            if not self._requirements.is_forbidden(candidates[0].text):
                parts[number], lists[number] = part, candidates

    def _repaired(self, part: Part, candidates: list[Candidate]) -> Part:
        """Return a part as it is to be searched again: unchanged if nothing is missing.

        Its names are words if one makes forbidden text; all are masked if the translation lost one;
        all words are required that are to be copied, if one is missing.
        """
        names, is_forbidden = self._loaded.vocabularies.names, self._requirements.is_forbidden
        if names is not None:
            required = any(
                token in NAME_IDS for phrase in part.lexical.phrases for token in phrase.tokens
            )
            is_free = part.masked.names and not part.prefix.states and not required
            if is_free and any(is_forbidden(candidate.text) for candidate in candidates):
                return self._steps.encoded(part, Masked(part.masked.written, {}))
            if names.loses(part.masked, candidates[0].text):
                masked = self._requirements.allowed(names.mask_more(part.masked), part.masked.names)
                if masked.names != part.masked.names:
                    part = self._steps.encoded(part, masked)
        if self._options.sampling is not None or self._options.groups > 1:  # cannot be constrained
            return part
        words = self._loaded.source.copied.copied_in(normalized(part.masked.text))
        words = [word for word in words if not is_forbidden(word)]
        text = self._text(part, candidates[0].hypothesis) if words else ""
        if any(word not in text for word in words):
            return replace(part, lexical=self._requirements.with_words(part.lexical, words))
        return part

    def _search(
        self, parts: list[Part], on_found: OnFound = None, first: int = 0, **changed: Any
    ) -> Lists:
        """Return the hypotheses of each part, at least one, with some options `changed`.

        Raises RunError if the model's output overflows.
        """
        options = self._options._replace(**changed)
        lists = self._hypotheses(parts, options, on_found, first)
        for number, part in enumerate(parts):
            if not lists[number]:
                lists[number] = self._with_weaker_rules(part, options)
        return lists

    def _with_weaker_rules(self, part: Part, options: SearchOptions) -> list[Candidate]:
        """Return the hypotheses of a part to which all rules leave none; note those left out."""
        left_out = list[str]()
        for rule, (weaker, weaker_options) in weaker_searches(part, options):
            left_out.append(rule)
            (candidates,) = self._hypotheses([weaker], weaker_options)
            if candidates:
                part.left_out_rules = left_out
                return candidates
        raise self._no_translation(part.ids, "no token may follow")

    def _hypotheses(
        self,
        parts: Sequence[Part],
        options: SearchOptions,
        on_found: OnFound = None,
        first: int = 0,
    ) -> Lists:
        """Return the hypotheses of each part; raises RunError if the model's output overflows."""
        loaded, most = self._loaded, self._loaded.decoding.max_length
        limits = [most or loaded.limit(len(part.ids)) for part in parts]
        requests = [
            Request(part.ids, limit, part.prefix, part.lexical, part.marks)
            for part, limit in zip(parts, limits, strict=True)
        ]
        try:
            shifted = None if on_found is None else (lambda number: on_found(first + number))
            lists = search(loaded.engine, requests, options, shifted)
        except NonFiniteError as error:
            fault = f"the best next token of a translation has the log-probability {error.value}"
            source = requests[error.sentence].source
            raise self._no_translation(source, f"{fault}, not a finite number") from None
        return [
            [Candidate(self._text(part, hypothesis), hypothesis) for hypothesis in hypotheses]
            for part, hypotheses in zip(parts, lists, strict=True)
        ]

    def _no_translation(self, source: Ids, fault: str) -> RunError:
        text = self._loaded.vocabularies.src.decode(source)[:60]
        return RunError(f"{self._loaded.name}: {fault}, for the text {text!r}; use another model")

    def _head_blocks(
        self, parts: Sequence[Part], lists: Sequence[Sequence[Candidate]]
    ) -> list[AttentionBlocks | None]:
        """Decode the best candidates again for the weights of heads: search keeps their mean."""
        pairs = [
            (part.ids, candidates[0].hypothesis.ids[:-1])
            for part, candidates in zip(parts, lists, strict=True)
            if part.return_attention
        ]
        decoded = iter(scoring.forced_decodings(self._loaded.engine, pairs, heads=True))
        return [
            scoring.as_blocks(next(decoded).head_weights) if part.return_attention else None
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
                scoring.as_blocks(hypothesis.attention_weights) if part.return_attention else None,
            )
            for text, hypothesis in candidates
        ]
        n_best[0] = replace(n_best[0], head_blocks=head_blocks)
        tokens = with_names([*src.tokens(part.ids), "</s>"], part.masked.names)
        notes = attention_map.notes_on_coverage(tokens, candidates[0].hypothesis.attention_weights)
        numbers = self._loaded.source.notes_on_numbers
        notes += numbers(f"{part.head}{part.masked.text}{part.tail}", candidates[0].text)
        if part.left_out_rules:
            notes.append(_GAVE_WAY + ", ".join(part.left_out_rules))
        elif part.terms:
            notes.append(_UNPLACED + ", ".join({term.target: 0 for term in part.terms}))
        return Translation(n_best, tokens, notes=notes)

    def _text(self, part: Part, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, or the source if it is blank."""
        text = self._steps.undo(part, _one_line(self._decoded(part, hypothesis)))
        if not is_blank(text):
            return text
        text = " ".join(part.words) or self._loaded.vocabularies.src.decode(part.ids)
        text = self._steps.undo(part, _one_line(text))
        return UNKNOWN if self._requirements.is_forbidden(text) else text

    def _decoded(self, part: Part, hypothesis: Hypothesis) -> str:
        """Return the text; attended source words may replace unknown ones (Jean et al. 2015)."""
        decode, prefix = self._loaded.vocabularies.tgt.decode, part.prefix.words
        words, weights = list[str](), hypothesis.attention_weights
        if self._loaded.decoding.replace_unknown and weights is not None and part.words:
            unknown = np.array(hypothesis.ids) == UNK_ID
            attended = weights[unknown, : len(part.words)].argmax(axis=1)  # not end-of-sentence
            words = [part.words[column] for column in attended.tolist()]
        is_forbidden = self._requirements.is_forbidden
        copied = [UNKNOWN if is_forbidden(word) else word for word in words[len(prefix) :]]
        text = decode(hypothesis.ids, prefix + copied)
        if copied and is_forbidden(text):  # as a phrase with words beside, or in a prefix
            without = decode(hypothesis.ids, prefix)
            return text if is_forbidden(without) else without
        return text


def _one_line(text: str) -> str:
    return LINE_BREAKS.sub(" ", text).strip()
