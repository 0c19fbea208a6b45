"""Cache entries: folders of files verified by checksum, and rebuilt if stale or damaged.

The manifest of an entry records what it was built from (its key), counts, and the size and
SHA-256 of each file. An entry is built under a temporary name, synced and renamed. No entry is read
or written through a symbolic link, nor one that belongs to another user.
"""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import PART_SUFFIX, sync, write_errors
from seq2seq.runtime.folders import PrivateFolder, is_link, refused_link
from seq2seq.runtime.locks import SharedLock

MANIFEST = "manifest.json"
FORMAT = 3  # incremented when the content for a key changes, as by what counts as blank
MISSING = "it does not exist"
STALE = "the text or the settings behind it have changed"
UNRECORDED = "it is not what the run was trained on"
_LOCK = "lock"
_PLACE = "in the token cache (SEQ2SEQ_CACHE sets another place)"  # in messages
_MAX_MANIFEST_BYTES = 1 << 20
_FILE_NAME = re.compile(r"[a-z]+(\.[a-z]+)?")

Key = Mapping[str, Any]
Facts = dict[str, int]  # counts
Files = dict[str, tuple[int, str]]  # size and SHA-256 by name
T = TypeVar("T")


class Unusable(Exception):
    """An entry that is damaged or was built from something else; the message says which."""


class Entry(NamedTuple):
    """A verified entry."""

    folder: PrivateFolder
    facts: Facts
    files: Files

    @property
    def digest(self) -> str:
        """SHA-256 of the content, whatever it was built from."""
        return _sha256([self.facts, self.files])


class Loaded(NamedTuple, Generic[T]):
    """Content of an entry."""

    content: T
    entry: Entry
    rebuilt: str | None  # the reason for building it now; None if it is reused


class EntryCache:
    """The cache entries of one text in a folder: read by all processes, built by one at a time."""

    def __init__(self, root: Path, name: str) -> None:
        """Make the folder `name` in the cache `root` and lock it for reading.

        Raises UserError if one of them is a link or belongs to another user, and RunError if they
        cannot be written.
        """
        path = root / name
        self.built: list[str] = []
        self._made = [each for each in (path, *path.parents) if not each.exists()]
        with write_errors(f"{path}, {_PLACE}"):
            root.parent.mkdir(parents=True, exist_ok=True)
            with closing(PrivateFolder(root, create=True)) as above:  # may hold confidential text
                self.folder = above.subfolder(name, create=True)
                self.private = above.private or self.folder.private
            if is_link(path / _LOCK):
                raise refused_link(path / _LOCK)
            self._lock = SharedLock(path / _LOCK)

    def load(
        self,
        name: str,
        key: Key,
        build: Callable[[PrivateFolder], Facts],
        read: Callable[[Entry], T],
        digest: str | None = None,
    ) -> Loaded[T]:
        """Read the entry built from `key`; if it is unusable, let `build` fill a new folder.

        It is unusable if it is damaged, if `read` raises Unusable, or if it does not have the given
        digest. Raises RunError if the entry cannot be written.
        """
        with write_errors(f"{self.folder.path / name}, {_PLACE}"):
            seen = self._identity(name)
            try:
                entry = self._read(name, key, digest)
                return Loaded(_content(entry, read), entry, None)
            except FileNotFoundError:
                reason = MISSING
            except Unusable as error:
                reason = str(error)
            self._lock_exclusively()
            if self._identity(name) != seen:  # another process built it while this one waited
                return self.load(name, key, build, read, digest)
            entry = self._build(name, key, build)
            self.built.append(name)
            try:
                return Loaded(_content(entry, read), entry, reason)
            except Unusable as error:
                raise RunError(
                    f"{entry.folder.path}: is unusable although it was just written ({error}); "
                    "check the storage device"
                ) from None

    def remove(self, prefix: str) -> None:
        """Delete the entries whose names start so."""
        for name in self.folder.names():
            if name.startswith(prefix):
                self.folder.remove(name)

    def discard_built(self) -> None:
        """Delete what was built here, and the folders made for it if nothing else is in them."""
        for name in self.built:
            self.folder.remove(name)
        with suppress(OSError):
            if self._made:
                self._lock.upgrade()
                if self.folder.names() == [_LOCK]:
                    self.folder.remove(_LOCK)
                    for each in self._made:
                        each.rmdir()

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()
        self.folder.close()

    def _lock_exclusively(self) -> None:
        if not self._lock.exclusive:
            self._lock.upgrade()
            if self._lock.exclusive:
                for name in self.folder.names():
                    if name.endswith(PART_SUFFIX):  # left by killed processes
                        self.folder.remove(name)

    def _identity(self, name: str) -> tuple[int, int] | None:
        """Return what distinguishes an entry from one that replaces it; None if there is none."""
        status = self.folder.lstat(name)
        return None if status is None else (status.st_ino, status.st_ctime_ns)

    def _read(self, name: str, key: Key, digest: str | None) -> Entry:
        entry = read_entry(self.folder, name, key)
        if digest is not None and entry.digest != digest:
            raise Unusable(UNRECORDED)
        return entry

    def _build(self, name: str, key: Key, build: Callable[[PrivateFolder], Facts]) -> Entry:
        with self.folder.temporary(name) as folder:
            facts = build(folder)
            files = _write_manifest(folder, key, facts)
            self.folder.remove(name)
            if self._identity(name) is not None:  # belongs to another user, who alone can remove it
                self.folder.rename(name, f"{name}.{secrets.token_hex(4)}{PART_SUFFIX}")
            try:
                self.folder.rename(folder.path.name, name)
            except OSError as error:
                try:  # built by another process, on a file system without locks
                    return read_entry(self.folder, name, key)
                except (Unusable, FileNotFoundError):
                    raise error from None
        self.folder.sync()
        return Entry(self.folder.subfolder(name), facts, files)


