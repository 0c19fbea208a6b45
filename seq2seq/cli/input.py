"""Input lines of a file or stdin: read in batches, decoded, and reported on if unusual."""

import io
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seq2seq.cli.columns import TextFile
from seq2seq.data.compression import damage_errors, open_file
from seq2seq.data.lines import bounded_lines, check_line_length, is_blank, strip_line
from seq2seq.runtime.console import counted, logger
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.file_types import describe, recognise

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation

BATCH_LINES = 2048  # lines that are read, sorted by length and translated together
_READ_BYTES = 1 << 16  # maximum size of one read from a stream: the capacity of a pipe
_SHOWN_LINES = 10  # maximum number of line numbers in a note
_UNDECODABLE = "bytes that are not UTF-8 were replaced in {lines} of {source}"
_NUL = "NUL characters (is the text UTF-16? Save it as UTF-8) in {lines} of {source}"
_ONE_SIDED = "only one side is blank, scored -inf: {lines}"
_NO_ATTENTION = "no attention weights, as the translation is blank or the line very long: {lines}"
_BLANK = "blank lines stay blank, without their prefix: {lines}"


class Prompt:
    """Lines that a user types at a prompt, with editing and history where the system has them."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line, with a line feed."""
        logger.info("Type one sentence per line; end with Ctrl-D.")
        with suppress(ImportError):  # Windows edits without it
            import readline  # noqa: F401
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        with suppress(EOFError):
            while True:
                try:
                    line = input("> ")
                except KeyboardInterrupt:
                    print()  # messages begin on a line of their own
                    raise
                yield line.encode(errors="surrogateescape") + b"\n"
        print()

    def isatty(self) -> bool:
        """Return True: lines are translated one by one."""
        return True


@contextmanager
def open_input(source: TextFile | None) -> Iterator[IO[bytes]]:
    """Open a file, compressed or not, or stdin if None, for reading lines of bytes.

    Raises UserError if it cannot be opened or is not text, RunError if it turns out to be damaged.
    """
    if source is None:
        if not sys.stdin.readable():
            raise UserError("standard input is closed; give a file, -i FILE")
        yield sys.stdin.buffer
    elif source.column is not None:
        rows = io.BufferedReader(_Rows(source.lines()))
        rows.peek(1)  # raises UserError for a table that cannot be read
        yield rows
    else:
        with open_file(source.path) as file, damage_errors(source.path, RunError):
            yield file


class _Rows(io.RawIOBase):
    """The texts of a column as a binary file of lines."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts, self._pending = texts, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill part of a buffer; return the number of bytes, 0 at the end."""
        if not self._pending:
            text = next(self._texts, None)
            self._pending = b"" if text is None else f"{text}\n".encode()
        size = min(len(buffer), len(self._pending))
        buffer[:size], self._pending = self._pending[:size], self._pending[size:]
        return size


class Paragraphs:
    """Paragraphs of a text as lines: the lines of each are joined, blank lines separate them."""

    def __init__(self, lines: IO[bytes], name: str) -> None:
        """Take a binary file and its name for messages."""
        self._lines, self._name = lines, name
        self.numbers: list[int] = []  # first line of each paragraph, and blank lines

    def __iter__(self) -> Iterator[bytes]:
        """Yield the paragraphs and blank lines.

        Raises UserError for a paragraph of more than MAX_LINE_BYTES.
        """
        paragraph: list[bytes] = []
        size = 0
        for number, line in enumerate(bounded_lines(self._lines, self._name), start=1):
            content = strip_line(line, first=number == 1)
            if is_blank(content.decode("utf-8", errors="replace")):
                if paragraph:
                    yield b" ".join(paragraph)
                    paragraph, size = [], 0
                self.numbers.append(number)
                yield b""
                continue
            if not paragraph:
                self.numbers.append(number)
            paragraph.append(content)
            size += len(content)
            check_line_length(size, self._name, self.numbers[-1])
        if paragraph:
            yield b" ".join(paragraph)

    def isatty(self) -> bool:
        """Return False: paragraphs are translated in batches."""
        return False


Lines = IO[bytes] | Prompt | Paragraphs


