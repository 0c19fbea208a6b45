"""Text around search: what steps make of a line before search, and undo in its translations.

A line passes the list of steps once: its language tag, its final mark, its sentences, its names and
its length. Each may change the text of the line's parts, split them, or add to what is required of
their translations; `undo` takes back in a translation what a step added to a source.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

from seq2seq.data.lines import is_blank
from seq2seq.data.sentences import split_sentences
from seq2seq.data.vocabulary.vocabulary import Vocabulary
from seq2seq.inference import text_steps
from seq2seq.inference.loading import LoadedModel
from seq2seq.inference.requirements import Requirements, phrase_lists, prefix_texts
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_PREFIX
from seq2seq.inference.settings import SearchSettings
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
        self, loaded: LoadedModel, requirements: Requirements, settings: SearchSettings
    ) -> None:
        self._vocabularies, self._max_length = loaded.vocabularies, loaded.max_length
        self._source = source = loaded.source
        self._requirements, self._settings = requirements, settings
        names, src = loaded.vocabularies.names, loaded.vocabularies.src
        tags, marks = text_steps.Tags(source, src), text_steps.FinalMarks(source)
        aside, masks = text_steps.AffixesAside(source, src), list[text_steps.NameMasks]()
        if names is not None:
            masks = [text_steps.NameMasks(source, names, requirements, settings)]
        self._completing: list[text_steps.LineStep] = [tags, marks]
        self._steps: list[text_steps.LineStep] = [
            *(tags, text_steps.Copies(source), aside, text_steps.Characters(source), marks),
            *(text_steps.Sentences(source), aside, text_steps.Capitals(source)),
            *(*masks, tags, marks),
        ]
        self._undone: list[text_steps.LineStep] = [marks, *masks, aside]
        self._prefix = cache(requirements.prefix)

    def prepare(
        self,
        lines: Sequence[str],
        prefixes: Iterable[str] | None,
        constraints: Iterable[Sequence[str]] | None,
        return_attention: bool = True,
    ) -> list[text_steps.SourceLine]:
        """Return the lines with their parts; arguments are those of `Translator.stream`."""
        starts = prefix_texts(lines, prefixes)
        required = phrase_lists(lines, constraints)
        prepared = [
            text_steps.SourceLine(*texts, parts=[text_steps.Part(Masked(texts[0], {}))])
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

    def undo(self, part: text_steps.Part, text: str) -> str:
        """Return the translation of a part as it belongs into the translation of its line."""
        for step in self._undone:
            text = step.undo(part, text)
        return text

    def encoded(self, part: text_steps.Part, masked: Masked) -> text_steps.Part:
        """Return a part with its names masked in another way."""
        (ids,) = self._vocabularies.src.encode([masked.text])
        return replace(part, masked=masked, ids=ids)

    def _encode(self, lines: Sequence[text_steps.SourceLine]) -> None:
        """Set the ids of all parts, in one call."""
        texts = [part.masked.text for line in lines for part in line.parts]
        ids = iter(self._vocabularies.src.encode(texts))
        for line in lines:
            line.parts = [replace(part, ids=next(ids)) for part in line.parts]

    def _shorten(self, line: text_steps.SourceLine) -> None:
        """Split parts that have too many tokens; the end of endless words is omitted."""
        if all(len(part.ids) <= self._max_length for part in line.parts):
            return
        src = self._vocabularies.src
        (mark,) = src.encode(["".join(self._source.final_marks[:1])])
        room = max(1, self._max_length - len((line.tag or "").split()) - len(mark))

        def shorter(part: text_steps.Part) -> list[str]:
            texts, omitted = split_line(part.masked.text, src, room)
            line.left_out = line.left_out or omitted
            return texts

        line.cut(shorter)
        for step in self._completing:
            step.apply(line)
        self._encode([line])
        line.notes += [_LONG, _LEFT_OUT] if line.left_out else [_LONG]

    def _require(self, number: int, line: text_steps.SourceLine, return_attention: bool) -> None:
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
        self,
        part: text_steps.Part,
        line: text_steps.SourceLine,
        phrases: Sequence[str],
        number: int,
    ) -> text_steps.Part:
        """Require phrases of the translation of a part, and the terms of the glossary."""
        glossary = self._settings.glossary
        occurrences = [] if glossary is None else glossary.occurrences(part.masked.text)
        terms = [term.target for term in occurrences]
        if not phrases and not terms:
            return part
        place = f"constraints of line {number}"
        lexical = self._requirements.lexical(phrases, part.masked, place, terms)
        is_complete = sum(phrase.times for phrase in lexical.phrases) == len(phrases) + len(terms)
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


def counted(
    lines: Sequence[text_steps.SourceLine], on_translated: Callable[[int], object] | None
) -> Callable[[int], None] | None:
    """Return a function to call with the number of each part; it reports completed lines."""
    if on_translated is None:
        return None
    if blank := sum(not line.parts for line in lines):
        on_translated(blank)
    left = [len(line.parts) for line in lines]
    line_of = [number for number, line in enumerate(lines) for _ in line.parts]

    def count(part: int) -> None:
        left[line_of[part]] -= 1
        if not left[line_of[part]]:
            on_translated(1)

    return count


def chunks(parts: Sequence[text_steps.Part]) -> Iterator[slice]:
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


MAX_PARTS = 20  # per word; longer text without spaces is not language
_BETWEEN_WORDS = re.compile("[ \t]+")  # a no-break space is part of a word


def split_line(line: str, vocabulary: Vocabulary, max_length: int) -> tuple[list[str], bool]:
    """Split a line into parts of at most `max_length` tokens, at sentence ends or between words.

    A longer word is split anywhere; after MAX_PARTS parts its rest is omitted, so that a file
    without spaces takes seconds, not hours. Return the parts and whether text was omitted.
    """
    parts: list[str] = []
    left_out = False
    for sentence in split_sentences(line, before_lower=True):
        words = [word for word in _BETWEEN_WORDS.split(sentence) if word]
        lengths = [len(ids) for ids in vocabulary.encode(words)]
        left_out = left_out or max(lengths, default=0) > MAX_PARTS * max_length
        parts += _group(words, lengths, vocabulary, max_length)
    return parts, left_out


def _group(
    words: list[str], lengths: list[int], vocabulary: Vocabulary, max_length: int
) -> Iterator[str]:
    """Group words, of `lengths` tokens each, into parts of at most `max_length` tokens."""
    group: list[str] = []
    room = max_length
    for word, length in zip(words, lengths, strict=True):
        if length > room and group:
            yield " ".join(group)
            group, room = [], max_length
        if length > MAX_PARTS * max_length:
            yield from islice(_split_word(word, vocabulary, max_length), MAX_PARTS)
            continue
        tail = word
        if length > max_length:
            *heads, tail = _split_word(word, vocabulary, max_length)
            yield from heads
            length = len(vocabulary.encode([tail])[0])
        if length:
            group.append(tail)
            room -= length
    if group:
        yield " ".join(group)


def _split_word(word: str, vocabulary: Vocabulary, max_length: int) -> Iterator[str]:
    """Split a word into parts of at most `max_length` tokens, in linear time, symbols intact."""

    def reached(start: int, ends: list[int]) -> int:
        return bisect_right(
            ends, max_length, key=lambda end: len(vocabulary.encode([word[start:end]])[0])
        )

    cuts = vocabulary.cuts(word)
    start = done = 0
    while done < len(cuts):
        done += max(1, reached(start, cuts[done : done + 8 * max_length]))
        yield word[start : cuts[done - 1]]
        start = cuts[done - 1]
