"""Input lines of a file or stdin: read in groups, decoded, and reported on if unusual."""

import io
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seq2seq.cli.columns import STDIN, TextFile
from seq2seq.data.lines import (
    MAX_LINE_BYTES,
    bounded_lines,
    check_is_readable,
    check_is_text,
    check_line_length,
    damage_errors,
    is_blank,
    open_content,
    strip_line,
)
from seq2seq.runtime.console import counted, logger
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.file_types import describe, recognise

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation

BATCH_LINES = 2048  # lines that are read, sorted by length and translated together
_READ_BYTES = 1 << 16  # maximum size of one read from a stream: the capacity of a pipe
_LISTED_LINES = 10  # maximum number of line numbers in a note
_LISTED_CHARACTERS = 60  # maximum of a quoted text
Check = Callable[[bytes, Path, bool], None]
_UNDECODABLE = "bytes that are not UTF-8 were replaced in {lines} of {source}"
_NUL = "NUL characters (is the text UTF-16? Save it as UTF-8) in {lines} of {source}"
_ONE_SIDED = "only one side is blank, scored -inf: {lines}"
_NO_ATTENTION = "no attention weights, as the translation is blank or the line very long: {lines}"
_BLANK = "blank lines stay blank, without their prefix: {lines}"


@contextmanager
def open_input(source: TextFile | None, check: Check = check_is_text) -> Iterator[Iterator[bytes]]:
    """Open a file, compressed or not, a column of a table, or stdin if None; yield its lines.

    Raises UserError if it cannot be opened or is not text, or for a line of more than
    MAX_LINE_BYTES, and RunError if the file turns out to be damaged.
    """
    if source is not None and source.column is not None:
        texts = source.lines()
        first = list(islice(texts, 1))  # raises UserError for a table that cannot be read
        yield (f"{text}\n".encode() for text in chain(first, texts))
        return
    with open_bytes(source, check) as file:
        yield bounded_lines(file, source.name if source else STDIN)


@contextmanager
def open_bytes(source: TextFile | None, check: Check = check_is_text) -> Iterator[IO[bytes]]:
    """Open a file, or stdin if None, for reading bytes; raises errors as `open_input` does.

    `check` judges the first bytes of a file.
    """
    if source is None or source.is_stdin:
        if not sys.stdin.readable():
            raise UserError("standard input is closed; give a file, -i FILE")
        yield sys.stdin.buffer
        return
    with open_content(source.path, check) as file, damage_errors(source.path, RunError):
        yield file


def numbered(
    groups: Iterable[Sequence[bytes]], size: int, number: int = 1
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield batches of at most `size` lines, each with the number of its first line."""
    for group in groups:
        for start in range(0, len(group), size):
            yield number + start, group[start : start + size]
        number += len(group)


def grouped(lines: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield lines in groups of `size`; wait until each is complete."""
    while group := list(islice(lines, size)):
        yield group


def typed_lines() -> Iterator[list[bytes]]:
    """Yield each line that a user types at a prompt, with editing and history."""
    logger.info("Type one sentence per line; end with Ctrl-D.")
    with suppress(ImportError):
        import readline  # noqa: F401
    sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    with suppress(EOFError):
        while True:
            try:
                line = input("> ")
            except KeyboardInterrupt:
                print()  # messages begin on a line of their own
                raise
            yield [line.encode(errors="surrogateescape") + b"\n"]
    print()


def arrivals(file: Any, name: str = STDIN) -> Iterator[list[bytes]]:
    """Yield the lines that have arrived in a binary file; wait only while there are none.

    Raises UserError, with the name of the file, for a line of more than MAX_LINE_BYTES.
    """
    pending: list[bytes] = []  # parts of the incomplete last line
    number, size = 1, 0  # number and bytes of that line
    unbuffered = isinstance(getattr(file, "raw", None), io.FileIO)
    read = file.raw.read if unbuffered else file.read1
    while (data := read(_READ_BYTES)) != b"":
        if data is None:  # a non-blocking file without data
            select.select([file], [], [])
            continue
        *complete, last = data.split(b"\n")
        if complete:
            complete[0] = b"".join([*pending, complete[0]])
            pending, number, size = [], number + len(complete), 0
            yield complete
        pending.append(last)
        size += len(last)
        check_line_length(size, name, number)
    if any(pending):
        yield [b"".join(pending)]


def paragraphs(lines: Iterable[bytes], numbers: list[int], name: str = STDIN) -> Iterator[bytes]:
    """Yield paragraphs, their lines joined, and the blank lines that separate them.

    Appends the number of the first line of each. Raises UserError for a paragraph of more than
    MAX_LINE_BYTES.
    """
    paragraph: list[bytes] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        content = strip_line(line, first=number == 1)
        if is_blank(content.decode("utf-8", errors="replace")):
            if paragraph:
                yield b" ".join(paragraph)
                paragraph, size = [], 0
            numbers.append(number)
            yield b""
            continue
        if not paragraph:
            numbers.append(number)
        paragraph.append(content)
        size += len(content)
        check_line_length(size, name, numbers[-1])
    if paragraph:
        yield b" ".join(paragraph)


def read_document(source: TextFile | None) -> str:
    """Read a document in UTF-8; raises UserError, also for one of more than MAX_LINE_BYTES."""
    name = source.name if source else STDIN
    with open_bytes(source, check_is_readable) as file:
        content = file.read(MAX_LINE_BYTES + 1)
    if len(content) > MAX_LINE_BYTES:
        raise UserError(f"{name}: is larger than {MAX_LINE_BYTES >> 20} MiB. Divide it")
    if (kind := recognise(content)) is not None and not kind.is_readable:
        raise UserError(describe(kind, name, "FILE"))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{name}:{number}: byte 0x{content[error.start]:02x} is not UTF-8. Convert the file, "
            "as by iconv -f WINDOWS-1252 -t UTF-8"
        ) from None


