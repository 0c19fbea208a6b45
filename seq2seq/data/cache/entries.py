"""Cache entries: folders of files verified by checksum, and rebuilt if stale or damaged.

The manifest of an entry records what it was built from (its key), facts about it, and the size and
checksum of each file. An entry is built under a temporary name, synced and renamed.
"""

import hashlib
import json
import secrets
import shutil
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.runtime.files import PART_SUFFIX, read_bounded, sync, write_errors
from seq2seq.runtime.locks import SharedLock

MANIFEST = "manifest.json"
FORMAT = 2  # incremented when the content for a key changes, as by what counts as blank
MISSING = "it does not exist"
STALE = "what it was built from has changed"
_LOCK = "lock"
_MAX_MANIFEST_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20  # read at a time

Facts = dict[str, Any]


class Unusable(Exception):
    """An entry that is damaged or was built from something else; the message says which."""


class Entry(NamedTuple):
    """A verified entry."""

    folder: Path
    facts: Facts
    rebuilt: str | None  # the reason for building it now; None if it is reused


class EntryCache:
    """The cache entries of one text in a folder: read by all processes, built by one at a time."""

    def __init__(self, folder: Path) -> None:
        """Make the folder and lock it for reading. Raises RunError if it cannot be written."""
        self.folder = folder
        self.built: list[Path] = []
        self._made = [each for each in (folder, *folder.parents) if not each.exists()]
        with write_errors(f"{folder}, in the token cache next to run_dir"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the text may be confidential
            self._lock = SharedLock(folder / _LOCK)

    def entry(self, name: str, key: Mapping[str, Any], build: Callable[[Path], Facts]) -> Entry:
        """Return the entry built from `key`; if it is unusable, let `build` fill a new folder.

        Raises RunError if the entry cannot be written.
        """
        folder = self.folder / name
        with write_errors(f"{folder}, in the token cache next to run_dir"):
            seen = _identity(folder)
            try:
                return Entry(folder, read_entry(folder, key), None)
            except FileNotFoundError:
                reason = MISSING
            except Unusable as error:
                reason = str(error)
            self._lock_exclusively()
            if _identity(folder) != seen:  # another process built it while this one waited
                return self.entry(name, key, build)
            facts = _build(folder, key, build)
            self.built.append(folder)
            return Entry(folder, facts, reason)

    def remove(self, pattern: str) -> None:
        """Delete the entries whose names match."""
        for path in self.folder.glob(pattern):
            _remove(path)

    def discard_built(self) -> None:
        """Delete what was built here, and the folders made for it if nothing else is in them."""
        for path in self.built:
            _remove(path)
        with suppress(OSError):
            if self._made:
                self._lock.upgrade()
                if [each.name for each in self.folder.iterdir()] == [_LOCK]:
                    (self.folder / _LOCK).unlink()
                    for each in self._made:
                        each.rmdir()

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _lock_exclusively(self) -> None:
        if not self._lock.exclusive:
            self._lock.upgrade()
            if self._lock.exclusive:
                self.remove(f"*{PART_SUFFIX}")  # left by killed processes


def read_entry(folder: Path, key: Mapping[str, Any]) -> Facts:
    """Return the facts of an entry after verifying every byte.

    Raises FileNotFoundError if it does not exist, and Unusable if it is damaged or has another key.
    """
    if not (folder / MANIFEST).exists() and not folder.exists():
        raise FileNotFoundError(folder)
    try:
        if not (folder / MANIFEST).is_file():  # reading a pipe would block
            raise Unusable(f"{MANIFEST} is missing")
        manifest = json.loads(read_bounded(folder / MANIFEST, _MAX_MANIFEST_BYTES))
        checksum = manifest.pop("checksum")
        if checksum != _checksum(manifest):
            raise Unusable(f"{MANIFEST} is damaged")
        if manifest["format"] != FORMAT or manifest["key"] != key:
            raise Unusable(STALE)
        for name, (size, crc) in manifest["files"].items():
            _verify(folder / name, size, crc)
        return dict(manifest["facts"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise Unusable(f"{MANIFEST} is damaged or not a manifest") from None
    except OSError as error:
        raise Unusable(f"{MANIFEST} cannot be read ({error.strerror})") from None


def _build(folder: Path, key: Mapping[str, Any], build: Callable[[Path], Facts]) -> Facts:
    temporary = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        temporary.mkdir(parents=True)
        facts = build(temporary)
        _write_manifest(temporary, key, facts)
        _remove(folder)
        _rename(temporary, folder, key)
    finally:
        _remove(temporary)
    return facts


def _write_manifest(folder: Path, key: Mapping[str, Any], facts: Facts) -> None:
    """Sync all files of an entry, then write the manifest."""
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb+") as file:
            sync(file)
        files[path.name] = [path.stat().st_size, _crc(path)]
    manifest = {"format": FORMAT, "key": key, "facts": facts, "files": files}
    with (folder / MANIFEST).open("xb") as file:
        file.write(json.dumps({**manifest, "checksum": _checksum(manifest)}, indent=1).encode())
        file.flush()
        sync(file)


def _rename(temporary: Path, folder: Path, key: Mapping[str, Any]) -> None:
    try:
        temporary.rename(folder)
    except OSError as error:
        try:
            read_entry(folder, key)  # built by another process, on a file system without locks
        except (Unusable, FileNotFoundError):
            raise error from None


def _remove(path: Path) -> None:
    """Delete an entry, or whatever has its name; ignore failures."""
    with suppress(OSError):
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what distinguishes an entry from one that replaces it; None if it does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _verify(path: Path, size: int, crc: int) -> None:
    try:
        if not path.is_file():
            raise Unusable(f"{path.name} is missing")
        if path.stat().st_size != size:
            raise Unusable(f"{path.name} is truncated or of another size")
        if _crc(path) != crc:
            raise Unusable(f"{path.name} is damaged")
    except OSError as error:
        raise Unusable(f"{path.name} cannot be read ({error.strerror})") from None


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
