"""Checksums of the source files of a cached text, kept so that unchanged files are not read again.

A file is unchanged if it has the same device, inode, size, and times of the last changes of content
and status, the last of which no program can choose. It is not recorded if it changed just before
it was read: within the resolution of its file system's clock it could change again unnoticed.
"""

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from seq2seq.data.lines import checksum_of_file
from seq2seq.runtime.files import atomic_write

SETTLED = 3 * 10**9  # nanoseconds since the last change; FAT counts in steps of two seconds
Status = list[int]  # device, inode, size, and times of the last changes of content and status


class SourceChecksums:
    """SHA-256 of files by name, of which those in a record are not computed."""

    def __init__(self, paths: Mapping[str, Path], record: Path) -> None:
        """Take the checksums from the record, compute those that it lacks.

        Raises UserError if a file cannot be read.
        """
        self._paths, self._record = paths, record
        self._recorded = _read(record)
        self._settled = {
            name: (status, checksum)
            for name, (status, checksum) in self._recorded.items()
            if name in paths and status == _status(paths[name])
        }
        missing = {name: path for name, path in paths.items() if name not in self._settled}
        checksums = {name: checksum for name, (_, checksum) in self._settled.items()}
        checksums |= self._compute(missing)
        self.values = {name: checksums[name] for name in paths}

    def are_confirmed(self) -> bool:
        """Read all files again; return whether their checksums are the same."""
        confirmed = self._compute(self._paths) == self.values
        if not confirmed:
            self._record.unlink(missing_ok=True)
        return confirmed

    def write(self) -> None:
        """Record the files; if that fails, the next start reads them again."""
        if self._settled != self._recorded or not self._record.exists():
            with suppress(OSError):
                atomic_write(self._record, json.dumps(self._settled).encode())

    def _compute(self, paths: Mapping[str, Path]) -> dict[str, str]:
        began = time.time_ns()
        statuses = {name: _status(path) for name, path in paths.items()}
        with ThreadPoolExecutor() as pool:  # hashing does not hold the interpreter's lock
            checksums = dict(zip(paths, pool.map(checksum_of_file, paths.values()), strict=True))
        for name, status in statuses.items():
            self._settled.pop(name, None)
            if status is not None and max(status[-2:]) + SETTLED < began:
                self._settled[name] = status, checksums[name]
        return checksums


def _status(path: Path) -> Status | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    times = status.st_mtime_ns, status.st_ctime_ns
    return [status.st_dev, status.st_ino, status.st_size, *times]


def _read(record: Path) -> dict[str, tuple[Status, str]]:
    """Return the recorded status and checksum of each file; nothing if that fails."""
    try:
        files = json.loads(record.read_bytes())
        return {str(name): (list(status), str(sha)) for name, (status, sha) in files.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
