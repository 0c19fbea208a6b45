"""Text around search: what steps make of a line before search, and undo in its translations.

A line passes the steps once: its language tag, its final mark, its sentences, its names and its
length. Each may change the text of the line's parts, split them, or add to what is required of
their translations; `undo` takes back in a translation what a step added to a source.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from seq2seq.data.lines import is_blank
from seq2seq.data.sentences import MARKS
from seq2seq.data.vocabulary.vocabulary import Ids, normalized
from seq2seq.inference.glossary import Term
from seq2seq.inference.lines import MAX_ATTENTION_TOKENS, split_line
from seq2seq.inference.loading import LoadedModel
from seq2seq.inference.requirements import Requirements, phrase_lists, prefix_texts
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_LEXICAL, NO_PREFIX, Lexical, Prefix
from seq2seq.inference.settings import SearchSettings
from seq2seq.names.names import Masked, Names

_SENTENCES = "more sentences than in lines of the training text; cut at sentence ends"
_CHARACTERS = "characters that the training text hardly has ({}); read as those that it has"
_LACKING = "characters that the training text hardly has, translated as they are: "
_CAPITAL = "begins in lower case, unlike the training text; read with a capital"
_COPIED = "no letters, unlike the training text; copied"
_LONG = "longer than data.max_length; translated in parts"
_LEFT_OUT = "text without spaces that exceeds the length limit; only its start was translated"
_MANY_TERMS = (
    f"glossary terms of more than {MAX_TOKENS} tokens in a line; only the first ones were required"
)
_BLANK_CONSTRAINED = "blank lines stay blank, without their constraints"
_NO_MARK = "no final punctuation mark, unlike the training text; translated as if there were one"


@dataclass(frozen=True)
class Part:
    """A line, or a part of a long one, that is searched on its own."""

    masked: Masked  # the text with placeholders, and its names
    lacks_mark: bool = False  # its final mark was added, and is removed from its translation
    head: str = ""  # set aside before and after the text
    tail: str = ""
    ids: Ids = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # if its vocabulary is of words
    prefix: Prefix = NO_PREFIX  # unless the part is not the first
    lexical: Lexical = NO_LEXICAL  # phrases and terms that its translation contains
    phrases: Lexical = NO_LEXICAL  # without the terms
    marks: tuple[int, ...] = ()  # tokens of final marks, which wait for what is required
    terms: Sequence[Term] = ()  # from the glossary, in the text
    return_attention: bool = True  # False for very long lines

    def with_text(self, text: str) -> "Part":
        """Return the part with another text."""
        return replace(self, masked=self.masked._replace(text=text))

    def with_texts(self, texts: Sequence[Masked]) -> "list[Part]":
        """Return the parts into which this one is split; the last has its final mark."""
        last = len(texts) - 1
        return [
            replace(
                self,
                masked=text,
                lacks_mark=self.lacks_mark and place == last,
                head="" if place else self.head,
                tail=self.tail if place == last else "",
            )
            for place, text in enumerate(texts)
        ]


@dataclass
class SourceLine:
    """A line with all that its steps made of it; it has no parts if it is blank."""

    text: str
    prefix: str = ""  # with which its translation begins
    phrases: Sequence[str] = ()  # that its translation contains
    tag: str | None = None  # the tags of languages that it begins with
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: bool = False  # some of its text is not translated
    is_copied: bool = False  # it is its own translation

    def cut(self, texts_of: Callable[[Part], Sequence[str]]) -> None:
        """Split each part into some texts."""
        self.parts = [
            split
            for part in self.parts
            for split in part.with_texts([part.masked._replace(text=t) for t in texts_of(part)])
        ]


class LineSteps:
    """The steps from lines to parts with ids, and from the text of a part to that of its line."""

    def __init__(
        self, loaded: LoadedModel, requirements: Requirements, settings: SearchSettings
    ) -> None:
        self._vocabularies, self._max_length = loaded.vocabularies, loaded.max_length
        self._source, self.requirements, self.settings = loaded.source, requirements, settings
        self._prefix = cache(requirements.prefix)

    def prepare(
        self,
        lines: Sequence[str],
        prefixes: Iterable[str] | None,
        constraints: Iterable[Sequence[str]] | None,
        return_attention: bool = True,
    ) -> list[SourceLine]:
        """Return the lines with their parts; arguments are those of `Translator.stream`."""
        required = prefix_texts(len(lines), prefixes), phrase_lists(len(lines), constraints)
        prepared = [
            SourceLine(*texts, parts=[Part(Masked(texts[0], {}))])
            for texts in zip(lines, *required, strict=True)
        ]
        for line in prepared:
            line.notes += self._source.notes(line.text)
            self._change(line)
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
        if part.lacks_mark:
            text = self._source.without_final_mark(text)
        if (names := self._vocabularies.names) is not None:
            text = names.restore(text, part.masked)
        return f"{part.head}{text}{part.tail}".strip()

    def encoded(self, part: Part, masked: Masked) -> Part:
        """Return a part with its names masked in another way."""
        (ids,) = self._vocabularies.src.encode([masked.text])
        return replace(part, masked=masked, ids=ids)

    def _change(self, line: SourceLine) -> None:
        """Change a line by all steps before its length, and say so in its notes."""
        self._add_tag(line)
        self._copy(line)
        if line.is_copied:
            return
        self._set_affixes_aside(line)
        self._write_usual_characters(line)
        self._add_final_marks(line)
        self._cut_sentences(line)
        self._set_affixes_aside(line)
        self._capitalise(line)
        if (names := self._vocabularies.names) is not None:
            self._mask_names(line, names)
        self._complete(line)

    def _complete(self, line: SourceLine) -> None:
        self._add_tag(line)
        self._add_final_marks(line)

    def _add_tag(self, line: SourceLine) -> None:
        """Let the tags that begin a line begin each of its parts."""
        line.tag = tag = line.tag or self._source.tag_of(line.text, self._vocabularies.src)
        if tag is not None:
            line.cut(lambda part: [_with_tag(part.masked.text, tag)])

    def _copy(self, line: SourceLine) -> None:
        """Copy a line without letters, if the training text hardly has any."""
        text = line.text.removeprefix(line.tag or "")
        if is_blank(line.text) or line.prefix or line.phrases or not self._source.copies(text):
            return
        line.parts, line.is_copied = [], True
        line.notes.append(_COPIED)

    def _set_affixes_aside(self, line: SourceLine) -> None:
        """Set aside labels and symbols around a sentence, but no prefix and symbol of its own."""
        for place, part in enumerate(line.parts):
            tag = f"{line.tag} " if line.tag else ""
            text = part.masked.text
            head, body, tail = self._source.affixes(text.removeprefix(tag))
            symbols = self._vocabularies.src.symbols
            if (line.prefix and place == 0) or any(symbol in head for symbol in symbols):
                head, body = "", head + body
            if head or tail:
                start = tag if text.startswith(tag) else ""
                part = replace(part, head=part.head + head, tail=tail + part.tail)
                line.parts[place] = part.with_text(start + body)

    def _write_usual_characters(self, line: SourceLine) -> None:
        """Write white space and characters of other forms as the training text does."""
        for place, part in enumerate(line.parts):
            text = self._source.ordinary(part.masked.text)
            if text != part.masked.text:
                odd = sorted(set(part.masked.text) - set(text))[:3]
                names = ", ".join(f"U+{ord(character):04X}" for character in odd)
                line.notes.append(_CHARACTERS.format(names))
                line.parts[place] = part.with_text(text)

    def _add_final_marks(self, line: SourceLine) -> None:
        """Add the usual final mark, removed again unless a prefix ends in one."""
        for place, part in enumerate(line.parts):
            text = self._source.with_final_mark(part.masked.text, line.tag)
            if text == part.masked.text:
                continue
            is_alone = len(line.parts) == 1 and not line.left_out
            if is_alone and not part.tail.startswith(tuple(MARKS)):
                line.notes.append(_NO_MARK)
            lacks = place > 0 or not self._source.ends_in_mark(line.prefix)
            line.parts[place] = replace(part.with_text(text), lacks_mark=lacks)

    def _cut_sentences(self, line: SourceLine) -> None:
        """Cut a line of more sentences than is usual at their ends, unless more is required."""
        if is_blank(line.prefix) and not line.phrases:
            line.cut(lambda part: self._source.parts(part.masked.text))
        if len(line.parts) > 1:
            line.notes.append(_SENTENCES)

    def _capitalise(self, line: SourceLine) -> None:
        """Begin sentences in a capital, as the training text does; note characters it lacks."""
        lacking = set[str]()
        for place, part in enumerate(line.parts):
            text = part.masked.text
            body = text.removeprefix(line.tag or "")
            capital = self._source.with_capital(body)
            if capital != body:
                line.parts[place] = part.with_text(text.removesuffix(body) + capital)
                line.notes += [] if _CAPITAL in line.notes else [_CAPITAL]
            lacking.update(self._source.lacking(body))
        if lacking:
            line.notes.append(_LACKING + "".join(sorted(lacking)))

    def _mask_names(self, line: SourceLine, names: Names) -> None:
        """Replace names by placeholders, spelled by the glossary or the model of names.

        Names stay words where the glossary has a phrase with them, or their spelling is forbidden.
        """
        masked = [
            [self._as_required(text, names) for text in names.mask(normalized(part.masked.text))]
            for part in line.parts
        ]
        line.prefix = names.mask_target(normalized(line.prefix), masked[0][0].names)
        line.parts = [
            replace(split, masked=self.requirements.allowed(split.masked, line.prefix))
            for part, texts in zip(line.parts, masked, strict=True)
            for split in part.with_texts(texts)
        ]

    def _as_required(self, masked: Masked, names: Names) -> Masked:
        """Spell names as the glossary does; mask none where it has a phrase with a name."""
        given = {} if self.settings.written_names else names.spellings(masked)
        glossary = self.settings.glossary
        if glossary is None or not masked.names:
            return masked._replace(given=given)
        terms = {name: glossary.targets(name) for name in masked.names.values()}
        within = sum(map(len, terms.values())) + len(glossary.targets(masked.text))
        if len(glossary.targets(masked.written)) != within:
            return Masked(masked.written, {})
        spelled = {
            mark: names.spelling(name, glossary.targets)
            for mark, name in masked.names.items()
            if terms[name]
        }
        return masked._replace(given={**given, **spelled})

    def _encode(self, lines: Sequence[SourceLine]) -> None:
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
        self._complete(line)
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
                marks=self.requirements.waiting_marks(part.masked.text),
                return_attention=return_attention,
            )

    def _with_phrases(
        self, part: Part, line: SourceLine, phrases: Sequence[str], number: int
    ) -> Part:
        """Require phrases of the translation of a part, and the terms of the glossary."""
        glossary = self.settings.glossary
        occurrences = [] if glossary is None else glossary.occurrences(part.masked.text)
        terms = [term.target for term in occurrences]
        if not phrases and not terms:
            return part
        place = f"constraints of line {number}"
        lexical = self.requirements.lexical(phrases, part.masked, place, terms)
        is_complete = sum(phrase.times for phrase in lexical.phrases) == len(phrases) + len(terms)
        if terms and not is_complete:
            line.notes.append(_MANY_TERMS)
        marked = any(map(self._source.ends_in_mark, (*phrases, *terms)))
        alone = self.requirements.lexical(phrases, part.masked, place) if terms else lexical
        return replace(
            part,
            lexical=lexical,
            phrases=alone,
            terms=occurrences if is_complete else (),
            lacks_mark=part.lacks_mark and not marked,
        )


def _with_tag(text: str, tag: str) -> str:
    return text if f"{text} ".startswith(f"{tag} ") else f"{tag} {text}"
