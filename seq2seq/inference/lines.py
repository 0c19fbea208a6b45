"""Text around search: what steps make of a line before search, and undo in its translations.

A line passes the list of steps once: its language tag, its final mark, its sentences, its names and
its length. Each may change the text of the line's parts, split them, or add to what is required of
their translations; `undo` takes back in a translation what a step added to a source.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from seq2seq.data.lines import is_blank
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.vocabulary import Ids, Vocabularies
from seq2seq.inference.line_splitting import split_line
from seq2seq.inference.requirements import Requirements, phrase_lists, prefix_texts
from seq2seq.inference.search.lexical import MAX_TOKENS
from seq2seq.inference.search.prefixes import NO_PREFIX
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.text_steps import (
    AffixesAside,
    Characters,
    Copies,
    FinalMarks,
    LineStep,
    NameMasks,
    Part,
    Sentences,
    SourceLine,
    Tags,
)
from seq2seq.names.names import Masked
from seq2seq.runtime import argument_types

_LONG = "longer than data.max_length; translated in parts"
_LEFT_OUT = "text without spaces that exceeds the length limit; only its start was translated"
_MANY_TERMS = (
    f"glossary terms of more than {MAX_TOKENS} tokens in a line; only the first ones were required"
)
_BLANK_CONSTRAINED = "blank lines stay blank, without their constraints"
MAX_ATTENTION_TOKENS = 2000  # attention weights of longer lines, quadratic in length, are dropped
MAX_SQUARED_LENGTHS = 10_000_000  # searched at once, to bound the memory of attention weights


class LineSteps:
    """The steps from lines to parts with ids, and from the text of a part to that of its line."""

    def __init__(
        self,
        vocabularies: Vocabularies,
        source: SourceProfile,
        max_length: int,
        requirements: Requirements,
        settings: SearchSettings,
    ) -> None:
        """Take the model's vocabularies, and what its training text and limits were like."""
        self._vocabularies, self._source, self._max_length = vocabularies, source, max_length
        self._requirements, self._settings = requirements, settings
        names = vocabularies.names
        tags, marks = Tags(source, vocabularies.src), FinalMarks(source)
        masks = [] if names is None else [NameMasks(names, requirements, settings)]
        self._completing: list[LineStep] = [tags, marks]
        aside = AffixesAside(source)
        self._steps: list[LineStep] = [
            *(tags, Copies(source), aside, Characters(source), marks),
            *(Sentences(source), aside, *masks, tags, marks),
        ]
        self._undone: list[LineStep] = [marks, *masks, aside]
        self._prefix = cache(requirements.prefix)

    def prepare(
        self,
        lines: Sequence[str],
        prefixes: Iterable[str] | None,
        constraints: Iterable[Sequence[str]] | None,
        return_attention: bool = True,
    ) -> list[SourceLine]:
        """Return the lines with their parts; arguments are those of `Translator.stream`."""
        starts = prefix_texts(lines, prefixes)
        required = phrase_lists(lines, constraints)
        prepared = [
            SourceLine(*texts, parts=[Part(Masked(texts[0], {}))])
            for texts in zip(lines, starts, required, strict=True)
        ]
        for line in prepared:
            line.notes += self._source.notes(line.text)
            for step in self._steps:
                step.apply(line)
        self._encode(prepared)
        for number, line in enumerate(prepared, start=1):
            if line.is_copied:
                continue
            if is_blank(line.text) or not any(part.ids for part in line.parts):
                line.notes = [_BLANK_CONSTRAINED] if line.phrases else []
                line.parts = []
            self._shorten(line)
            self._require(number, line, return_attention)
        return prepared

    def undo(self, part: Part, text: str) -> str:
        """Return the translation of a part as it belongs into the translation of its line."""
        for step in self._undone:
            text = step.undo(part, text)
        return text

    def encoded(self, part: Part, masked: Masked) -> Part:
        """Return a part with its names masked in another way."""
        (ids,) = self._vocabularies.src.encode([masked.text])
        return replace(part, masked=masked, ids=ids)

    def _encode(self, lines: Sequence[SourceLine]) -> None:
        """Set the ids of all parts, in one call."""
        texts = [part.masked.text for line in lines for part in line.parts]
        ids = iter(self._vocabularies.src.encode(texts))
        for line in lines:
            line.parts = [replace(part, ids=next(ids)) for part in line.parts]

    def _shorten(self, line: SourceLine) -> None:
        """Split parts that have too many tokens; the end of endless words is omitted."""
        if all(len(part.ids) <= self._max_length for part in line.parts):
            return
        src = self._vocabularies.src
        (mark,) = src.encode(["".join(self._source.final_marks[:1])])
        room = max(1, self._max_length - len((line.tag or "").split()) - len(mark))

        def shorter(part: Part) -> list[str]:
            texts, omitted = split_line(part.masked.text, src, room)
            line.left_out = line.left_out or omitted
            return texts

        line.cut(shorter)
        for step in self._completing:
            step.apply(line)
        self._encode([line])
        line.notes += [_LONG, _LEFT_OUT] if line.left_out else [_LONG]

    def _require(self, number: int, line: SourceLine, return_attention: bool) -> None:
        """Set what is required of the parts of line `number`, and the words of their sources."""
        src, tokens = self._vocabularies.src, sum(len(part.ids) for part in line.parts)
        return_attention = return_attention and tokens <= MAX_ATTENTION_TOKENS
        for place, part in enumerate(line.parts):
            part = self._with_phrases(part, line, [] if place else line.phrases, number)
            line.parts[place] = replace(
                part,
                words=[] if src.has_byte_fallback else src.words(part.masked.text),
                prefix=NO_PREFIX if place else self._prefix(line.prefix),
                marks=self._requirements.waiting_marks(part.masked.text),
                return_attention=return_attention,
            )

    def _with_phrases(
        self, part: Part, line: SourceLine, phrases: Sequence[str], number: int
    ) -> Part:
        """Require phrases of the translation of a part, and the terms of the glossary."""
        glossary = self._settings.glossary
        occurrences = [] if glossary is None else glossary.occurrences(part.masked.text)
        terms = [term.target for term in occurrences]
        if not phrases and not terms:
            return part
        place = f"constraints of line {number}"
        lexical = self._requirements.lexical(phrases, part.masked, place, terms)
        is_complete = sum(lexical.counts) == len(phrases) + len(terms)
        if terms and not is_complete:
            line.notes.append(_MANY_TERMS)
        marked = any(map(self._source.ends_in_mark, (*phrases, *terms)))
        alone = self._requirements.lexical(phrases, part.masked, place) if terms else lexical
        return replace(
            part,
            lexical=lexical,
            phrases=alone,
            terms=occurrences if is_complete else (),
            lacks_mark=part.lacks_mark and not marked,
        )


