"""Steps around search: what they make of a line before it, and take back in a translation.

STEPS is the list: a line passes them in this order, and its translation is undone in the opposite
one.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from seq2seq.text.characters import MARKS, OPENING, PARTNERS, is_blank, is_letter, normalized
from seq2seq.text.entities import without_entities
from seq2seq.text.glossary import Glossary
from seq2seq.text.line import Line, Part
from seq2seq.text.line_properties import has_letters, in_capitals
from seq2seq.text.long_lines import Tokenizer, split_line
from seq2seq.text.names.names import Masked, Names
from seq2seq.text.sentences import space_after
from seq2seq.text.source_profile import SourceProfile

MAX_LABELS = 5  # before a sentence
MAX_WORDS = 3  # in a note
IsForbidden = Callable[[str], bool]


@dataclass(frozen=True)
class StepContext:
    """A model and a call, as far as steps know them."""

    profile: SourceProfile  # of the training text
    tokenizer: Tokenizer
    symbols: Sequence[str] = ()  # of the vocabulary
    max_length: int = 1 << 30  # tokens of a part
    names: Names | None = None
    glossary: Glossary | None = None
    adds_uncertain_names: bool = True  # a name whose spelling is not certain, as written, too
    is_forbidden: IsForbidden = lambda _: False


class TextStep:
    """One change of a line, which `undo` takes back in the translation of a part."""

    notes: tuple[str, ...] = ()  # that it may give

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._profile = context.profile

    def apply(self, line: Line) -> None:
        """Change the line, and say so in its notes."""
        raise NotImplementedError

    def undo(self, part: Part, text: str) -> str:  # noqa: ARG002
        """Return the translation of a part without the change."""
        return text


def apply(steps: Iterable[TextStep], line: Line) -> None:
    """Let a line pass the steps, until no part of it is left to translate."""
    for step in steps:
        if not line.parts:
            return
        step.apply(line)


def undo(steps: Sequence[TextStep], part: Part, text: str) -> str:
    """Return the translation of a part as it belongs into the translation of its line."""
    for step in reversed(steps):
        text = step.undo(part, text)
    return text


def blank(line: Line) -> None:
    """Let a line be blank, as its translation is."""
    line.parts = []
    line.notes = list(LeaveBlank.notes) if line.phrases else []


class LeaveBlank(TextStep):
    """A blank line stays blank."""

    notes = ("blank lines stay blank, without their constraints",)

    def apply(self, line: Line) -> None:
        if is_blank(line.text):
            blank(line)


class NoteHabits(TextStep):
    """A line in capitals, in another script or in the target language is noted."""

    def apply(self, line: Line) -> None:
        line.notes += self._profile.notes(line.text)


class SetTagAside(TextStep):
    """The tags that begin a line begin each of its parts."""

    def apply(self, line: Line) -> None:
        tag = self._profile.tag_of(line.text, self._context.symbols)
        if tag is None:
            return
        for part in line.parts:
            part.tag = tag
            part.masked = _without_tag(part.masked, tag)


def _without_tag(masked: Masked, tag: str) -> Masked:
    text = masked.text.removeprefix(tag)
    return masked._replace(text=text.removeprefix(" ") if tag else text)


class ReadTypedCharacters(TextStep):
    """Entities and marks typed for others are read as these, before sentences are cut.

    The text is read in NFC, as the training text is. `WriteUsualCharacters` writes entities again
    that the training text has.
    """

    notes = (
        "entities that the training text hardly has; read as their characters",
        "a final mark that the training text never has; read as that of its script",
    )

    def apply(self, line: Line) -> None:
        (part,) = line.parts
        typed = part.masked.text if part.masked.text.isascii() else normalized(part.masked.text)
        characters = self._profile.without_entities(typed)
        text = self._profile.with_own_marks(characters)
        if characters != typed and self._profile.with_entities(characters) != typed:
            line.notes.append(self.notes[0])
        if text != characters:
            line.notes.append(self.notes[1])
        part.masked = part.masked._replace(text=text)


class CopyLine(TextStep):
    """A line without letters is its own translation, if the training text hardly has any."""

    notes = ("no letters, unlike the training text; copied",)

    def apply(self, line: Line) -> None:
        (part,) = line.parts
        if line.is_constrained or not self._profile.copies(part.masked.text):
            return
        line.parts = []
        line.is_copied = True
        line.notes += self.notes


class CutSentences(TextStep):
    """A line of more sentences than is usual is cut at their ends, unless something is required."""

    notes = ("more sentences than in lines of the training text; cut at sentence ends",)

    def apply(self, line: Line) -> None:
        if line.is_constrained:
            return
        (part,) = line.parts
        sentences = self._profile.parts(part.masked.text)
        line.cut([[part.masked._replace(text=text) for text in sentences]])
        if sum(self._profile.tails or has_letters(text) for text in sentences) > 1:
            line.notes += self.notes


class SetAffixesAside(TextStep):
    """Labels, brackets and symbols around it are set aside, but nothing before a prefix."""

    def apply(self, line: Line) -> None:
        for place, part in enumerate(line.parts):
            begins_prefix = bool(line.prefix) and place == 0
            for _ in range(MAX_LABELS):
                if not self._sets_aside(part, begins_prefix):
                    break

    def _sets_aside(self, part: Part, begins_prefix: bool) -> bool:
        """Set one label, and what follows the text, aside; return whether there was any."""
        head, body, tail = self._profile.affixes(part.masked.text)
        if begins_prefix or any(symbol in head for symbol in self._context.symbols):
            body = f"{head}{body}{tail}" if head in PARTNERS else head + body
            tail = "" if head in PARTNERS else tail
            head = ""
        part.masked = part.masked._replace(text=body)
        part.head += self._profile.label_in_target(head)
        part.tail = self._profile.tail_in_target(tail) + part.tail
        return bool(head or tail)

    def undo(self, part: Part, text: str) -> str:
        """Write them around the translation, which may need a space after a label."""
        last = part.head[-1:]
        needs_space = last.strip() and last not in OPENING and is_letter(text[:1])
        head = f"{part.head} " if needs_space else part.head
        return f"{head}{text}{part.tail}".strip()


class WriteUsualCharacters(TextStep):
    """White space and characters of other forms are read as the training text writes them."""

    notes = ("characters that the training text hardly has ({}); read as those that it has",)

    def apply(self, line: Line) -> None:
        replaced = set[str]()
        for part in line.parts:
            text = self._profile.ordinary(part.masked.text)
            if text != part.masked.text:
                replaced |= set(part.masked.text) - set(self._profile.without_entities(text))
                part.masked = part.masked._replace(text=text)
        if replaced:
            codes = [f"U+{ord(character):04X}" for character in sorted(replaced)[:3]]
            line.notes.append(self.notes[0].format(", ".join(codes)))


class Capitalise(TextStep):
    """A sentence begins in a capital, where nearly all lines of the training text do."""

    notes = ("begins in lower case, unlike the training text; read with a capital",)

    def apply(self, line: Line) -> None:
        is_changed = False
        for part in line.parts:
            text = self._profile.with_capital(part.masked.text)
            is_changed = is_changed or text != part.masked.text
            part.masked = part.masked._replace(text=text)
        if is_changed:
            line.notes += self.notes


class MaskNames(TextStep):
    """Placeholders replace names, which the glossary or the model of names spells.

    Names stay words where the glossary has a phrase with them, or their spelling is forbidden.
    """

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        if context.names is None:
            raise TypeError("a vocabulary without names masks none")
        self._names = context.names

    def apply(self, line: Line) -> None:
        texts = list[list[Masked]]()
        for part in line.parts:
            masked = self._names.mask(normalized(part.text))
            texts.append([self._spelled(_without_tag(text, part.tag)) for text in masked])
        line.prefix = self._names.mask_target(normalized(line.prefix), texts[0][0].names)
        line.cut(texts)
        for part in line.parts:
            part.masked = without_forbidden(
                part.masked, self._names, line.prefix, self._context.is_forbidden
            )

    def undo(self, part: Part, text: str) -> str:
        """Write the spellings of names in the place of their placeholders."""
        return self._names.restore(text, part.masked)

    def _spelled(self, masked: Masked) -> Masked:
        """Spell names as the glossary does; mask none where it has a phrase with a name."""
        glossary = self._context.glossary
        given = {} if self._context.adds_uncertain_names else self._names.spellings(masked)
        if glossary is None or not masked.names:
            return masked._replace(given=given)
        targets = {name: glossary.targets(name) for name in masked.names.values()}
        count = sum(map(len, targets.values())) + len(glossary.targets(masked.text))
        if len(glossary.targets(masked.written)) != count:
            return Masked(masked.written, {})
        spellings = {
            mark: self._names.spelling(name, glossary.targets)
            for mark, name in masked.names.items()
            if targets[name]
        }
        return masked._replace(given={**given, **spellings})


def without_forbidden(
    masked: Masked, names: Names, exempt: Container[str], is_forbidden: IsForbidden
) -> Masked:
    """Mask no name whose spelling is forbidden, but for those with exempt placeholders."""
    words = {
        mark: name
        for mark, name in masked.names.items()
        if mark not in exempt and is_forbidden(names.restore(mark, masked))
    }
    if not words:
        return masked
    other_names = {mark: name for mark, name in masked.names.items() if mark not in words}
    return Masked(Masked(masked.text, words).written, other_names, masked.given)


class ReadCapitals(TextStep):
    """A line in capitals is read as other lines, where the training text hardly has any.

    Names stay as they are. Runs of versions that did not record which words have capitals read such
    a line as it is.
    """

    notes = ("read in lower case; the translation is written in capitals",)

    def apply(self, line: Line) -> None:
        text = without_entities(line.text.removeprefix(line.parts[0].tag))
        is_unusual = not self._profile.capitals and in_capitals(text)
        if not is_unusual or line.is_constrained or not self._profile.knows_case:
            return
        line.notes += self.notes
        for part in line.parts:
            part.is_in_capitals = True
            text = self._profile.without_capitals(part.masked.text)
            part.masked = part.masked._replace(text=text)

    def undo(self, part: Part, text: str) -> str:
        """Write the translation in capitals, unless they spell a forbidden word."""
        if not part.is_in_capitals:
            return text
        capitals = self._profile.translation_in_capitals(text)
        return text if self._context.is_forbidden(capitals) else capitals


class CutLong(TextStep):
    """A part of more tokens than data.max_length is cut; the end of endless words is left out."""

    notes = (
        "longer than data.max_length; translated in parts",
        "text without spaces that exceeds the length limit; only its start was translated",
    )

    def apply(self, line: Line) -> None:
        if all(self._fits(part) for part in line.parts):
            return
        texts = list[list[Masked]]()
        for part in line.parts:
            room = max(1, self._context.max_length - len(part.tag.split()) - self._mark)
            pieces, is_left_out = split_line(
                part.masked.text, self._context.tokenizer, room, self._profile.sentence_habits
            )
            line.is_left_out = line.is_left_out or is_left_out
            texts.append([part.masked._replace(text=piece) for piece in pieces])
        line.cut(texts)
        line.notes += self.notes if line.is_left_out else self.notes[:1]

    def _fits(self, part: Part) -> bool:
        """Return whether a part has no more tokens, with the final mark that it may get."""
        max_length = self._context.max_length
        if self._length(part.text) + self._mark <= max_length:
            return True
        return self._length(self._profile.with_final_mark(part.text, part.tag)) <= max_length

    @cached_property
    def _mark(self) -> int:
        """Return the number of tokens of the usual final mark."""
        return self._length("".join(self._profile.final_marks[:1]))

    def _length(self, text: str) -> int:
        (ids,) = self._context.tokenizer.encode([text])
        return len(ids)


class CopyParts(TextStep):
    """Parts without letters are copied with the part before, the first ones with the part after."""

    def apply(self, line: Line) -> None:
        if line.is_constrained:
            return
        parts = list[Part]()
        head = written_before = ""
        for part in line.parts:
            text = part.masked.text.strip()
            copied_text = f"{part.head}{text}{part.tail}"
            if not self._is_copied(text, parts):
                part.head = f"{head}{part.head}"
                part.written = f"{written_before}{part.written}"
                head = written_before = ""
                parts.append(part)
            elif parts:
                last = parts[-1]
                last.tail += space_after(last.masked.text + last.tail) + copied_text
                last.written += space_after(last.written) + part.written
            else:
                head += copied_text + space_after(copied_text)
                written_before += part.written + space_after(part.written)
        line.parts = parts or line.parts

    def _is_copied(self, text: str, earlier_parts: Sequence[Part]) -> bool:
        is_tail = bool(earlier_parts) and not self._profile.tails and not has_letters(text)
        return is_tail or self._profile.copies(text)


class NoteUnknownCharacters(TextStep):
    """Characters that the training text hardly has are noted."""

    notes = ("characters that the training text hardly has: ",)

    def apply(self, line: Line) -> None:
        for part in line.parts:
            part.unknown = self._profile.lacking(normalized(part.masked.written.strip()))
        unknown = set[str]().union(*(part.unknown for part in line.parts))
        if unknown:
            line.notes.append(self.notes[0] + "".join(map(_visible, sorted(unknown))))


def _visible(character: str) -> str:
    return f"U+{ord(character):04X} " if character.isspace() else character


class NoteUnknownWords(TextStep):
    """Words that the training text never has are noted, if they are half of those with content."""

    notes = ("words that the training text never has: ",)

    def apply(self, line: Line) -> None:
        unknown = self._profile.unknown_words(normalized(part.masked.text) for part in line.parts)
        if unknown:
            line.notes.append(self.notes[0] + ", ".join(unknown[:MAX_WORDS]))


class AddFinalMark(TextStep):
    """A sentence without a final mark gets the usual one, if those of the training text have it."""

    notes = (
        "no final punctuation mark, unlike the training text; translated as if there were one",
    )

    def apply(self, line: Line) -> None:
        for place, part in enumerate(line.parts):
            text = self._profile.with_final_mark(part.masked.text)
            if text == part.masked.text:
                continue
            part.masked = part.masked._replace(text=text)
            part.has_added_mark = place > 0 or not self._profile.ends_in_mark(line.prefix)
            if part is line.parts[-1] and self._lacks_mark(line):
                line.notes += self.notes

    def _lacks_mark(self, line: Line) -> bool:
        """Return whether it is the line that lacks the mark, and not what was cut of it."""
        return not line.is_left_out and not line.parts[-1].tail.startswith(tuple(MARKS))

    def undo(self, part: Part, text: str) -> str:
        """Remove the mark that translates it, unless a prefix or a phrase ends in one."""
        return self._profile.without_final_mark(text) if part.has_added_mark else text


class AssignPhrases(TextStep):
    """The first part has the phrases of the line; each has the terms of the glossary in it."""

    def apply(self, line: Line) -> None:
        line.parts[0].phrases = line.phrases
        for part in line.parts:
            if self._context.glossary is not None:
                part.terms = self._context.glossary.occurrences(part.text)
            required = (*part.phrases, *(term.target for term in part.terms))
            if any(map(self._profile.ends_in_mark, required)):
                part.has_added_mark = False


# A line has one part before `CutSentences`, which `MaskNames` and `CutLong` may cut further.
STEPS: tuple[type[TextStep], ...] = (
    LeaveBlank,
    NoteHabits,
    SetTagAside,
    ReadTypedCharacters,
    CopyLine,
    CutSentences,
    SetAffixesAside,
    WriteUsualCharacters,
    Capitalise,
    MaskNames,
    ReadCapitals,
    CutLong,
    CopyParts,
    NoteUnknownCharacters,
    NoteUnknownWords,
    AddFinalMark,
    AssignPhrases,
)


def steps_of(context: StepContext) -> list[TextStep]:
    """Return the steps of a line, in order."""
    kinds = [kind for kind in STEPS if kind is not MaskNames or context.names is not None]
    return [kind(context) for kind in kinds]
