"""Input lines of a file or stdin: read in groups, decoded, and reported on if unusual."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from seq2seq.runtime.console import counted, logger
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.file_types import describe, is_table, recognise
from seq2seq.text import text_files as reading
from seq2seq.text.characters import is_blank

if TYPE_CHECKING:
    from seq2seq.inference.translation import Translation

STDIN = "standard input"
_PROMPT = "> "
BATCH_LINES = 2048  # lines that are read, sorted by length and translated together
_LISTED_LINES = 10  # maximum number of line numbers in a note
_LISTED_CHARACTERS = 60  # maximum of a quoted text
Lines = Iterator[bytes]
Row = TypeVar("Row")
Check = Callable[[bytes, Path, bool], None]
_UNDECODABLE = "bytes that are not UTF-8 were replaced in {lines} of {source}"
_NUL = "NUL characters (is the text UTF-16? Save it as UTF-8) in {lines} of {source}"
ONE_SIDED = "only one side is blank, scored -inf: {lines}"
NO_ATTENTION = "no attention weights, as the translation is blank or the line very long: {lines}"
_BLANK = "blank lines stay blank, without their prefix: {lines}"


def is_stdin(path: Path | None) -> bool:
    return str(path) == "-"


def name_of(path: Path | None) -> str:
    """Return the name of a text in messages; None and - are standard input."""
    return STDIN if path is None or is_stdin(path) else str(path)


def check_texts(command: str, *paths: Path | None) -> None:
    """Raise UserError for a table, and for a standard input that is closed or given twice."""
    count = sum(map(is_stdin, paths))
    if count > 1:
        raise UserError(f"{command}: - is standard input, which can be one of the texts only")
    if count and not sys.stdin.readable():
        raise UserError("standard input is closed; give a file in place of -")
    for path in paths:
        if path is not None and is_table(path):
            raise UserError(f"{path}: is a table; give a file with one sentence per line")


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file or of standard input; raises UserError as `iter_lines` does."""
    return reading.lines_of(sys.stdin.buffer, STDIN) if is_stdin(path) else reading.iter_lines(path)


@contextmanager
def open_input(path: Path | None, check: Check = reading.check_is_text) -> Iterator[Lines]:
    """Yield the lines of a file, or of stdin; raises UserError, and RunError if it is damaged."""
    with open_bytes(path, check) as file:
        yield reading.bounded_lines(file, name_of(path))


@contextmanager
def typed_lines() -> Iterator[Lines]:
    """Yield lines as a user types them, with a prompt, editing and history; Ctrl-C ends quietly."""
    with suppress(ImportError):  # Python may be built without
        import readline  # noqa: F401  (input uses it)
    try:
        yield _typed()
    except KeyboardInterrupt as stop:
        print()  # below what is typed
        raise Quit(*stop.args) from None


class Quit(KeyboardInterrupt):
    """Ctrl-C of a user who has finished: the exit code alone says so."""

    signal_number = signal.SIGINT


def _typed() -> Lines:
    while True:
        try:
            yield f"{input(_PROMPT)}\n".encode(errors="surrogateescape")
        except EOFError:
            print()
            return


@contextmanager
def open_bytes(path: Path | None, check: Check = reading.check_is_text) -> Iterator[IO[bytes]]:
    """Open a file, whose first bytes `check` judges, or stdin; raises as `open_input` does."""
    if path is None or is_stdin(path):
        if not sys.stdin.readable():
            raise UserError("standard input is closed; give a file, -i FILE")
        yield sys.stdin.buffer
        return
    with reading.open_content(path, check) as file, reading.damage_errors(path, RunError):
        yield file


def numbered(lines: Iterator[Row], size: int, number: int) -> Iterator[tuple[int, Sequence[Row]]]:
    """Yield batches of at most `size` lines with the number of their first line, from `number`."""
    while batch := list(islice(lines, size)):
        yield number, batch
        number += len(batch)


