"""Search for the parts of lines: n-best lists of hypotheses become translations."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from seq2seq.data.lines import is_blank
from seq2seq.data.vocabulary.vocabulary import NAME_IDS, UNK_ID, UNKNOWN, normalized
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.mbr import Metric, expected_utilities
from seq2seq.inference.nbest import AttentionBlocks, Candidate, NBestEntry, fill, merged
from seq2seq.inference.requirements import without_forbidden_names
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, SearchOptions
from seq2seq.inference.search.lexical import LexicalMaker, merge
from seq2seq.inference.search.sentences import Request
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.source_lines import LinePart, chunks
from seq2seq.inference.translation import LINE_BREAKS, Translation, with_names
from seq2seq.names.names import Masked
from seq2seq.runtime.errors import RunError


class PartSearch:
    """Translates parts of lines by the searches of one model."""

    def __init__(self, loaded: LoadedModel, forbidden: Forbidden | None) -> None:
        self._loaded, self._forbidden = loaded, forbidden

    def translate(
        self,
        parts: Sequence[LinePart],
        options: SearchOptions,
        n_best: int,
        on_found: Callable[[int], None] | None,
        settings: SearchSettings,
    ) -> Iterator[Translation]:
        """Yield the translation of each part."""
        mbr = settings.mbr
        kept = None if n_best > 1 or mbr or options.sampling else 1
        if kept and self._forbidden is None:
            options = options._replace(returned=1)
        for rows in chunks(parts):
            found = self._search_parts(
                parts[rows], options, on_found and partial(_call_shifted, on_found, rows.start)
            )
            own = list(parts[rows])
            for number, part in self._with_lost_names(own, found).items():
                own[number], found[number] = part, self._search_parts([part], options)[0]
            for number, part in self._with_forbidden_names(own, found).items():
                own[number], found[number] = part, self._search_parts([part], options)[0]
            while constrained := self._with_missing_words(own, found, options):
                again = self._search_parts([*constrained.values()], options)
                for (number, part), hypotheses in zip(constrained.items(), again, strict=True):
                    own[number], found[number] = part, hypotheses
            lists = [
                self._candidates(part, hypotheses[:kept])
                for part, hypotheses in zip(own, found, strict=True)
            ]
            if mbr is not None:
                lists = [_by_utility(each, mbr, options) for each in lists]
            elif options.sampling is None:
                lists = [merged(each) for each in lists]
                fill(lists, n_best, options.size, self._wider(own, options))
            lists = [candidates[:n_best] for candidates in lists]
            heads = self._head_blocks(own, lists) if settings.head_attention else [None] * len(own)
            yield from map(self._translation, own, lists, heads)

    def _wider(
        self, parts: Sequence[LinePart], options: SearchOptions
    ) -> Callable[[list[int], int], list[list[Candidate]]]:
        """Return a function that searches some of the parts with a larger beam."""

        def search_again(numbers: list[int], size: int) -> list[list[Candidate]]:
            short = [parts[number] for number in numbers]
            wide = options._replace(size=size)
            found = self._search_parts(short, wide)
            return [self._candidates(*each) for each in zip(short, found, strict=True)]

        return search_again

    def _with_lost_names(
        self, parts: Sequence[LinePart], lists: Sequence[Sequence[Hypothesis]]
    ) -> dict[int, LinePart]:
        """Return parts whose best translations lack a name, with all their names masked.

        But for names whose spellings are forbidden.
        """
        if (names := self._loaded.vocabularies.names) is None:
            return {}
        found = {}
        for number, (part, hypotheses) in enumerate(zip(parts, lists, strict=True)):
            if names.loses(part.masked, self._text(part, hypotheses[0])):
                masked = without_forbidden_names(
                    names.mask_more(part.masked), names, self._forbidden, part.masked.names
                )
                if masked.names == part.masked.names:
                    continue
                (ids,) = self._loaded.vocabularies.src.encode([masked.text])
                found[number] = part._replace(ids=ids, masked=masked)
        return found

    def _with_forbidden_names(
        self, parts: Sequence[LinePart], lists: Sequence[Sequence[Hypothesis]]
    ) -> dict[int, LinePart]:
        """Return parts in whose translations names make forbidden text, with their names as words.

        A name may do so with its ending, or with the text beside it. Parts that have a prefix, or
        names in phrases that they must contain, are left as they are.
        """
        found: dict[int, LinePart] = {}
        if self._loaded.vocabularies.names is None or self._forbidden is None:
            return found
        for number, (part, hypotheses) in enumerate(zip(parts, lists, strict=True)):
            phrases = part.lexical.phrases
            if part.prefix.states or any(i in NAME_IDS for phrase in phrases for i in phrase):
                continue
            texts = (self._text(part, each) for each in hypotheses if part.masked.names)
            if any(map(self._is_forbidden, texts)):
                masked = Masked(part.masked.written, {})
                (ids,) = self._loaded.vocabularies.src.encode([masked.text])
                found[number] = part._replace(ids=ids, masked=masked)
        return found

    def _with_missing_words(
        self,
        parts: Sequence[LinePart],
        lists: Sequence[Sequence[Hypothesis]],
        options: SearchOptions,
    ) -> dict[int, LinePart]:
        """Return parts whose best translations lack a word to be copied, with it as a constraint.

        None is returned again with the same constraints. Samples and groups of a diverse beam
        cannot be constrained.
        """
        if options.sampling is not None or options.groups > 1:
            return {}
        habits, found = self._loaded.source.copied, {}
        for number, (part, hypotheses) in enumerate(zip(parts, lists, strict=True)):
            if not (words := habits.copied_in(normalized(part.masked.text))):
                continue
            text = self._text(part, hypotheses[0])
            missing = [w for w in words if w not in text and not self._is_forbidden(w)]
            if missing:
                lexical = merge(part.lexical, self._lexical_maker.possible(missing))
                if lexical != part.lexical:
                    found[number] = part._replace(lexical=lexical)
        return found

    @cached_property
    def _lexical_maker(self) -> LexicalMaker:
        return LexicalMaker(self._loaded.vocabularies.tgt)

    def _search_parts(
        self,
        parts: Sequence[LinePart],
        options: SearchOptions,
        on_found: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each part; raises RunError if the model's output overflows."""
        loaded, most = self._loaded, self._loaded.decoding.max_length
        requests = [
            Request(part.ids, most or loaded.limit(len(part.ids)), part.prefix, part.lexical)
            for part in parts
        ]
        try:
            return loaded.search(requests, options, on_found)
        except NonFiniteError as error:
            text = loaded.vocabularies.src.decode(requests[error.sentence].source)
            raise RunError(
                f"{loaded.name}: the best next token of a translation has the log-probability "
                f"{error.value}, not a finite number, for the text {text[:60]!r}; use another model"
            ) from None

    def _candidates(self, part: LinePart, hypotheses: Sequence[Hypothesis]) -> list[Candidate]:
        return [Candidate(self._text(part, each), each) for each in hypotheses]

    def _head_blocks(
        self, parts: Sequence[LinePart], lists: Sequence[Sequence[Candidate]]
    ) -> list[AttentionBlocks | None]:
        """Return the weights of each head for the best candidate of each part, decoded again.

        Search keeps the mean of the heads alone.
        """
        from seq2seq.inference.scoring import as_blocks, forced_decodings

        wanted = [
            (part.ids, candidates[0].hypothesis.ids[:-1])
            for part, candidates in zip(parts, lists, strict=True)
            if part.return_attention
        ]
        sources, targets = [src for src, _ in wanted], [tgt for _, tgt in wanted]
        found = iter(forced_decodings(self._loaded.engine, sources, targets, return_heads=True))
        return [
            as_blocks(next(found).head_weights) if part.return_attention else None for part in parts
        ]

    def _translation(
        self, part: LinePart, candidates: Sequence[Candidate], head_blocks: AttentionBlocks | None
    ) -> Translation:
        """Return the translation of a part by its n-best candidates; the first has the heads."""
        src, tgt, names = self._loaded.vocabularies
        spellings = names.spellings(part.masked) if names else {}
        n_best = [
            NBestEntry(
                text,
                each.score,
                with_names(tgt.tokens(each.ids), spellings),
                list(each.log_probs),
                _blocks(each) if part.return_attention else None,
            )
            for text, each in candidates
        ]
        n_best[0] = replace(n_best[0], head_blocks=head_blocks)
        return Translation(n_best, with_names([*src.tokens(part.ids), "</s>"], part.masked.names))

    def _text(self, part: LinePart, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, or the source if it is blank."""
        src, _, names = self._loaded.vocabularies
        text = self._as_given(part, self._decoded(part, hypothesis))
        if is_blank(text):
            text = self._as_given(part, " ".join(part.words) or src.decode(part.ids))
            text = UNKNOWN if self._is_forbidden(text) else text
        return text if names is None else names.restore(text, part.masked)

    def _decoded(self, part: LinePart, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, with source words for unknown ones unless forbidden."""
        decode, words = self._loaded.vocabularies.tgt.decode, part.prefix.words
        if not self._loaded.decoding.replace_unknown:
            return decode(hypothesis.ids, words)
        copied = _attended_words(part, hypothesis)[len(words) :]
        copied = [UNKNOWN if self._is_forbidden(word) else word for word in copied]
        text = decode(hypothesis.ids, words + copied)
        if copied and self._is_forbidden(text):  # as a phrase with the words beside, or in a prefix
            without = decode(hypothesis.ids, words)
            return text if self._is_forbidden(without) else without
        return text

    def _is_forbidden(self, text: str) -> bool:
        return self._forbidden is not None and self._forbidden.occurs_in(text)

    def _as_given(self, part: LinePart, text: str) -> str:
        """Return a text in one line, without the final mark that was added to its part."""
        text = _one_line(text)
        return self._loaded.source.without_final_mark(text) if part.drops_mark else text


def _by_utility(
    candidates: Sequence[Candidate], metric: Metric, options: SearchOptions
) -> list[Candidate]:
    """Return one candidate per text, by expected utility.

    Samples are weighted equally, hypotheses of a beam by their probability.
    """
    totals = [sum(each.hypothesis.log_probs) for each in candidates]
    weights = [1.0 if options.sampling else math.exp(each - max(totals)) for each in totals]
    utilities = expected_utilities([each.text for each in candidates], weights, metric)
    order = sorted(range(len(candidates)), key=lambda number: -utilities[number])
    return merged([candidates[number] for number in order])


def _call_shifted(on_found: Callable[[int], None], start: int, number: int) -> None:
    on_found(start + number)


def _one_line(text: str) -> str:
    """Replace line breaks by spaces and strip white space."""
    return LINE_BREAKS.sub(" ", text).strip()


def _attended_words(part: LinePart, hypothesis: Hypothesis) -> list[str]:
    """Return the most attended source word of each unknown token.

    Jean et al. (2015) translate that word by a dictionary if they can; here it is copied.
    """
    weights = hypothesis.attention_weights
    if weights is None or not part.words:
        return []
    unknown = np.array(hypothesis.ids) == UNK_ID
    attended = weights[unknown, : len(part.words)].argmax(axis=1)  # not end-of-sentence
    return [part.words[i] for i in attended.tolist()]


def _blocks(hypothesis: Hypothesis) -> AttentionBlocks | None:
    """Copy the weights [T, S] of one hypothesis, a part of those of its beam."""
    weights = hypothesis.attention_weights
    return None if weights is None else AttentionBlocks([weights.copy()])
