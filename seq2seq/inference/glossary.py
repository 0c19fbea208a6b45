"""Glossary: target phrases required wherever a source has their source phrases."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from seq2seq.data.lines import is_blank, read_lines
from seq2seq.data.vocabulary.vocabulary import normalized
from seq2seq.inference.search.lexical import is_letter
from seq2seq.runtime.errors import UserError


class Glossary:
    """Pairs of a source phrase and the target phrase that translates it.

    A source phrase is found with the same case and as complete words (in scripts without spaces,
    anywhere); of overlapping ones the longest counts.
    """

    def __init__(self, terms: Sequence[tuple[str, str]]) -> None:
        """Take pairs of source and target; raises UserError for a source with two targets."""
        self._targets: dict[str, str] = {}
        for number, (src, tgt) in enumerate(terms, start=1):
            key = _joined(src)
            if is_blank(key) or is_blank(tgt):
                raise UserError(f"glossary term {number}: a side is blank; give both")
            if self._targets.setdefault(key, tgt) != tgt:
                raise UserError(
                    f"glossary term {number}: {key!r} has two translations, "
                    f"{self._targets[key]!r} and {tgt!r}; keep one"
                )
        longest_first = sorted(self._targets, key=lambda key: (-len(key), key))
        self._pattern = re.compile("|".join(map(_pattern, longest_first)) or "(?!)")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a TSV of source and target phrases; raises UserError with the line."""
        terms, lines = [], []
        for number, line in enumerate(read_lines(path), start=1):
            if is_blank(line):
                continue
            columns = line.split("\t")
            if len(columns) != 2 or any(map(is_blank, columns)):
                raise UserError(
                    f"{path}:{number}: must be a source phrase, a tab and a target phrase"
                )
            terms.append((columns[0], columns[1]))
            lines.append(number)
        try:
            return cls(terms)
        except UserError as error:
            term, _, rest = str(error).removeprefix("glossary term ").partition(": ")
            raise UserError(f"{path}:{lines[int(term) - 1]}: {rest}") from None

    def terms(self) -> Iterator[tuple[str, str]]:
        """Yield the source phrases and the target phrases that translate them."""
        yield from self._targets.items()

    def targets(self, text: str) -> list[str]:
        """Return the target phrases that a source text requires, one for each occurrence."""
        return [self._targets[found[0]] for found in self._pattern.finditer(_joined(text))]


def _joined(text: str) -> str:
    return " ".join(normalized(text).split())


def _pattern(phrase: str) -> str:
    before = r"(?<!\w)" if is_letter(phrase[0]) else ""
    after = r"(?!\w)" if is_letter(phrase[-1]) else ""
    return f"{before}{re.escape(phrase)}{after}"