def read_document(path: Path | None) -> str:
    """Read a document in UTF-8; raises UserError, also for a large one."""
    name = name_of(path)
    with open_bytes(path, reading.check_is_readable) as file:
        content = file.read(reading.MAX_LINE_BYTES + 1)
    if len(content) > reading.MAX_LINE_BYTES:
        raise UserError(f"{name}: is larger than {reading.MAX_LINE_BYTES >> 20} MiB. Divide it")
    if (kind := recognise(content)) is not None and not kind.is_readable:
        raise UserError(describe(kind, name, "FILE"))
    return reading.decode(content, Path(name), 1)


class LineReport(AbstractContextManager["LineReport"]):
    """Decodes the lines of an input and collects notes on them for stderr."""

    def __init__(
        self, source: Path | str | None, numbers: Sequence[int] = (), accepts_markup: bool = False
    ) -> None:
        """Report on a file or another source, or on stdin if None; markup is refused by default.

        With numbers, line n of the input is called `numbers[n-1]`.
        """
        self._source = STDIN if source is None or source == Path("-") else str(source)
        self._path = str(source) if isinstance(source, Path) else "FILE"
        self._numbers = numbers
        self._accepts_markup = accepts_markup
        # Lines that have a note, as they are listed, with their numbers: two models may note one.
        self._notes: dict[str, dict[str, int]] = {}

    def decode(self, number: int, lines: Sequence[bytes]) -> list[str]:
        """Decode lines from line `number` on, as UTF-8 or U+FFFD; raises UserError for no text."""
        texts = []
        kind = recognise(b"\n".join(lines[:30])) if number == 1 else None
        if kind is not None and not (kind.is_readable and self._accepts_markup):
            raise UserError(describe(kind, self._source, self._path))
        for index, line in enumerate(lines, start=number):
            content = reading.strip_line(line, first=index == 1)
            text = content.decode("utf-8", errors="replace")
            self.note(_UNDECODABLE, index, "\ufffd" in text and text.encode() != content)
            self.note(_NUL, index, b"\0" in content)
            texts.append(text)
        return texts

    def note_translations(
        self, number: int, translations: Sequence["Translation"], prefixes: Sequence[str] = ()
    ) -> None:
        """Note lines that are unlike the training text or were split, and unused prefixes."""
        for index, translation in enumerate(translations, start=number):
            details: dict[str, list[str]] = {}  # by the kinds of notes on all parts
            for note in translation.notes:
                kind, _, detail = note.partition(": ")
                details.setdefault(kind, []).append(detail)
            for kind, texts in details.items():
                kind = kind.replace("{", "{{").replace("}", "}}")
                self.note(f"{kind}: {{lines}}", index, True, ", ".join(filter(None, texts)))
            prefix = prefixes[index - number] if prefixes else ""
            self.note(_BLANK, index, not is_blank(prefix) and not translation.src_tokens)

    def __exit__(self, *_: object) -> None:
        """Log the notes, also if the block does not succeed."""
        self.log()

    def log(self) -> None:
        """Log the notes collected since the last call."""
        for note, places in self._notes.items():
            listed = [*islice(places, _LISTED_LINES), *["..."] * (len(places) > _LISTED_LINES)]
            lines = f"{counted(len({*places.values()}), 'line')} ({', '.join(listed)})"
            logger.info(f"note: {note.format(lines=lines, source=self._source)}")
        self._notes.clear()

    def note(self, note: str, index: int, applies: bool = True, detail: str = "") -> None:
        """Note a line, if that applies to it."""
        if applies:
            number = self._numbers[index - 1] if self._numbers else index
            place = f"{number} {detail[:_LISTED_CHARACTERS]!r}" if detail else str(number)
            self._notes.setdefault(note, {})[place] = number


def read_texts(paths: Sequence[Path | None]) -> list[tuple[LineReport, list[str]]]:
    """Read files, or stdin for None; raise UserError if their numbers of lines differ."""
    with ExitStack() as stack:
        opened = [stack.enter_context(open_input(path)) for path in paths]
        files = list(zip(map(name_of, paths), opened, strict=True))
        lines = list(zip(*reading.in_step(files), strict=True)) or [()] * len(paths)
    reports = [LineReport(path) for path in paths]
    return [(report, report.decode(1, side)) for report, side in zip(reports, lines, strict=True)]
