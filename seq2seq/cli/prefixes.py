"""The prefixes that a call of `translate` gives: the same for all lines, or one a line."""

import io
from pathlib import Path
from typing import IO

from seq2seq.runtime.errors import UserError


class GivenPrefixes:
    """What the translation of each line must begin with; where nothing is given, None."""

    def __init__(self, text: str | None, path: Path | None, stream: bool) -> None:
        """A text for all lines, or a file whose line n is for line n; UserError where refused."""
        self._text, self._path, self._lines = text, path, [text or ""]
        if text is not None and path is not None:
            raise UserError("--prefix and --prefix-file: give one of the two")
        if path is not None and stream:
            raise UserError(
                "--prefix-file: nobody knows how many lines a --stream will have; use --prefix, "
                "or leave --stream out"
            )
        if path is not None:
            from seq2seq.data.lines import read_lines

            self._lines = read_lines(path)
        if any("\ud800" <= character <= "\udfff" for character in self._lines[0]):
            raise UserError("--prefix: is not UTF-8; type it in a UTF-8 terminal")

    def check(self, lines: IO[bytes], name: str) -> IO[bytes]:
        """Refuse too long a prefix, or as few or many that they are not one a line.

        For that all lines are read first; returns them, to be read again.
        """
        if self._text or self._path:
            from seq2seq.inference.prefixes import check_prefixes

            check_prefixes(self._lines)
        if self._path is None:
            return lines
        kept = io.BytesIO(lines.read())
        count = sum(1 for _ in kept)
        if count != len(self._lines):
            raise UserError(
                f"{self._path} has {len(self._lines)} lines but {name} has {count}: "
                "line n of it must be the prefix of line n, blank for none"
            )
        kept.seek(0)
        return kept

    def of(self, number: int, count: int) -> list[str] | None:
        """Those of so many lines from this number on, counted from 1."""
        if self._path is not None:
            return self._lines[number - 1 : number - 1 + count]
        return self._lines * count if self._text else None
