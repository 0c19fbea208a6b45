"""Cache entries: folders of files verified by checksum, and rebuilt if stale or damaged.

The manifest of an entry records what it was built from (its key), counts, and the size and
SHA-256 of each file. An entry is built under a temporary name, synced and renamed. No entry is read
or written through a symbolic link, nor one that belongs to another user.
"""

import errno
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

from seq2seq.data.block_checksums import BlockChecks
from seq2seq.data.cache.records import RECORD, Scan, read_record, scan, write_record
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import PART_SUFFIX, sync, write_errors
from seq2seq.runtime.folders import Address, PrivateFolder, is_link, refused_link
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
    """An entry that is verified now, or was so before and is verified again as it is read."""

    folder: PrivateFolder
    facts: Facts
    files: Files
    manifest: str = ""  # its checksum
    scans: Mapping[str, Scan] | None = (
        None  # results of reading the files, if they were verified now
    )
    blocks: Mapping[str, bytes] | None = None  # checksums by file name, if verified before

    @property
    def verified(self) -> bool:
        """True if the structure of its content was checked at an earlier start."""
        return self.blocks is not None

    def checks(self, name: str) -> BlockChecks | None:
        """Return the checks of a file's blocks; None if it was verified now.

        A damaged block lets the next start verify all of the entry.
        """
        if self.blocks is None:
            return None
        folder = self.folder
        return BlockChecks(self.blocks[name], lambda: folder.remove(RECORD))

    @property
    def address(self) -> "EntryAddress":
        """Address of the entry, which can be sent to another process."""
        return EntryAddress(self.folder.address, self.manifest, self.verified)

    def record(self) -> None:
        """Record that all of the entry was found usable."""
        if self.scans is not None:
            write_record(self.folder, self.manifest, self.scans)

    @property
    def digest(self) -> str:
        """SHA-256 of the content, whatever it was built from."""
        return _sha256([self.facts, self.files])


class EntryAddress(NamedTuple):
    """Address of an entry's folder, the checksum of its manifest, and if a record verifies it."""

    folder: Address
    manifest: str
    verified: bool


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
        blockwise: bool = False,
    ) -> Loaded[T]:
        """Read the entry built from `key`; if it is unusable, let `build` fill a new folder.

        It is unusable if it is damaged, if `read` raises Unusable, or if it does not have the given
        digest. Of one that is read by blocks, later starts verify only those that they read, unless
        its files have changed. Raises RunError if the entry cannot be written.
        """
        with write_errors(f"{self.folder.path / name}, {_PLACE}"):
            seen = self._identity(name)
            try:
                entry = self._read(name, key, digest)
                return Loaded(_content(entry, read, blockwise), entry, None)
            except FileNotFoundError:
                reason = MISSING
            except Unusable as error:
                reason = str(error)
            self._lock_exclusively()
            if self._identity(name) != seen:  # another process built it while this one waited
                return self.load(name, key, build, read, digest, blockwise)
            entry = self._build(name, key, build)
            self.built.append(name)
            try:
                return Loaded(_content(entry, read, blockwise), entry, reason)
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
            files, manifest, scans = _write_manifest(folder, key, facts)
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
        return Entry(self.folder.subfolder(name), facts, files, manifest, scans)


def read_entry(parent: PrivateFolder, name: str, key: Key) -> Entry:
    """Open an entry after verifying every byte, unless that was done before and is recorded.

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
    facts, files, manifest = _read_manifest(folder, key)
    if (blocks := read_record(folder, manifest)) is not None and set(blocks) == set(files):
        return Entry(folder, facts, files, manifest, blocks=blocks)
    scans = {file: _verify(folder, file, *expected) for file, expected in files.items()}
    return Entry(folder, facts, files, manifest, scans)


def reopen_entry(address: EntryAddress) -> Entry:
    """Open the entry that another process has open; raises OSError if it has changed."""
    folder, blocks = PrivateFolder.reopen(address.folder), None
    if address.verified and (blocks := read_record(folder, address.manifest)) is None:
        raise OSError(errno.ESTALE, "changed by another process", str(folder.path))
    return Entry(folder, {}, {}, address.manifest, blocks=blocks)


def _read_manifest(folder: PrivateFolder, key: Key) -> tuple[Facts, Files, str]:
    """Return counts, files and the checksum of all that the manifest says."""
    with _opened(folder, MANIFEST) as file:
        content = file.read(_MAX_MANIFEST_BYTES)
    try:
        manifest: dict[str, Any] = json.loads(content)
        own_checksum = manifest.pop("checksum")
        if own_checksum != _sha256(manifest):
            raise ValueError(own_checksum)
        if manifest["format"] != FORMAT or manifest["key"] != key:
            raise Unusable(STALE)
        facts, files = dict(manifest["facts"]), {}
        for name, (size, checksum) in manifest["files"].items():
            files[name] = int(size), str(checksum)
        if not all(type(count) is int and count >= 0 for count in facts.values()):
            raise ValueError(facts)
        if not all(map(_FILE_NAME.fullmatch, files)):
            raise ValueError(files)
        return facts, files, own_checksum
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
        raise Unusable(f"{MANIFEST} is damaged or not a manifest") from None


def _write_manifest(
    folder: PrivateFolder, key: Key, facts: Facts
) -> tuple[Files, str, dict[str, Scan]]:
    """Sync all files of an entry, then write the manifest.

    Return sizes and checksums of the files, the checksum of the manifest, and the scans.
    """
    scans = {}
    for name in sorted(folder.names()):
        with os.fdopen(folder.open(name, update=True), "rb+") as file:
            sync(file)
            scans[name] = scan(file)
    files = {name: (each.size, each.sha256) for name, each in scans.items()}
    manifest = {"format": FORMAT, "key": key, "facts": facts, "files": files}
    checksum = _sha256(manifest)
    content = json.dumps({**manifest, "checksum": checksum}, indent=1)
    with folder.create(MANIFEST) as file:
        file.write(content.encode())
        file.flush()
        sync(file)
    return files, checksum, scans


def _verify(folder: PrivateFolder, name: str, size: int, checksum: str) -> Scan:
    """Read a file of an entry; raises Unusable unless it has this size and checksum."""
    with _opened(folder, name) as file:
        if os.fstat(file.fileno()).st_size != size:
            raise Unusable(f"{name} is truncated or of another size")
        found = scan(file)
    if found.sha256 != checksum:
        raise Unusable(f"{name} is damaged")
    return found


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


def _content(entry: Entry, read: Callable[[Entry], T], blockwise: bool) -> T:
    """Read an entry and record that it is usable; raises Unusable also if a file is unreadable."""
    try:
        content = read(entry)
    except (OSError, RunError) as error:
        raise Unusable(f"it cannot be read ({error})") from None
    if blockwise:
        entry.record()
    return content


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
