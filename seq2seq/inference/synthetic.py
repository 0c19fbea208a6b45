"""Journal of a long translation: finished batches in one file, so that a killed call resumes.

The first line is a JSON object with the settings of the translation. Each further line is a batch:
a JSON list with, for each source line, the list of its translations. A batch is appended and synced
at once. If the process is killed meanwhile, the incomplete last line is dropped when the file is
opened again.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from seq2seq.runtime.errors import DamagedFile, UserError, argument
from seq2seq.runtime.files import sync, write_errors
from seq2seq.runtime.locks import file_lock

Settings = Mapping[str, Any]  # values that JSON holds


class Journal:
    """Open journal: the number of lines that are translated, and their translations."""

    def __init__(self, path: Path, file: IO[bytes], done: int) -> None:
        """Take a file whose position is the end of its last complete batch."""
        self.path, self.done = path, done
        self._file = file

    @classmethod
    @contextmanager
    def open(cls, path: Path, settings: Settings, overwrite: bool = False) -> Iterator[Self]:
        """Open a journal, or begin one if there is none or it is to be overwritten.

        A journal with the same settings is resumed, also with `overwrite`. Raises UserError if it
        has other settings or another process writes it, DamagedFile if a batch before the last
        cannot be read, and RunError if writing fails.
        """
        with write_errors(path), file_lock(path), path.open("r+b") as file:
            found, done = _read(file, path, _as_line({**settings}))
            if found != {**settings} and done and not overwrite:
                raise UserError(
                    f"{path}: was begun with other settings ({_differences(found, settings)}). "
                    f"Repeat that command, or pass {argument('overwrite', True)} to begin again"
                )
            journal = cls(path, file, done)
            if found != {**settings}:
                journal.done = 0
                file.seek(0)
                journal._append({**settings})
            yield journal

    def append(self, batch: Sequence[Sequence[str]]) -> None:
        """Record the translations of the next lines; they are on disk when this returns."""
        self._append([list(texts) for texts in batch])
        self.done += len(batch)

    def translations(self) -> Iterator[list[str]]:
        """Yield the translations of each line, in order."""
        with self.path.open("rb") as file:
            file.readline()  # settings
            for line in file:
                yield from json.loads(line)

    def _append(self, value: object) -> None:
        with write_errors(self.path):
            self._file.truncate()
            self._file.write(_as_line(value))
            self._file.flush()
            sync(self._file)


def _as_line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _read(file: IO[bytes], path: Path, first: bytes) -> tuple[Settings | None, int]:
    """Return the settings and the number of lines; leave the file after the last full batch.

    An incomplete `first` line makes an empty journal.
    """
    settings: Settings | None = None
    done = end = 0
    size = os.fstat(file.fileno()).st_size
    for number, line in enumerate(iter(file.readline, b""), start=1):
        value: Any = None
        with suppress(ValueError):  # also bytes that are not UTF-8
            value = json.loads(line) if line.endswith(b"\n") else None
        if not isinstance(value, dict) if number == 1 else not isinstance(value, list):
            if end + len(line) < size or (number == 1 and not first.startswith(line)):
                raise DamagedFile(
                    f"{path}:{number}: is damaged, or not a journal of translations. Remove the "
                    "file to begin again"
                )
            break
        end += len(line)
        if isinstance(value, dict):
            settings = value
        else:
            done += len(value)
    file.seek(end)
    return settings, done


def _differences(found: Settings | None, wanted: Settings) -> str:
    """Return the settings that differ, with their values."""
    found = found or {}
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} {found.get(name)}, now {wanted.get(name)}" for name in names)
