"""Files to which a training appends lines, such as metrics.jsonl and train.log."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from seq2seq.runs.layout import write_failure
from seq2seq.runs.metrics_file import truncate_metrics
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import open_to_append, sync


class ReportFiles:
    """Open files of a run folder; each line is flushed as it is written.

    Methods raise RunError, which names the file, if the disk refuses.
    """

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Open the files to append to, made if missing."""
        self._folder = folder
        self._files = {name: self._open(name) for name in names}

    def write(self, name: str, line: str) -> None:
        """Write a line, given without its line end."""
        with self.writing(name):
            self._files[name].write(line + "\n")
            self._files[name].flush()

    def sync(self, name: str) -> None:
        """Flush a file to the storage device."""
        with self.writing(name):
            sync(self._files[name])

    def truncate(self, name: str, step: int) -> list[bytes]:
        """Remove the lines of later steps from a JSON-lines file; return the others."""
        with self.writing(name):
            self._files[name].close()
            kept = truncate_metrics(self._folder / name, step)
        self._files[name] = self._open(name)
        return kept

    def close(self, earlier: BaseException | None) -> None:
        """Close all files; raise a failure to do so only if no earlier error is being raised."""
        for name, file in self._files.items():
            with self.closing(name, earlier):
                file.close()

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Convert a failure to write a file of the run into a RunError."""
        try:
            yield
        except OSError as error:
            raise write_failure(self._folder / name, self._folder, error) from None

    @contextmanager
    def closing(self, name: str, earlier: BaseException | None) -> Iterator[None]:
        """Do as `writing`, but suppress the failure if an earlier error is being raised."""
        try:
            with self.writing(name):
                yield
        except RunError:
            if earlier is None:
                raise

    def _open(self, name: str) -> IO[str]:
        with self.writing(name):
            # Folder names appear in the log and may be invalid UTF-8.
            descriptor = open_to_append(self._folder / name)
            file = os.fdopen(
                descriptor, "a", encoding="utf-8", errors="backslashreplace", newline="\n"
            )
            if not _ends_with_line(self._folder / name):  # cut short, by a kill or a full disk
                file.write("\n")
            return file


def _ends_with_line(path: Path) -> bool:
    """Return whether a file is empty or ends with a line feed."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read() in (b"", b"\n")