def line_list(lines: Iterable[str], name: str) -> list[str]:
    """Return the lines of an ordered iterable, without their line ends (as of an open file).

    Raises TypeError for anything but strings.
    """
    return [
        line[:-1].removesuffix("\r") if line.endswith("\n") else line
        for line in argument_types.text_list(lines, name)
    ]


def has_no_tokens(line: str, ids: Ids) -> bool:
    """Return True if a line with these ids contains nothing to translate."""
    return is_blank(line) or not ids


def counted(
    lines: Sequence[SourceLine], on_translated: Callable[[int], object] | None
) -> Callable[[int], None] | None:
    """Return a function to call with the number of each part; it reports completed lines."""
    if on_translated is None:
        return None
    if not callable(on_translated):
        raise TypeError(
            f"on_translated: must be a function of a number of lines, not {on_translated!r:.60}"
        )
    if blank := sum(not line.parts for line in lines):
        on_translated(blank)
    left = [len(line.parts) for line in lines]
    line_of = [number for number, line in enumerate(lines) for _ in line.parts]

    def count(part: int) -> None:
        left[line_of[part]] -= 1
        if not left[line_of[part]]:
            on_translated(1)

    return count


def chunks(parts: Sequence[Part]) -> Iterator[slice]:
    """Yield slices of parts to search at once, bounded by MAX_SQUARED_LENGTHS."""
    lengths = [(len(part.ids) + 1, len(part.prefix.states)) for part in parts]
    return bounded_slices([source * (source + prefix) for source, prefix in lengths])


def bounded_slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield slices, each of which ends where its sizes exceed MAX_SQUARED_LENGTHS in total."""
    start = total = 0
    for end, size in enumerate(sizes):
        total += size
        if total > MAX_SQUARED_LENGTHS:
            yield slice(start, end + 1)
            start, total = end + 1, 0
    if start < len(sizes):
        yield slice(start, len(sizes))
