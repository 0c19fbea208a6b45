"""Checksums of the source files of a cached text, kept so that unchanged files are not read again.

A file is unchanged if it has the same device, inode, size, and times of the last changes of content
and status, the last of which no program can choose. It is not recorded if it changed just before
it was read: within the resolution of its file system's clock it could change again unnoticed.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from seq2seq.data.cache.records import UNREADABLE, Status, status_of
from seq2seq.data.lines import checksum_of_file
from seq2seq.runtime.folders import PrivateFolder

RECORD = "sources"
SETTLED = 3 * 10**9  # nanoseconds since the last change; FAT counts in steps of two seconds
_DIGEST_BYTES = 65
_MAX_BYTES = 1 << 20


class SourceChecksums:
    """SHA-256 of files by name, of which those recorded in a cache entry are not computed."""

    def __init__(self, paths: Mapping[str, Path], cache: PrivateFolder, entry: str) -> None:
        """Take the checksums from the record of an entry; compute those that it lacks.

        Raises UserError if a file cannot be read.
        """
        self._paths, self._known = paths, _read(cache, entry)
        statuses = {name: _status(path) for name, path in paths.items()}
        recorded = {
            name: checksum
            for name, (status, checksum) in self._known.items()
            if status == statuses.get(name)
        }
        self._settled: dict[str, Status] = {name: self._known[name][0] for name in recorded}
        found = recorded | self._compute([name for name in paths if name not in recorded])
        self.values = {name: found[name] for name in paths}

    def are_confirmed(self) -> bool:
        """Read all files again; return whether their checksums are the same."""
        return self._compute(list(self._paths)) == self.values

    def record(self, entry: PrivateFolder) -> None:
        """Record the files in their entry; if that fails, the next start reads them again."""
        files = {name: (status, self.values[name]) for name, status in self._settled.items()}
        if files != self._known:
            content = json.dumps(files).encode()
            with suppress(OSError):
                entry.write(RECORD, _digest(content) + content, 0o600)

    def _compute(self, names: Sequence[str]) -> dict[str, str]:
        began, paths = time.time_ns(), [self._paths[name] for name in names]
        statuses = dict(zip(names, map(_status, paths), strict=True))
        with ThreadPoolExecutor() as pool:  # hashing does not hold the interpreter's lock
            found = dict(zip(names, pool.map(checksum_of_file, paths), strict=True))
        for name, status in statuses.items():
            self._settled.pop(name, None)
            if status is not None and max(status[-2:]) + SETTLED < began:
                self._settled[name] = status
        return found


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _status(path: Path) -> Status | None:
    """Return the status of a file; None if unknown, or if the system lacks the time of changes."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_dev, *status_of(found)) if os.name == "posix" else None


def _read(cache: PrivateFolder, entry: str) -> dict[str, tuple[Status, str]]:
    """Return the recorded status and checksum of each file; nothing if that fails."""
    try:
        with closing(cache.subfolder(entry)) as folder:
            file = os.fdopen(folder.open(RECORD), "rb")
        with file:
            digest, content = file.read(_DIGEST_BYTES), file.read(_MAX_BYTES)
        if digest != _digest(content):
            return {}
        known = json.loads(content)
        return {
            str(name): (tuple(map(int, status)), str(checksum))
            for name, (status, checksum) in known.items()
        }
    except UNREADABLE:
        return {}
