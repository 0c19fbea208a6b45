"""Records of search: what is searched for a part of a line, and what was found."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from seq2seq.inference.nbest import Candidate
from seq2seq.inference.search.interface import Request, SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL, Lexical
from seq2seq.text.line import Part


@dataclass(frozen=True)
class RequestedSearch:
    """A part, what is requested of its translation, and the options of its search."""

    part: Part
    request: Request
    options: SearchOptions
    phrases_without_terms: Lexical = NO_LEXICAL  # what it must contain but for a glossary's terms
    words: Sequence[str] = ()  # of the source, if its vocabulary is of words

    @property
    def requires_terms(self) -> bool:
        """Return whether terms of a glossary are among the required phrases."""
        return self.request.lexical != self.phrases_without_terms

    def with_beam(self, size: int) -> "RequestedSearch":
        """Return the search with a beam of another size."""
        return replace(self, options=replace(self.options, beam_size=size))


@dataclass
class SearchedPart:
    """A part with the candidates of its translation, which passes search and search again."""

    original: RequestedSearch  # by all rules
    search: RequestedSearch = field(init=False)  # the last one whose rules hold for the candidates
    return_attention: bool = True  # False for very long lines
    candidates: list[Candidate] = field(default_factory=list)  # best first
    has_placed_terms: bool = False  # the first candidate: terms of the glossary in their places
    further: list[Candidate] = field(default_factory=list)  # in which terms are yet to be placed
    further_beam: int = 0  # by which the last ones were found, if not that of the search
    scored: set[tuple[int, ...]] = field(default_factory=set)  # ids with the terms in place
    left_out_rules: list[str] = field(default_factory=list)  # together they left no translation

    def __post_init__(self) -> None:
        """Begin with the original search."""
        self.search = self.original

    @property
    def part(self) -> Part:
        """Return the part of the line, as it was searched."""
        return self.search.part
