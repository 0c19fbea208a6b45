"""Cache entries: folders of files that are built once and then mapped into memory.

The manifest of an entry has its key, which says what it was built from, counts, and the size and
SHA-256 of each file. An entry is built under a temporary name, synced and renamed. It is rebuilt if
its key or a file differs, or if it belongs to another user. Of large files, the size is compared,
and the SHA-256 if a run is resumed.
"""

import hashlib
import json
import mmap
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from seq2seq.runtime.files import PART_SUFFIX, atomic_write, sync, sync_folder, write_errors
from seq2seq.runtime.locks import LOCK, FolderLock
from seq2seq.runtime.process_group import is_main_process

MANIFEST = "manifest.json"
FORMAT = 4  # incremented when the content for a key changes, as by what counts as blank
MISSING = "it does not exist"
STALE = "the text or the settings behind it have changed"
UNRECORDED = "it is not what the run was trained on"
SMALL_FILE = 1 << 24  # bytes up to which a file is verified at each start
_PLACE = "in the token cache (SEQ2SEQ_CACHE sets another place)"  # in messages

Key = Mapping[str, Any]
Counts = dict[str, int]
Number = TypeVar("Number", bound=np.generic)


class Unusable(Exception):
    """An entry that must be rebuilt; the message says why."""


class Entry(NamedTuple):
    """A complete entry."""

    path: Path
    counts: Counts
    files: dict[str, list[Any]]  # size and SHA-256 by name
    rebuilt: str | None = None  # the reason for building it now; None if it is reused

    @property
    def digest(self) -> str:
        """SHA-256 of the content, whatever it was built from."""
        content = json.dumps([self.counts, self.files], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def array(self, name: str, kind: type[Number]) -> NDArray[Number]:
        """Map a file into memory; it stays readable if the entry is replaced. Raises OSError."""
        with (self.path / name).open("rb") as file:
            if not self.files[name][0]:  # which cannot be mapped
                return np.empty(0, kind)
            content = mmap.mmap(file.fileno(), self.files[name][0], access=mmap.ACCESS_READ)
        return np.frombuffer(content, kind)


class EntryCache:
    """The cache entries of one text, in a folder that is private to the user."""

    def __init__(self, root: Path, name: str) -> None:
        """Make the folder `name` in the cache `root`; raises RunError if that fails."""
        self.path = root / name
        self.built: list[str] = []  # names of entries
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        with write_errors(f"{self.path}, {_PLACE}"):
            root.parent.mkdir(parents=True, exist_ok=True)
            if is_foreign(self.path):
                self._remove(self.path)
            for folder in (root, self.path):
                folder.mkdir(0o700, exist_ok=True)
                with suppress(OSError):  # not supported by some file systems
                    folder.chmod(0o700)

    def load(
        self,
        name: str,
        key: Key,
        build: Callable[[Path], Counts],
        recorded: str | None = None,
    ) -> Entry:
        """Open the entry with this key; if it cannot be used, let `build` fill a new folder.

        It cannot if its digest is not the `recorded` one; if one is given, large files are read,
        too. One process builds or opens an entry at a time. Raises
        RunError if the entry cannot be written.
        """
        path = self.path / name
        with write_errors(f"{path}, {_PLACE}"), closing(FolderLock(self.path, wait=True)):
            try:
                return _read(path, key, recorded)
            except Unusable as unusable:
                reason = str(unusable)
            for part in self.path.glob(f"*{PART_SUFFIX}"):  # left by killed processes
                self._remove(part)
            entry = self._build(path, key, build)
            self.built.append(name)
            return entry._replace(rebuilt=reason)

    def remove_others(self, text: str) -> None:
        """Delete the entries that were built from another text than the one with this digest."""
        for path in self.path.glob(f"*-*/{MANIFEST}"):
            with suppress(OSError, ValueError, TypeError, LookupError):
                if json.loads(path.read_bytes())["key"]["text"] == text:
                    continue
            self._remove(path.parent)

    def discard_built(self) -> None:
        """Delete what was built here, and the folders made for it if nothing else is in them."""
        for name in self.built:
            self._remove(self.path / name)
        with suppress(OSError):
            if self._made:
                (self.path / LOCK).unlink(missing_ok=True)
            for path in self._made:
                path.rmdir()

    def _build(self, path: Path, key: Key, build: Callable[[Path], Counts]) -> Entry:
        part = Path(tempfile.mkdtemp(PART_SUFFIX, f"{path.name}.", self.path))
        try:
            counts = build(part)
            files = {file.name: _synced(file) for file in sorted(part.iterdir())}
            manifest = {"format": FORMAT, "key": key, "counts": counts, "files": files}
            atomic_write(part / MANIFEST, json.dumps(manifest, indent=1).encode())
            self._remove(path)
            part.rename(path)
            sync_folder(self.path)
        except BaseException:
            self._remove(part)
            raise
        return Entry(path, counts, files)

    def _remove(self, path: Path) -> None:
        """Delete a file or a folder; one of another user is at least moved out of the way."""
        with suppress(FileNotFoundError):
            if path.suffix != PART_SUFFIX:
                aside = f"{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}"
                path = path.rename(path.with_name(aside))
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def is_foreign(path: Path) -> bool:
    """Return whether a file or folder exists and belongs to another user."""
    try:
        return path.lstat().st_uid != os.geteuid()
    except FileNotFoundError:
        return False


def _read(path: Path, key: Key, recorded: str | None) -> Entry:
    """Open an entry; raises Unusable if it must be rebuilt."""
    if not os.path.lexists(path):
        raise Unusable(MISSING)
    if is_foreign(path):
        raise Unusable("it belongs to another user")
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT or manifest["key"] != key:
            raise Unusable(STALE)
        entry = Entry(path, dict(manifest["counts"]), dict(manifest["files"]))
        sizes = {name: int(size) for name, (size, _) in entry.files.items()}
    except (OSError, ValueError, TypeError, LookupError):
        raise Unusable(f"{MANIFEST} is missing or damaged") from None
    for name, size in sizes.items():
        if not (path / name).is_file() or (path / name).stat().st_size != size:
            raise Unusable(f"{name} is missing or of another size")
        if size <= SMALL_FILE or (recorded is not None and is_main_process()):
            with (path / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry.files[name][1]:
                    raise Unusable(f"{name} is damaged")
    if recorded not in (None, entry.digest):
        raise Unusable(UNRECORDED)
    return entry


def _synced(path: Path) -> list[Any]:
    """Flush a file to the storage device; return its size and SHA-256."""
    with path.open("rb+") as file:
        sync(file)
        return [os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()]
