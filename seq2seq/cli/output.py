"""Output: text on stdout or in a file that appears once it is complete, reports, progress bars."""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import IO, Any

from seq2seq.runtime import console, file_types, files
from seq2seq.runtime.errors import RunError, UserError, is_installed
from seq2seq.text.text_files import is_compressed


class Output:
    """Text file, or stdout escaped for a terminal; raises RunError if writing fails."""

    def __init__(self, file: IO[str], name: str, part: Path | None = None) -> None:
        """Write to an open file; `part` is the temporary file that becomes `name` at the end."""
        self._file = file
        self._name = name
        self._part = part
        self.on_terminal = file.isatty()

    @contextmanager
    def kept_on_failure(self, content: str, noun: str, lines_of_each: int = 1) -> Iterator[None]:
        """If the block fails, keep what was written beside the output, with a message of it."""
        try:
            yield
        except BaseException:
            with suppress(RunError):
                self._keep_incomplete(content, noun, lines_of_each)
            raise

    def _keep_incomplete(self, content: str, noun: str, lines_of_each: int) -> None:
        """Let the complete lines become a file beside the output, unless a larger one is there."""
        with suppress(RunError):  # as of a full disk, where a part of the buffer was written
            self.flush()
        if self._part is None or not self._part.is_file():
            return
        path = incomplete_of(Path(self._name))
        with files.write_errors(path), self._part.open("r+b") as written:
            count = sum(line.endswith(b"\n") for line in written) // lines_of_each
            written.seek(0)
            size = sum(map(len, islice(written, count * lines_of_each)))
            if not count:
                return
            if path.is_file() and not path.is_symlink() and path.stat().st_size > size:
                console.logger.info(f"{path}: has more of an earlier call, and was left as it is")
                return
            written.truncate(size)
            self._part.replace(path)
            console.logger.info(f"{path}: {content} {console.counted(count, noun)}")

    def write(self, text: str) -> None:
        with files.write_errors(self._name):
            self._file.write(console.printable(text) if self.on_terminal else text)

    def flush(self) -> None:
        with files.write_errors(self._name):
            self._file.flush()


def incomplete_of(path: Path) -> Path:
    """Return the file that keeps what a command has written that did not succeed."""
    return path.with_name(f"{path.name}.incomplete")


@contextmanager
def open_output(path: Path | None) -> Iterator[Output]:
    """Open stdout (None or `-`), or a file that appears once the block has ended."""
    check_output(path)
    if path is None or str(path) == "-":
        if not sys.stdout.writable():
            raise UserError("standard output is closed; give a file, -o FILE")
        sys.stdout.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", newline="\n"
        )
        yield Output(sys.stdout, "standard output")
        return
    target = files.resolve_link(path)
    with termination_raises(), ExitStack() as stack:
        with files.write_errors(path):
            file = stack.enter_context(files.output_file(path))
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            name, *part = [target] if files.is_stream(target) else [path, files.part_of(target)]
            output = Output(text, str(name), *part)
            yield output
            output.flush()
        finally:
            with suppress(OSError):  # an error of the block or of the flush takes precedence
                text.detach()
    incomplete = incomplete_of(path)  # of an earlier call, whose lines are all in the file now
    if incomplete.is_file() and not incomplete.is_symlink():
        with suppress(OSError):
            incomplete.unlink()


class Terminated(KeyboardInterrupt):
    """SIGTERM, or the terminal was closed; the argument is the number of the signal."""


@contextmanager
def termination_raises() -> Iterator[None]:
    """Raise Terminated where SIGTERM or SIGHUP would kill, so that temporary files are removed."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    default = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        default = []
    for number in default:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


def write_report(text: str, tree: object, json_path: Path | None) -> None:
    """Print a report; write it as JSON to `json_path` too, or in place of the text if that is -."""
    write_json(tree, json_path)
    if json_path is None or str(json_path) != "-":
        with open_output(None) as output:
            output.write(text + "\n")


def write_json(tree: object, path: Path | None) -> None:
    """Write a report as JSON, if there is a path for it."""
    if path is not None:
        with open_output(path) as output:
            output.write(files.json_text(as_tree(tree), indent=2) + "\n")


def as_tree(value: Any) -> Any:
    """Convert named tuples to dictionaries, at any depth, for JSON."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: as_tree(entry) for key, entry in value.items()}
    return [as_tree(entry) for entry in value] if isinstance(value, list) else value


