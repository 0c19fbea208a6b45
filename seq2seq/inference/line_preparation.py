"""Lines before search: the steps that they pass, and the request that each of their parts makes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from seq2seq.data.vocabulary.vocabulary import Ids, Vocabulary
from seq2seq.inference.lines import MAX_ATTENTION_TOKENS
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.requirements import Requirements, phrase_lists, prefix_texts
from seq2seq.inference.search.interface import Request, SearchOptions
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_LEXICAL, NO_PREFIX, Lexical
from seq2seq.inference.searched_part import RequestedSearch, SearchedPart
from seq2seq.inference.settings import SearchSettings
from seq2seq.text import steps
from seq2seq.text.line import Line, Part, line_of
from seq2seq.text.names.names import Masked

_MANY_TERMS = (
    f"glossary terms of more than {MAX_TOKENS} tokens in a line; only the first ones were required"
)


@dataclass
class PreparedPart:
    """A part of a line, and what is requested of its translation."""

    part: Part
    request: Request
    phrases_without_terms: Lexical  # what it must contain but for a glossary's terms
    words: Sequence[str]  # of the source, if its vocabulary is of words
    return_attention: bool  # False for very long lines

    def searched(self, options: SearchOptions) -> SearchedPart:
        """Return a part that is to be searched, without candidates."""
        required = self.phrases_without_terms
        search = RequestedSearch(self.part, self.request, options, required, self.words)
        return SearchedPart(search, self.return_attention)


@dataclass
class PreparedLine:
    """A line that has passed the steps, with its parts."""

    line: Line
    parts: list[PreparedPart]


class PreparedLines(list[PreparedLine]):
    """Lines as `Translator.prepare` returns them, which `Translator.translate` takes as well."""

    @property
    def are_constrained(self) -> bool:
        """Return whether a translation has to contain something."""
        return any(part.request.lexical.phrases for line in self for part in line.parts)


class _Tokenizer:
    """Tokens of texts that occur again: a step measures a text, and then it is searched."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._ids: dict[str, Ids] = {}
        self.cuts = vocabulary.cuts

    def encode(self, texts: Iterable[str]) -> list[Ids]:
        """Return the ids of each text."""
        texts = list(texts)
        if unknown := [text for text in texts if text not in self._ids]:
            self._ids.update(zip(unknown, self._vocabulary.encode(unknown), strict=True))
        return [self._ids[text] for text in texts]


class Preparation:
    """Prepares lines for the searches of one model, and undoes in translations what it did."""

    def __init__(
        self, loaded: LoadedModel, requirements: Requirements, settings: SearchSettings
    ) -> None:
        self._loaded = loaded
        self._src, _, self._names = loaded.vocabularies
        self._tokenizer = _Tokenizer(self._src)
        self._prefix = cache(requirements.prefix)
        self.requirements = requirements
        glossary = settings.glossary and settings.glossary.read_as(loaded.source.ordinary)
        self.steps = steps.steps_of(
            steps.StepContext(
                profile=loaded.source,
                tokenizer=self._tokenizer,
                symbols=self._src.symbols,
                max_length=loaded.max_length,
                names=self._names,
                glossary=glossary,
                adds_uncertain_names=settings.written_names,
                is_forbidden=requirements.is_forbidden,
            )
        )

    def prepare(
        self,
        texts: Sequence[str],
        prefixes: Iterable[str] | None,
        constraints: Iterable[Sequence[str]] | None,
        return_attention: bool = True,
    ) -> PreparedLines:
        """Return the lines with their parts; arguments are those of `Translator.stream`."""
        required = prefix_texts(len(texts), prefixes), phrase_lists(len(texts), constraints)
        prepared = PreparedLines()
        for number, arguments in enumerate(zip(texts, *required, strict=True), start=1):
            line = line_of(*arguments)
            steps.apply(self.steps, line)
            if line.parts and not any(self._ids(part.text) for part in line.parts):
                steps.blank(line)
            prepared.append(PreparedLine(line, self._parts(line, number, return_attention)))
        return prepared

    def undo(self, part: Part, text: str) -> str:
        """Return the translation of a part as it belongs into the translation of its line."""
        return steps.undo(self.steps, part, text)

    def with_names(self, search: RequestedSearch, masked: Masked) -> RequestedSearch:
        """Return a search whose source has its names masked in another way."""
        part = replace(search.part, masked=masked)
        ids = self._ids(part.text)
        request = search.request._replace(source=ids, limit=self._limit(ids))
        return replace(search, part=part, request=request)

    def _ids(self, text: str) -> Ids:
        (ids,) = self._tokenizer.encode([text])
        return ids

    def _limit(self, ids: Ids) -> int:
        return self._loaded.decoding.max_length or self._loaded.limit(len(ids))

    def _parts(self, line: Line, number: int, return_attention: bool) -> list[PreparedPart]:
        """Return the parts of line `number` with their requests."""
        sources = [self._ids(part.text) for part in line.parts]
        is_short = sum(map(len, sources)) <= MAX_ATTENTION_TOKENS
        parts = []
        for place, (part, ids) in enumerate(zip(line.parts, sources, strict=True)):
            lexical, phrases = self._required(part, line, number)
            prefix = NO_PREFIX if place else self._prefix(line.prefix)
            marks = self.requirements.waiting_marks(part.text)
            request = Request(ids, self._limit(ids), prefix, lexical, marks)
            words = [] if self._src.has_byte_fallback else self._src.words(part.text)
            is_wanted = return_attention and is_short
            parts.append(PreparedPart(part, request, phrases, words, is_wanted))
        return parts

    def _required(self, part: Part, line: Line, number: int) -> tuple[Lexical, Lexical]:
        """Return what is required of the translation of a part, with the terms and without."""
        if not part.phrases and not part.terms:
            return NO_LEXICAL, NO_LEXICAL
        terms = [term.target for term in part.terms]
        place = f"constraints of line {number}"
        lexical = self.requirements.lexical(part.phrases, part.masked, place, terms)
        if not terms:
            return lexical, lexical
        count = sum(phrase.times for phrase in lexical.phrases)
        if count < len(part.phrases) + len(terms):
            line.notes.append(_MANY_TERMS)
            part.terms = ()
        return lexical, self.requirements.lexical(part.phrases, part.masked, place)
