"""Output: text on stdout or in a file that appears once it is complete, and reports."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import is_stream, output_path, resolve_link, write_errors


class Output:
    """Text file or stdout; raises RunError if writing fails, as on a full disk."""

    def __init__(self, file: IO[str], name: str) -> None:
        self._file = file
        self._name = name

    def write(self, text: str) -> None:
        """Write text into the buffer."""
        with write_errors(self._name):
            self._file.write(text)

    def flush(self) -> None:
        """Flush the buffer."""
        with write_errors(self._name):
            self._file.flush()


@contextmanager
def open_output(path: Path | None) -> Iterator[Output]:
    """Open stdout (None or `-`), or a file that appears once the block has ended."""
    check_output(path)
    if path is None or str(path) == "-":
        if not sys.stdout.writable():
            raise UserError("standard output is closed; give a file, -o FILE")
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield Output(sys.stdout, "standard output")
        return
    with output_path(path) as target, _opened(target) as file:
        yield file


@contextmanager
def _opened(path: Path) -> Iterator[Output]:
    file = path.open("w", encoding="utf-8", newline="\n")
    try:
        output = Output(file, str(path))
        yield output
        output.flush()
    finally:
        with suppress(OSError):  # an error of the block or of the flush takes precedence
            file.close()


def write_report(text: str, tree: object, json_path: Path | None) -> None:
    """Print a report; write it as JSON to `json_path` too, or in place of the text if that is -."""
    if json_path is not None:
        with open_output(json_path) as output:
            output.write(json_text(as_tree(tree), indent=2) + "\n")
    if json_path is None or str(json_path) != "-":
        with open_output(None) as output:
            output.write(text + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    """Format a value as strict JSON; raises RunError for a number that JSON lacks (nan, inf)."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError as error:
        raise RunError(
            f"--json: a figure is not finite, which JSON cannot hold ({error})"
        ) from None


def as_tree(value: Any) -> Any:
    """Convert named tuples to dictionaries, at any depth, for JSON."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: as_tree(each) for key, each in value.items()}
    return [as_tree(each) for each in value] if isinstance(value, list) else value


def check_output(path: Path | None, *others: Path | None, streaming: bool = False) -> None:
    """Check, before any work, that `open_output` can write the path.

    Raises UserError if it cannot, if the path is one of the other files of the command, or if a
    regular file is to receive streaming output, since it would appear only at the end.
    """
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file name")
    if path.is_symlink() and not path.exists() and _is_broken(path):
        raise UserError(f"{path}: is a broken link; remove it")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it first")
    if is_stream(path):
        if not os.access(path, os.W_OK):
            raise UserError(f"{path}: no permission to write")
    elif not os.access(folder := resolve_link(path).parent, os.W_OK):
        raise UserError(f"{path}: no permission to write in the folder {folder}")
    if path.suffix == ".gz":
        raise UserError(f"{path}: output is not compressed; omit .gz")
    if any(_same(path, other) for other in others) or _is_stdin(path):
        raise UserError(f"{path}: is already read or written by this command; choose another name")
    if streaming and (path.is_file() or not path.exists()):
        raise UserError(f"{path}: -o creates the file only at the end; with --stream, use > {path}")


def _is_broken(link: Path) -> bool:
    """Return whether a link forms a cycle or leads into a folder that does not exist."""
    try:
        return not link.resolve().parent.is_dir()
    except (RuntimeError, OSError):  # Python before 3.13, and later
        return True


def _same(path: Path, other: Path | None) -> bool:
    if other is None or path == other or not (path.is_file() and other.exists()):
        return path == other
    return path.samefile(other)


def _is_stdin(path: Path) -> bool:
    with suppress(OSError, ValueError):  # stdin has no descriptor
        return path.is_file() and os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
    return False