class LineReport:
    """Decodes the lines of an input and collects notes on them for stderr."""

    def __init__(
        self,
        source: Path | str | None,
        numbers: Sequence[int] | None = None,
        accepts_markup: bool = False,
    ) -> None:
        """Report on a file or another source, or on stdin if None.

        With numbers, the line with number n in the input is the one that is called `numbers[n-1]`.
        Markup is refused, as other types of files are, unless it is accepted.
        """
        self._source = STDIN if source is None or source == Path("-") else str(source)
        self._path = str(source) if isinstance(source, Path) else "FILE"
        self._numbers, self._accepts_markup = numbers, accepts_markup
        self._notes: dict[str, list[str]] = {}  # lines, by number, that have a note

    def decode(self, number: int, lines: Sequence[bytes]) -> list[str]:
        """Decode lines as UTF-8, from line `number` on, without line ends and byte-order mark.

        Undecodable bytes become U+FFFD. Raises UserError if the first bytes are no text's.
        """
        texts = []
        kind = recognise(b"\n".join(lines[:30])) if number == 1 else None
        if kind is not None and not (kind.is_readable and self._accepts_markup):
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
        for index, translation in enumerate(translations, start=number):
            for note in translation.notes:
                kind, _, detail = note.partition(": ")
                kind = kind.replace("{", "{{").replace("}", "}}")
                self._note(f"{kind}: {{lines}}", index, True, detail)
            prefix = prefixes[index - number] if prefixes else ""
            self._note(_BLANK, index, not is_blank(prefix) and not translation.src_tokens)

    def note_without_attention(self, number: int) -> None:
        """Note a line that has text, but no attention weights."""
        self._note(_NO_ATTENTION, number, True)

    def note_one_sided(self, number: int, possible: Iterable[bool]) -> None:
        """Note pairs with exactly one blank side, which no model can produce."""
        for index, scorable in enumerate(possible, start=number):
            self._note(_ONE_SIDED, index, not scorable)

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

    def _note(self, note: str, index: int, applies: bool, detail: str = "") -> None:
        if applies:
            number = self._numbers[index - 1] if self._numbers else index
            place = f"{number} {detail[:_LISTED_CHARACTERS]!r}" if detail else str(number)
            self._notes.setdefault(note, []).append(place)


def _listed(lines: Sequence[str]) -> str:
    places = [*lines[:_LISTED_LINES], *(["..."] if len(lines) > _LISTED_LINES else [])]
    return f"{counted(len(lines), 'line')} ({', '.join(places)})"