def batches(
    lines: Lines, size: int | None, name: str = "input"
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield batches of lines, each with the number of its first line, from 1.

    A terminal is read line by line unless `size` is given. Raises UserError, with the name of the
    input, for a line of more than MAX_LINE_BYTES.
    """
    size = size or (1 if lines.isatty() else BATCH_LINES)
    number, batch = 1, []
    for line in lines if isinstance(lines, Prompt | Paragraphs) else bounded_lines(lines, name):
        batch.append(line)
        if len(batch) == size:
            yield number, batch
            number, batch = number + size, []
    if batch:
        yield number, batch


def arrivals(
    lines: IO[bytes], size: int | None, name: str = "input"
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield batches of the lines that have arrived; wait only while there are none.

    Raises UserError as `batches` does.
    """
    size = size or BATCH_LINES
    number = 1
    for arrived in _reads(lines, name):
        for start in range(0, len(arrived), size):
            yield number + start, arrived[start : start + size]
        number += len(arrived)


def _reads(lines: Any, name: str) -> Iterator[list[bytes]]:
    """Yield the lines that each read of a binary file completes."""
    pending: list[bytes] = []  # parts of the incomplete last line
    number, size = 1, 0  # number and bytes of that line
    unbuffered = isinstance(getattr(lines, "raw", None), io.FileIO)
    read = lines.raw.read if unbuffered else lines.read1
    while (data := read(_READ_BYTES)) != b"":
        if data is None:  # a non-blocking file without data
            select.select([lines], [], [])
            continue
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = b"".join([*pending, complete[0]])
            pending, number, size = [], number + len(complete), 0
            yield complete
        pending.append(rest)
        size += len(rest)
        check_line_length(size, name, number)
    if any(pending):
        yield [b"".join(pending)]


class LineReport:
    """Decodes the lines of an input and collects notes on them for stderr."""

    def __init__(self, source: Path | str | None, numbers: Sequence[int] | None = None) -> None:
        """Report on a file or another source, or on stdin if None.

        With numbers, the line with number n in the input is the one that is called `numbers[n-1]`.
        """
        self._source = "standard input" if source is None else str(source)
        self._path = str(source) if isinstance(source, Path) else "FILE"
        self._numbers = numbers
        self._notes: dict[str, list[int]] = {}  # line numbers by note

    def decode(self, number: int, lines: Sequence[bytes]) -> list[str]:
        """Decode lines as UTF-8, from line `number` on, without line ends and byte-order mark.

        Undecodable bytes become U+FFFD. Raises UserError if the first bytes are no text's.
        """
        texts = []
        if number == 1 and lines and (kind := recognise(b"\n".join(lines[:8]))) is not None:
            raise UserError(describe(kind, self._source, self._path))
        for index, line in enumerate(lines, start=number):
            content = strip_line(line, first=index == 1)
            text = content.decode("utf-8", errors="replace")
            self._note(_UNDECODABLE, index, "\ufffd" in text and text.encode() != content)
            self._note(_NUL, index, b"\0" in content)
            texts.append(text)
        return texts

    def note_translations(
        self,
        number: int,
        translations: Sequence["Translation"],
        prefixes: Sequence[str] | None = None,
    ) -> None:
        """Note lines that are unlike the training text or were split, and unused prefixes."""
        for index, each in enumerate(translations, start=number):
            for note in each.notes:
                self._note(f"{note}: {{lines}}", index, True)
            prefix = prefixes[index - number] if prefixes else ""
            self._note(_BLANK, index, not is_blank(prefix) and not each.src_tokens)

    def note_without_attention(self, number: int) -> None:
        """Note a line that has text, but no attention weights."""
        self._note(_NO_ATTENTION, number, True)

    def note_one_sided(self, number: int, possible: Iterable[bool]) -> None:
        """Note pairs with exactly one blank side, which no model can produce."""
        for index, each in enumerate(possible, start=number):
            self._note(_ONE_SIDED, index, not each)

    @contextmanager
    def logged_on_failure(self) -> Iterator[None]:
        """Log the notes also if the block does not succeed."""
        try:
            yield
        except BaseException:
            self.log()
            raise

    def log(self) -> None:
        """Log the notes collected since the last call."""
        for note, numbers in self._notes.items():
            logger.info(f"note: {note.format(lines=_listed(numbers), source=self._source)}")
        self._notes.clear()

    def _note(self, note: str, index: int, applies: bool) -> None:
        if applies:
            number = self._numbers[index - 1] if self._numbers else index
            self._notes.setdefault(note, []).append(number)


def _listed(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_SHOWN_LINES]))
    more = ", ..." * (len(lines) > _SHOWN_LINES)
    return f"{counted(len(lines), 'line')} ({shown}{more})"