def check_output(
    path: Path | None,
    *inputs: Path | None,
    runs: Iterable[Path | str] = (),
    compressed: bool = False,
) -> None:
    """Check, before any work, that `open_output` can write the path; raises UserError.

    One rule: an output, its temporary file and what is kept of it on failure are none of the other
    files of the command and none of the files of its runs, by another name or a link either.
    """
    if path is None or str(path) == "-":
        return
    _check_writable(path)
    part = files.part_of(files.resolve_link(path))
    incomplete = incomplete_of(path)
    files.check_paths(part)
    if is_compressed(path) and not compressed:
        raise UserError(f"{path}: output is not compressed; omit {path.suffix}")
    reasons = {path: "is already read or written by this command"}
    if not files.is_stream(path):
        for name, when in ((part, "first"), (incomplete, "if the command fails")):
            reasons[name] = f"is written as {name} {when}, which this command reads"
    for name, reason in reasons.items():
        if any(files.same_file(name, source) for source in inputs if source) or _is_stdin(name):
            raise UserError(f"{path}: {reason}; choose another name")
        for run in map(Path, () if files.is_stream(path) else runs):
            if _belongs_to(run, name):
                raise UserError(f"{path}: is a file of the run {run}; choose another name")


def check_sides(outputs: Sequence[Path]) -> None:
    """Raise UserError unless parallel text has two files of lines, or one that is a table."""
    if len(outputs) > 2:
        raise UserError("-o: give two files, source and target, or one with both sides")
    if len(outputs) == 1 and not file_types.is_table(outputs[0]):
        remedy = "end its name in .tsv, .csv or .jsonl, or give two names"
        raise UserError(f"{outputs[0]}: one file receives both sides as a table; {remedy}")
    if len({*outputs}) < len(outputs):
        raise UserError("-o: the files of source and target have the same name")


def check_replaced(path: Path, overwrite: bool) -> None:
    """Raise UserError for an output that is not a regular file: a new one, or one to overwrite."""
    if str(path) == "-":
        raise UserError("-: standard output cannot receive this output; give a file name")
    if files.is_stream(path):
        raise UserError(f"{path}: is not a regular file; choose another name")
    if path.exists() and not overwrite:
        raise UserError(f"{path}: exists; pass --overwrite to replace it, or choose another")


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file name")
    if path.is_symlink() and not path.exists() and _is_broken(path):
        raise UserError(f"{path}: is a broken link; remove it")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    if files.is_stream(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"{path}: no permission to write")
    elif not os.access(folder := files.resolve_link(path).parent, os.W_OK):
        raise UserError(f"{path}: no permission to write in the folder {folder}")


def _is_broken(link: Path) -> bool:
    """Return whether a link forms a cycle or leads into a folder that does not exist."""
    try:
        return not link.resolve().parent.is_dir()
    except (RuntimeError, OSError):  # Python before 3.13, and later
        return True


def _belongs_to(model: Path, path: Path) -> bool:
    from seq2seq.runs import engine_folder, layout

    if engine_folder.is_export(model):
        return any(files.same_file(path, file) for file in model.rglob("*"))
    return layout.belongs_to_run(path, model)


def _is_stdin(path: Path) -> bool:
    with suppress(OSError, ValueError):  # stdin has no descriptor
        return path.is_file() and os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
    return False


@contextmanager
def progress(
    task: str, total: int | None, visible: bool = True, start: int = 0
) -> Iterator[Callable[[int], object] | None]:
    """Yield a function that advances a bar on stderr, from `start` on; None where there is none."""
    if not visible or not sys.stderr.isatty() or not is_installed("tqdm"):
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=task, total=total, initial=start, unit=" lines", dynamic_ncols=True) as bar:
        yield bar.update
