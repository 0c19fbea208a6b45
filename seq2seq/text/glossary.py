"""Glossary: target phrases required wherever a source has their source phrases."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple, Self

from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import is_blank, is_in_word, is_letter, normalized
from seq2seq.text.text_files import read_lines


class Term(NamedTuple):
    """An occurrence of a source phrase, and the target phrase that translates it."""

    start: int  # characters
    end: int
    target: str


class Glossary:
    """Pairs of a source phrase and the target phrase that translates it.

    A source phrase is found with the same case and as complete words (in scripts without spaces,
    anywhere); of overlapping ones the longest counts.
    """

    def __init__(
        self, terms: Mapping[str, str] | Iterable[Sequence[str]], places: Sequence[str] = ()
    ) -> None:
        """Take pairs of source and target, or a dict, and their places; raises UserError."""
        self._targets: dict[str, str] = {}
        pairs = terms.items() if isinstance(terms, Mapping) else terms
        for number, (src, tgt) in enumerate(pairs):
            place = places[number] if places else f"glossary term {number + 1}"
            key = _joined(src)
            if is_blank(key) or is_blank(tgt):
                raise UserError(f"{place}: a side is blank; give both")
            if self._targets.setdefault(key, tgt) != tgt:
                targets = f"{self._targets[key]!r} and {tgt!r}"
                raise UserError(f"{place}: {key!r} has two translations, {targets}; keep one")
        self._lengths = _lengths(self._targets)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a TSV of source and target phrases; raises UserError with the line."""
        path = Path(path)
        terms: dict[str, list[str]] = {}  # by their places
        for number, line in enumerate(read_lines(path), start=1):
            if is_blank(line):
                continue
            place = f"{path}:{number}"
            columns = line.split("\t")
            if len(columns) != 2 or any(map(is_blank, columns)):
                raise UserError(f"{place}: must be a source phrase, a tab and a target phrase")
            terms[place] = columns
        return cls(terms.values(), list(terms))

    def read_as(self, written: Callable[[str], str]) -> Self:
        """Return a copy that finds a source phrase also as `written` returns it."""
        glossary = copy(self)
        targets = {_joined(written(key)): target for key, target in self._targets.items()}
        targets.pop("", None)
        glossary._targets = {**targets, **self._targets}
        glossary._lengths = _lengths(glossary._targets)
        return glossary

    def terms(self) -> Iterator[tuple[str, str]]:
        """Yield the source phrases and the target phrases that translate them."""
        yield from self._targets.items()

    def targets(self, text: str) -> list[str]:
        """Return the target phrases that a source text requires, one for each occurrence."""
        return [term.target for term in self.occurrences(text)]

    def occurrences(self, text: str) -> list[Term]:
        """Return the terms of a source text, NFC with single spaces, in order."""
        text = _joined(text)
        terms = list[Term]()
        start = 0
        while start < len(text):
            phrase = self._longest(text, start)
            if phrase is None:
                start += 1
            else:
                end = start + len(phrase)
                terms.append(Term(start, end, self._targets[phrase]))
                start = end
        return terms

    def _longest(self, text: str, start: int) -> str | None:
        """Return the longest source phrase that a text has at `start` as complete words."""
        for length in self._lengths.get(text[start], ()):
            phrase = text[start : start + length]
            if phrase in self._targets and _is_bounded(phrase, text, start):
                return phrase
        return None


def _lengths(keys: Iterable[str]) -> dict[str, list[int]]:
    """Return the lengths of source phrases by their first character, longest first."""
    lengths: dict[str, list[int]] = {}
    for first, length in sorted({(key[0], len(key)) for key in keys}, reverse=True):
        lengths.setdefault(first, []).append(length)
    return lengths


def _joined(text: str) -> str:
    return " ".join(normalized(text).split())


def _is_bounded(phrase: str, text: str, start: int) -> bool:
    """Return whether no word of a script with spaces continues beyond the phrase at `start`."""
    before = text[max(0, start - 1) : start]
    after = text[start + len(phrase) :][:1]
    return not any(
        is_letter(letter) and (c == "_" or is_in_word(c))
        for letter, c in ((phrase[0], before), (phrase[-1], after))
    )
