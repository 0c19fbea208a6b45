"""A line on its way through the steps before search, and the parts that are searched."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from seq2seq.text.aligned_characters import cut_like
from seq2seq.text.characters import is_blank
from seq2seq.text.glossary import Term
from seq2seq.text.names.names import Masked


@dataclass
class Part:
    """A line, or a part of it, that is searched on its own."""

    masked: Masked  # the text with placeholders, and its names; without the tag
    written: str = ""  # what the line has in its place
    tag: str = ""  # the tags of languages that its line begins with
    head: str = ""  # set aside before and after the text
    tail: str = ""
    is_in_capitals: bool = False  # read in lower case, and its translation written in capitals
    has_added_mark: bool = False  # its final mark is removed from its translation
    unknown: str = ""  # characters that the training text hardly has
    phrases: Sequence[str] = ()  # that its translation contains
    terms: Sequence[Term] = ()  # of the glossary, at their places in `text`

    @property
    def text(self) -> str:
        """Return the text that is searched."""
        return f"{self.tag} {self.masked.text}" if self.tag else self.masked.text


@dataclass
class Line:
    """A line with all that steps make of it; it has no parts if it is blank or copied."""

    text: str
    prefix: str = ""  # with which its translation begins
    phrases: Sequence[str] = ()  # that its translation contains
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_left_out: bool = False  # some of its text is not translated
    is_copied: bool = False  # it is its own translation

    @property
    def is_constrained(self) -> bool:
        """Return whether something is required of its translation."""
        return bool(self.prefix or self.phrases)

    def cut(self, texts: Iterable[Sequence[Masked]]) -> None:
        """Split each part into texts; the first has its head, and the last its tail."""
        parts = list[Part]()
        for part, pieces in zip(self.parts, texts, strict=True):
            if len(pieces) == 1:  # as of most lines
                part.masked = pieces[0]
                parts.append(part)
                continue
            split = [replace(part, masked=piece, head="", tail="") for piece in pieces]
            if len(split) > 1:
                written = cut_like(part.written, [piece.written for piece in pieces])
                for piece, text in zip(split, written, strict=True):
                    piece.written = text
            if split:
                split[0].head = part.head
                split[-1].tail = part.tail
            parts += split
        self.parts = parts


def line_of(text: str, prefix: str = "", phrases: Sequence[str] = ()) -> Line:
    """Return a line as the steps begin with it: one part, which is its text."""
    return Line(text, "" if is_blank(prefix) else prefix, phrases, [Part(Masked(text, {}), text)])
