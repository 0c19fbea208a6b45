"""Source lines: masked names, ids, parts of long lines, and what their translations require."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from seq2seq.data.lines import is_blank
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.vocabulary import Ids, Vocabularies, normalized
from seq2seq.inference.glossary import Glossary
from seq2seq.inference.line_splitting import split_line, with_tag
from seq2seq.inference.requirements import (
    Requirements,
    phrase_lists,
    without_forbidden_names,
)
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_LEXICAL, Lexical
from seq2seq.inference.search.prefixes import NO_PREFIX, Prefix
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.names.names import Masked
from seq2seq.runtime import argument_types

_SENTENCES = "more sentences than in lines of the training text; cut at sentence ends"
_LONG = "longer than data.max_length; translated in parts"
_NO_MARK = "no final punctuation mark, unlike the training text; translated as if there were one"
_LEFT_OUT = "text without spaces that exceeds the length limit; only its start was translated"
_MANY_TERMS = (
    f"glossary terms of more than {MAX_TOKENS} tokens in a line; only the first ones were required"
)
_BLANK_CONSTRAINED = "blank lines stay blank, without their constraints"
MAX_ATTENTION_TOKENS = 2000  # attention weights of longer lines, quadratic in length, are dropped
MAX_SQUARED_LENGTHS = 10_000_000  # searched at once, to bound the memory of attention weights


class LinePart(NamedTuple):
    """A line, or a part of a long one, that is searched on its own."""

    ids: Ids
    words: list[str]  # the words of a word vocabulary, else empty
    prefix: Prefix  # NO_PREFIX for all but a line's first part
    masked: Masked  # the text of the ids, and its names
    lexical: Lexical  # phrases that its translation must contain
    return_attention: bool  # False for very long lines
    drops_mark: bool  # the final mark of its translation is removed, as its text had none


class SourceLine(NamedTuple):
    """A line as parts, none if it is blank; some text of it may be omitted."""

    parts: list[LinePart]
    left_out: bool
    notes: list[str]
    phrases: Sequence[str]  # that the translation must contain


class _Line(NamedTuple):
    """A line to split."""

    given: str
    marked: str  # with the usual final mark, if it has none
    tag: str | None
    masked: list[Masked]  # parts of `marked`


class _Part(NamedTuple):
    """Text of a part of a line."""

    masked: Masked
    drops_mark: bool  # as in `LinePart`


class LineSplitter:
    """Converts text to source lines, each in as many parts as the model can translate well."""

    def __init__(
        self,
        vocabularies: Vocabularies,
        source: SourceProfile,
        max_length: int,
        requirements: Requirements,
    ) -> None:
        """Take the model's vocabularies, and what its training text and limits were like."""
        self._vocabularies, self._source, self._max_length = vocabularies, source, max_length
        self._requirements = requirements

    def split(
        self,
        lines: Sequence[str],
        prefixes: Iterable[str] | None = None,
        constraints: Iterable[Sequence[str]] | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
        return_attention: bool = True,
    ) -> list[SourceLine]:
        """Split each line; the arguments are those of `Translator.stream`, which names errors."""
        described = [self._describe(line) for line in lines]
        starts = self._requirements.prefix_texts([each.masked for each in described], prefixes)
        line_prefixes = self._requirements.prefixes(starts)
        phrases = phrase_lists(lines, constraints)
        encoded = self._vocabularies.src.encode([each.masked[0].text for each in described])
        found = []
        for number, (line, start, ids, prefix, required) in enumerate(
            zip(described, starts, encoded, line_prefixes, phrases, strict=True), start=1
        ):
            drops_mark = line.marked != line.given and not self._source.ends_in_mark(start)
            split = self._split(line, ids, prefix, required, drops_mark, return_attention)
            found.append(self._require(number, split, start, settings))
        return found

    def _describe(self, line: str) -> _Line:
        tag = self._source.tag_of(line, self._vocabularies.src)
        marked = self._source.with_final_mark(line, tag)
        return _Line(line, marked, tag, self._mask(marked))

    def _mask(self, text: str) -> list[Masked]:
        """Return a text with its names masked, in parts if it has many names."""
        names = self._vocabularies.names
        return [Masked(text, {})] if names is None else names.mask(normalized(text))

    def _split(
        self,
        line: _Line,
        ids: Ids,
        prefix: Prefix,
        phrases: Sequence[str],
        drops_mark: bool,
        return_attention: bool,
    ) -> SourceLine:
        """Split a line with more sentences or names than is usual, or with too many tokens."""
        if has_no_tokens(line.given, ids):
            return SourceLine([], False, [], phrases)
        src, encoded, left_out = self._vocabularies.src, [ids], False
        notes = self._source.notes(line.given) + [_NO_MARK] * (line.marked != line.given)
        cut = _as_parts(line.masked, drops_mark)
        if not (prefix.states or phrases) and len(texts := self._source.parts(line.marked)) > 1:
            masked = [part for text in with_tag(texts, line.tag) for part in self._mask(text)]
            cut = _as_parts(masked, drops_mark)
            notes.append(_SENTENCES)
        if len(cut) > 1:
            cut = self._completed(cut, line.tag)
            encoded = src.encode([each.masked.text for each in cut])
        if any(len(each) > self._max_length for each in encoded):
            cut, left_out = self._shortened(cut, line.tag)
            encoded = src.encode([each.masked.text for each in cut])
            notes += [_LONG, _LEFT_OUT] if left_out else [_LONG]
        return_attention = return_attention and sum(map(len, encoded)) <= MAX_ATTENTION_TOKENS
        prefixes = [prefix, *[NO_PREFIX] * (len(cut) - 1)]
        parts = [
            LinePart(
                ids,
                [] if src.has_byte_fallback else src.words(masked.text),
                prefix,
                masked,
                NO_LEXICAL,
                return_attention,
                drops,
            )
            for ids, prefix, (masked, drops) in zip(encoded, prefixes, cut, strict=True)
        ]
        return SourceLine(parts, left_out, notes, phrases)

    def _completed(self, cut: Sequence[_Part], tag: str | None) -> list[_Part]:
        """Add the tag of a line, and the usual final mark, to the parts that lack it."""
        texts = with_tag([each.masked.text for each in cut], tag)
        marked = [self._source.with_final_mark(text, tag) for text in texts]
        return [
            _Part(masked._replace(text=full), drops or full != text)
            for (masked, drops), text, full in zip(cut, texts, marked, strict=True)
        ]

    def _shortened(self, cut: Sequence[_Part], tag: str | None) -> tuple[list[_Part], bool]:
        """Split parts that are too long; return whether text was omitted as well."""
        src = self._vocabularies.src
        (mark,) = src.encode(["".join(self._source.final_marks[:1])])
        room = max(1, self._max_length - len((tag or "").split()) - len(mark))
        found = [split_line(each.masked.text, src, room) for each in cut]
        shorter = [
            part
            for (masked, drops), (texts, _) in zip(cut, found, strict=True)
            for part in _as_parts([masked._replace(text=text) for text in texts], drops)
        ]
        return self._completed(shorter, tag), any(omitted for _, omitted in found)

    def _require(
        self, number: int, line: SourceLine, start: str, settings: SearchSettings
    ) -> SourceLine:
        """Add to the parts of line `number` the phrases that their translations must contain.

        `start`: the text of its prefix.
        """
        glossary, forbidden = settings.glossary, self._requirements.forbidden(settings.forbidden)
        required = line.phrases or glossary is not None or forbidden is not None
        if not required and settings.written_names:
            return line
        parts: list[LinePart] = []
        notes = [] if line.parts or not line.phrases else [_BLANK_CONSTRAINED]
        for part in line.parts:
            phrases, terms = [] if parts else line.phrases, list[str]()
            if not settings.written_names:
                part = self._with_spellings(part)
            if glossary is not None:
                part = self._with_glossary(part, glossary)
            part = self._with_forbidden_names(part, forbidden, start)
            if glossary is not None:
                terms = glossary.targets(part.masked.text)
            place = f"constraints of line {number}"
            lexical = self._requirements.lexical(phrases, part.masked, place, forbidden, terms)
            if terms and sum(lexical.counts) < len(phrases) + len(terms):
                notes = [_MANY_TERMS]
            drops = part.drops_mark and not any(map(self._source.ends_in_mark, (*phrases, *terms)))
            parts.append(part._replace(lexical=lexical, drops_mark=drops))
        return line._replace(parts=parts, notes=[*line.notes, *notes])

    def _with_spellings(self, part: LinePart) -> LinePart:
        """Take the spelling of each name as given, so that the written form does not follow it."""
        if (names := self._vocabularies.names) is None:
            return part
        return part._replace(masked=part.masked._replace(given=names.spellings(part.masked)))

    def _with_forbidden_names(
        self, part: LinePart, forbidden: Forbidden | None, start: str
    ) -> LinePart:
        """Translate names as words whose spellings are forbidden, but for those of the prefix."""
        if (names := self._vocabularies.names) is None:
            return part
        masked = without_forbidden_names(part.masked, names, forbidden, start)
        if masked.names == part.masked.names:
            return part
        (ids,) = self._vocabularies.src.encode([masked.text])
        return part._replace(ids=ids, masked=masked)

    def _with_glossary(self, part: LinePart, glossary: Glossary) -> LinePart:
        """Spell names as the glossary does; where it has a phrase with a name, mask none."""
        if (names := self._vocabularies.names) is None or not part.masked.names:
            return part
        given = {
            mark: names.spelling(name, glossary.targets)
            for mark, name in part.masked.names.items()
            if glossary.targets(name)
        }
        given = {**part.masked.given, **given}
        terms = sum(len(glossary.targets(name)) for name in part.masked.names.values())
        text = part.masked.written
        if len(glossary.targets(text)) == terms + len(glossary.targets(part.masked.text)):
            return part._replace(masked=part.masked._replace(given=given))
        (ids,) = self._vocabularies.src.encode([text])
        return part._replace(ids=ids, masked=Masked(text, {}))


def _as_parts(parts: Sequence[Masked], drops_mark: bool) -> list[_Part]:
    """Return the parts of a text, of which the last has its final mark."""
    last = len(parts) - 1
    return [_Part(part, drops_mark and number == last) for number, part in enumerate(parts)]


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


def chunks(parts: Sequence[LinePart]) -> Iterator[slice]:
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