def read_entry(parent: PrivateFolder, name: str, key: Key) -> Entry:
    """Open an entry after verifying every byte.

    Raises FileNotFoundError if it does not exist, and Unusable if it is damaged, has another key,
    is a symbolic link or belongs to another user.
    """
    status = parent.lstat(name)
    if status is None:
        raise FileNotFoundError(parent.path / name)
    if stat.S_ISLNK(status.st_mode):
        raise Unusable("it is a symbolic link")
    try:
        folder = parent.subfolder(name)
    except UserError:
        raise Unusable("it belongs to another user") from None
    except OSError as error:
        raise Unusable(f"it cannot be read ({error.strerror})") from None
    facts, files = _read_manifest(folder, key)
    for file, (size, checksum) in files.items():
        _verify(folder, file, size, checksum)
    return Entry(folder, facts, files)


def _read_manifest(folder: PrivateFolder, key: Key) -> tuple[Facts, Files]:
    with _opened(folder, MANIFEST) as file:
        content = file.read(_MAX_MANIFEST_BYTES)
    try:
        manifest: dict[str, Any] = json.loads(content)
        checksum = manifest.pop("checksum")
        if checksum != _sha256(manifest):
            raise ValueError(checksum)
        if manifest["format"] != FORMAT or manifest["key"] != key:
            raise Unusable(STALE)
        facts, files = dict(manifest["facts"]), {}
        for name, (size, checksum) in manifest["files"].items():
            files[name] = int(size), str(checksum)
        if not all(type(count) is int and count >= 0 for count in facts.values()):
            raise ValueError(facts)
        if not all(map(_FILE_NAME.fullmatch, files)):
            raise ValueError(files)
        return facts, files
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
        raise Unusable(f"{MANIFEST} is damaged or not a manifest") from None


def _write_manifest(folder: PrivateFolder, key: Key, facts: Facts) -> Files:
    """Sync all files of an entry, then write the manifest; return sizes and checksums."""
    files = {}
    for name in sorted(folder.names()):
        with os.fdopen(folder.open(name, update=True), "rb+") as file:
            sync(file)
            files[name] = os.fstat(file.fileno()).st_size, _checksum(file)
    manifest = {"format": FORMAT, "key": key, "facts": facts, "files": files}
    content = json.dumps({**manifest, "checksum": _sha256(manifest)}, indent=1)
    with folder.create(MANIFEST) as file:
        file.write(content.encode())
        file.flush()
        sync(file)
    return files


def _verify(folder: PrivateFolder, name: str, size: int, checksum: str) -> None:
    """Raise Unusable unless a file of an entry has this size and checksum."""
    with _opened(folder, name) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise Unusable(f"{name} is truncated or of another size")
        if _checksum(file) != checksum:
            raise Unusable(f"{name} is damaged")


@contextmanager
def _opened(folder: PrivateFolder, name: str) -> Iterator[IO[bytes]]:
    """Open a file of an entry; raises Unusable if it or its content cannot be read."""
    status = folder.lstat(name)
    if status is None:
        raise Unusable(f"{name} is missing")
    if stat.S_ISLNK(status.st_mode):
        raise Unusable(f"{name} is a symbolic link")
    try:
        with os.fdopen(folder.open(name), "rb") as file:
            yield file
    except OSError as error:
        raise Unusable(f"{name} cannot be read ({error.strerror})") from None


def _content(entry: Entry, read: Callable[[Entry], T]) -> T:
    """Read an entry; raises Unusable also if a file of it cannot be read."""
    try:
        return read(entry)
    except (OSError, RunError) as error:
        raise Unusable(f"it cannot be read ({error})") from None


def _checksum(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
