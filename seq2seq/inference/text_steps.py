"""Steps of text around search: each changes a line before search and its translation after it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from seq2seq.data.lines import is_blank
from seq2seq.data.sentences import MARKS
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.vocabulary import Ids, Vocabulary, normalized
from seq2seq.inference.glossary import Term
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.search.lexical import NO_LEXICAL, NO_PREFIX, Lexical, Prefix
from seq2seq.inference.settings import SearchSettings
from seq2seq.names.names import Masked, Names

_SENTENCES = "more sentences than in lines of the training text; cut at sentence ends"
_CHARACTERS = "characters that the training text hardly has ({}); read as those that it has"
_LACKING = "characters that the training text hardly has, translated as they are: "
_CAPITAL = "begins in lower case, unlike the training text; read with a capital"
_COPIED = "no letters, unlike the training text; copied"
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


class LineStep:
    """A reversible change to a line, by what the training text was like."""

    def __init__(self, source: SourceProfile) -> None:
        self._source = source

    def apply(self, line: SourceLine) -> None:
        """Change the parts of a line, and say so in its notes."""
        raise NotImplementedError

    def undo(self, _part: Part, text: str) -> str:
        """Return the translation of a part without what the step added: here, nothing."""
        return text


class Tags(LineStep):
    """The tags that begin a line begin each of its parts."""

    def __init__(self, source: SourceProfile, vocabulary: Vocabulary) -> None:
        super().__init__(source)
        self._vocabulary = vocabulary

    def apply(self, line: SourceLine) -> None:
        line.tag = tag = line.tag or self._source.tag_of(line.text, self._vocabulary)
        if tag is not None:
            line.cut(lambda part: [_with_tag(part.masked.text, tag)])


class Characters(LineStep):
    """White space and characters of other forms are written as the training text writes them."""

    def apply(self, line: SourceLine) -> None:
        for place, part in enumerate(line.parts):
            text = self._source.ordinary(part.masked.text)
            if text != part.masked.text:
                odd = sorted(set(part.masked.text) - set(text))[:3]
                names = ", ".join(f"U+{ord(character):04X}" for character in odd)
                line.notes.append(_CHARACTERS.format(names))
                line.parts[place] = part.with_text(text)


class Capitals(LineStep):
    """Sentences begin in a capital, as in the training text; characters that it lacks are noted."""

    def apply(self, line: SourceLine) -> None:
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


class Copies(LineStep):
    """Lines without letters are copied, if the training text hardly has any."""

    def apply(self, line: SourceLine) -> None:
        text = line.text.removeprefix(line.tag or "")
        if is_blank(line.text) or line.prefix or line.phrases or not self._source.copies(text):
            return
        line.parts, line.is_copied = [], True
        line.notes.append(_COPIED)


class AffixesAside(LineStep):
    """Labels before a sentence, and symbols after its final mark, are set aside and put back.

    Nothing is set aside before a prefix, nor a symbol of the vocabulary.
    """

    def __init__(self, source: SourceProfile, vocabulary: Vocabulary) -> None:
        super().__init__(source)
        self._symbols = vocabulary.symbols

    def apply(self, line: SourceLine) -> None:
        for place, part in enumerate(line.parts):
            tag = f"{line.tag} " if line.tag else ""
            text = part.masked.text
            head, body, tail = self._source.affixes(text.removeprefix(tag))
            if (line.prefix and place == 0) or any(symbol in head for symbol in self._symbols):
                head, body = "", head + body
            if head or tail:
                start = tag if text.startswith(tag) else ""
                part = replace(part, head=part.head + head, tail=tail + part.tail)
                line.parts[place] = part.with_text(start + body)

    def undo(self, part: Part, text: str) -> str:
        return f"{part.head}{text}{part.tail}".strip()


class FinalMarks(LineStep):
    """Parts without a final mark get the usual one, if the training text always has one.

    The mark of the translation stays where a prefix ends in one.
    """

    def apply(self, line: SourceLine) -> None:
        for place, part in enumerate(line.parts):
            text = self._source.with_final_mark(part.masked.text, line.tag)
            if text == part.masked.text:
                continue
            if (
                len(line.parts) == 1
                and not line.left_out
                and not part.tail.startswith(tuple(MARKS))
            ):
                line.notes.append(_NO_MARK)
            lacks = place > 0 or not self._source.ends_in_mark(line.prefix)
            line.parts[place] = replace(part.with_text(text), lacks_mark=lacks)

    def undo(self, part: Part, text: str) -> str:
        return self._source.without_final_mark(text) if part.lacks_mark else text


class Sentences(LineStep):
    """Lines of more sentences than is usual are cut at sentence ends, unless more is required."""

    def apply(self, line: SourceLine) -> None:
        if is_blank(line.prefix) and not line.phrases:
            line.cut(lambda part: self._source.parts(part.masked.text))
        if len(line.parts) > 1:
            line.notes.append(_SENTENCES)


class NameMasks(LineStep):
    """Names are placeholders, spelled as the glossary or the model of names spells them.

    Names stay words where the glossary has a phrase with them, or their spelling is forbidden.
    """

    def __init__(
        self,
        source: SourceProfile,
        names: Names,
        requirements: Requirements,
        settings: SearchSettings,
    ) -> None:
        super().__init__(source)
        self._names, self._requirements, self._settings = names, requirements, settings

    def apply(self, line: SourceLine) -> None:
        masked = [self._masked(part) for part in line.parts]
        line.prefix = self._names.mask_target(normalized(line.prefix), masked[0][0].names)
        line.parts = [
            replace(split, masked=self._requirements.allowed(split.masked, line.prefix))
            for part, texts in zip(line.parts, masked, strict=True)
            for split in part.with_texts(texts)
        ]

    def undo(self, part: Part, text: str) -> str:
        return self._names.restore(text, part.masked)

    def _masked(self, part: Part) -> list[Masked]:
        """Return the text of a part with its names masked, in several if it has many."""
        return [self._as_required(text) for text in self._names.mask(normalized(part.masked.text))]

    def _as_required(self, masked: Masked) -> Masked:
        """Spell names as the glossary does; mask none where it has a phrase with a name."""
        given = {} if self._settings.written_names else self._names.spellings(masked)
        glossary = self._settings.glossary
        if glossary is None or not masked.names:
            return masked._replace(given=given)
        terms = {name: glossary.targets(name) for name in masked.names.values()}
        within = sum(map(len, terms.values())) + len(glossary.targets(masked.text))
        if len(glossary.targets(masked.written)) != within:
            return Masked(masked.written, {})
        spelled = {
            mark: self._names.spelling(name, glossary.targets)
            for mark, name in masked.names.items()
            if terms[name]
        }
        return masked._replace(given={**given, **spelled})


def _with_tag(text: str, tag: str) -> str:
    return text if f"{text} ".startswith(f"{tag} ") else f"{tag} {text}"
