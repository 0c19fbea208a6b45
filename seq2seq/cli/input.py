"""Bytes to lines, losing none; what was done to which of them is told on stderr."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from seq2seq.cli.streams import say
from seq2seq.inference.translation import Translation

_SHOWN = 10  # line numbers
_UNDECODABLE = "bytes that are not UTF-8 were replaced in {lines} of {origin}"
_NUL = "NUL characters, as UTF-16 has them (save it as UTF-8), in {lines} of {origin}"
_CUT = "translated in parts, being longer than data.max_length: {lines}"
_LEFT_OUT = (
    "endless stretches without a space, of which only the beginning was translated, in {lines}"
)
_IMPOSSIBLE = "one side alone is blank, scored -inf: {lines}"
_BLANK = "blank lines stay blank, without their prefix: {lines}"


class InputReport:
    """Decodes the lines of a file (None: stdin), and gathers what is to be told of them."""

    def __init__(self, path: Path | None) -> None:
        self._origin = "standard input" if path is None else str(path)
        self._found: dict[str, list[int]] = {}  # what is told, of which lines

    def decode(self, number: int, lines: Sequence[bytes]) -> list[str]:
        """UTF-8 lines from line `number` on, their ends (and a byte-order mark) taken off.

        Bytes that are no UTF-8 become U+FFFD.
        """
        texts = []
        for index, line in enumerate(lines, start=number):
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            if index == 1:
                content = content.removeprefix(b"\xef\xbb\xbf")
            text = content.decode("utf-8", errors="replace")
            self._note(_UNDECODABLE, index, "\ufffd" in text and text.encode() != content)
            self._note(_NUL, index, b"\0" in content)
            texts.append(text)
        return texts

    def note_parts(self, number: int, translations: Iterable[Translation]) -> None:
        """Remember which lines were too long to be translated in one part, or at all."""
        for index, each in enumerate(translations, start=number):
            self._note(_CUT, index, each.parts > 1)
            self._note(_LEFT_OUT, index, each.left_out)

    def note_impossible(self, number: int, possible: Iterable[bool]) -> None:
        """Remember which pairs have one blank side."""
        for index, each in enumerate(possible, start=number):
            self._note(_IMPOSSIBLE, index, not each)

    def note_blanks(
        self,
        number: int,
        translations: Sequence[Translation],
        prefixes: Sequence[str] | None,
    ) -> None:
        """Remember which lines had a prefix, but no text to translate."""
        pairs = zip(translations, prefixes, strict=True) if prefixes else ()
        for index, (each, prefix) in enumerate(pairs, start=number):
            self._note(_BLANK, index, bool(prefix.strip()) and not each.src_tokens)

    def tell(self) -> None:
        """Say what was done to which lines since it last did."""
        for what, numbers in self._found.items():
            say(f"note: {what.format(lines=_counted(numbers), origin=self._origin)}")
        self._found.clear()

    def _note(self, what: str, index: int, holds: bool) -> None:
        if holds:
            self._found.setdefault(what, []).append(index)


def _counted(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_SHOWN]))
    more = ", ..." * (len(lines) > _SHOWN)
    return f"{len(lines)} line{'s' * (len(lines) > 1)} ({shown}{more})"
