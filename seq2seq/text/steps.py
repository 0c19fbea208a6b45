"""Text around search: what steps make of a line before search, and undo in its translations.

A line passes the steps once: its language tag, its final mark, its sentences, its names and its
length. Each may change the text of the line's parts, split them, or add to what is required of
their translations; `undo` takes back in a translation what a step added to a source.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.inference.lines import MAX_ATTENTION_TOKENS, split_line
from seq2seq.inference.loading import LoadedModel
from seq2seq.inference.requirements import Requirements, phrase_lists, prefix_texts
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_LEXICAL, NO_PREFIX, Lexical, Prefix
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import space_after
from seq2seq.text.characters import is_blank, normalized
from seq2seq.text.glossary import Term
from seq2seq.text.names.names import Masked, Names
from seq2seq.text.sentences import MARKS

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


@dataclass
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
    left_out_rules: Sequence[str] = ()  # of search, which together left no translation


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

    def cut(self, texts: Iterable[Sequence[Masked]]) -> None:
        """Split each part into texts; the last of them has its final mark."""
        parts = self.parts
        self.parts = []
        for part, masked in zip(parts, texts, strict=True):
            middle = replace(part, lacks_mark=False, head="", tail="")
            split = [replace(middle, masked=text) for text in masked]
            if split:
                split[0].head = part.head
                split[-1].lacks_mark, split[-1].tail = part.lacks_mark, part.tail
            self.parts += split


class LineSteps:
    """The steps from lines to parts with ids, and from the text of a part to that of its line."""

    def __init__(
        self, loaded: LoadedModel, requirements: Requirements, settings: SearchSettings
    ) -> None:
        self._src, _, self._names = loaded.vocabularies
        self._max_length, self._source = loaded.max_length, loaded.source
        self.requirements, self.settings = requirements, settings
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
        if self._names is not None:
            text = self._names.restore(text, part.masked)
        return f"{part.head}{text}{part.tail}".strip()

    def encoded(self, part: Part, masked: Masked) -> Part:
        """Return a part with its names masked in another way."""
        (ids,) = self._src.encode([masked.text])
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
        self._copy_parts(line)
        self._capitalise(line)
        if self._names is not None:
            self._mask_names(line, self._names)
        self._complete(line)

    def _complete(self, line: SourceLine) -> None:
        self._add_tag(line)
        self._add_final_marks(line)

    def _add_tag(self, line: SourceLine) -> None:
        """Let the tags that begin a line begin each of its parts."""
        line.tag = tag = line.tag or self._source.tag_of(line.text, self._src.symbols)
        for part in line.parts if tag else ():
            if not f"{part.masked.text} ".startswith(f"{tag} "):
                part.masked = part.masked._replace(text=f"{tag} {part.masked.text}")

    def _copy(self, line: SourceLine) -> None:
        """Copy a line without letters, if the training text hardly has any."""
        text = line.text.removeprefix(line.tag or "")
        if is_blank(line.text) or line.prefix or line.phrases or not self._source.copies(text):
            return
        line.parts, line.is_copied = [], True
        line.notes.append(_COPIED)

    def _copy_parts(self, line: SourceLine) -> None:
        """Copy parts without letters, as such lines are: set them aside with the part before.

        Those before the first part with letters are set aside with it.
        """
        if line.prefix or line.phrases:
            return
        parts = list[Part]()
        head = ""
        for part in line.parts:
            text = part.masked.text.removeprefix(line.tag or "")
            if part.lacks_mark:
                text = self._source.without_final_mark(text)
            written = f"{part.head}{text.strip()}{part.tail}"
            if not self._source.copies(text):
                part.head, head = f"{head}{part.head}", ""
                parts.append(part)
            elif parts:
                parts[-1].tail += space_after(parts[-1].masked.text + parts[-1].tail) + written
            else:
                head += written + space_after(written)
        line.parts = parts or line.parts

    def _set_affixes_aside(self, line: SourceLine) -> None:
        """Set aside labels and symbols around a sentence, but no prefix and symbol of its own."""
        tag = f"{line.tag} " if line.tag else ""
        for place, part in enumerate(line.parts):
            text = part.masked.text
            head, body, tail = self._source.affixes(text.removeprefix(tag))
            if (line.prefix and place == 0) or any(symbol in head for symbol in self._src.symbols):
                head, body = "", head + body
            start = tag if text.startswith(tag) else ""
            part.masked = part.masked._replace(text=start + body)
            part.head, part.tail = part.head + head, tail + part.tail

    def _write_usual_characters(self, line: SourceLine) -> None:
        """Write white space and characters of other forms as the training text does."""
        for part in line.parts:
            text = self._source.ordinary(part.masked.text)
            if text != part.masked.text:
                odd = sorted(set(part.masked.text) - set(text))[:3]
                names = ", ".join(f"U+{ord(character):04X}" for character in odd)
                line.notes.append(_CHARACTERS.format(names))
                part.masked = part.masked._replace(text=text)

    def _add_final_marks(self, line: SourceLine) -> None:
        """Add the usual final mark, removed again unless a prefix ends in one."""
        for place, part in enumerate(line.parts):
            text = self._source.with_final_mark(part.masked.text, line.tag)
            if text == part.masked.text:
                continue
            is_alone = len(line.parts) == 1 and not line.left_out
            if is_alone and not part.tail.startswith(tuple(MARKS)):
                line.notes.append(_NO_MARK)
            part.lacks_mark = place > 0 or not self._source.ends_in_mark(line.prefix)
            part.masked = part.masked._replace(text=text)

    def _cut_sentences(self, line: SourceLine) -> None:
        """Cut a line of more sentences than is usual at their ends, unless more is required."""
        if is_blank(line.prefix) and not line.phrases:
            line.cut(
                [part.masked._replace(text=text) for text in self._source.parts(part.masked.text)]
                for part in line.parts
            )
        if len(line.parts) > 1:
            line.notes.append(_SENTENCES)

    def _capitalise(self, line: SourceLine) -> None:
        """Begin sentences in a capital, as the training text does; note characters it lacks."""
        lacking = set[str]()
        for part in line.parts:
            text = part.masked.text
            body = text.removeprefix(line.tag or "")
            capital = self._source.with_capital(body)
            if capital != body:
                part.masked = part.masked._replace(text=text.removesuffix(body) + capital)
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
        line.cut(masked)
        for part in line.parts:
            part.masked = self.requirements.allowed(part.masked, line.prefix)

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
        parts = [part for line in lines for part in line.parts]
        encoded = self._src.encode([part.masked.text for part in parts])
        for part, ids in zip(parts, encoded, strict=True):
            part.ids = ids

    def _shorten(self, line: SourceLine) -> None:
        """Split parts that have too many tokens; the end of endless words is omitted."""
        if all(len(part.ids) <= self._max_length for part in line.parts):
            return
        (mark,) = self._src.encode(["".join(self._source.final_marks[:1])])
        room = max(1, self._max_length - len((line.tag or "").split()) - len(mark))
        texts = list[list[Masked]]()
        for part in line.parts:
            split, omitted = split_line(part.masked.text, self._src, room)
            line.left_out = line.left_out or omitted
            texts.append([part.masked._replace(text=text) for text in split])
        line.cut(texts)
        self._copy_parts(line)
        self._complete(line)
        self._encode([line])
        line.notes += [_LONG, _LEFT_OUT] if line.left_out else [_LONG]

    def _require(self, number: int, line: SourceLine, return_attention: bool) -> None:
        """Set what is required of the parts of line `number`, and the words of their sources."""
        tokens = sum(len(part.ids) for part in line.parts)
        return_attention = return_attention and tokens <= MAX_ATTENTION_TOKENS
        for place, part in enumerate(line.parts):
            self._require_phrases(part, line, [] if place else line.phrases, number)
            part.words = [] if self._src.has_byte_fallback else self._src.words(part.masked.text)
            part.prefix = NO_PREFIX if place else self._prefix(line.prefix)
            part.marks = self.requirements.waiting_marks(part.masked.text)
            part.return_attention = return_attention

    def _require_phrases(
        self, part: Part, line: SourceLine, phrases: Sequence[str], number: int
    ) -> None:
        """Require phrases of the translation of a part, and the terms of the glossary."""
        glossary = self.settings.glossary
        occurrences = [] if glossary is None else glossary.occurrences(part.masked.text)
        terms = [term.target for term in occurrences]
        if not phrases and not terms:
            return
        place = f"constraints of line {number}"
        lexical = part.lexical = self.requirements.lexical(phrases, part.masked, place, terms)
        is_complete = sum(phrase.times for phrase in lexical.phrases) == len(phrases) + len(terms)
        if terms and not is_complete:
            line.notes.append(_MANY_TERMS)
        part.phrases = self.requirements.lexical(phrases, part.masked, place) if terms else lexical
        part.terms = occurrences if is_complete else ()
        if any(map(self._source.ends_in_mark, (*phrases, *terms))):
            part.lacks_mark = False
