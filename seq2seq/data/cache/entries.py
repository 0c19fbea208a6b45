"""Entries of a cache: folders of plain files, each whole, or known not to be and built anew.

An entry has a manifest: what it was built from (its key), facts, and size and checksum of each
file. It is built aside, synced and renamed.
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

from seq2seq.runtime.files import PART_SUFFIX, read_bounded, sync

MANIFEST = "manifest.json"
FORMAT = 1
MISSING = "it was not there"
CHANGED = "what it was built from has changed"
_MOST_BYTES = 1 << 20  # of a manifest
_BLOCK = 1 << 20  # bytes read at a time

Facts = dict[str, Any]


class Unusable(Exception):
    """An entry that is damaged, or was built from something else; says which."""


class Entry(NamedTuple):
    """A whole entry of a cache."""

    folder: Path
    facts: Facts
    built: str | None  # why it was built just now; None where it was there and is reused


def open_entry(folder: Path, key: Mapping[str, Any], build: Callable[[Path], Facts]) -> Entry:
    """The entry built from `key`; where it is not there and whole, `build` fills a folder anew.

    Raises OSError where that cannot be written.
    """
    try:
        return Entry(folder, read_entry(folder, key), None)
    except FileNotFoundError:
        reason = MISSING
    except Unusable as error:
        reason = str(error)
    aside = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{PART_SUFFIX}")
    try:
        aside.mkdir(parents=True)
        facts = build(aside)
        _seal(aside, key, facts)
        remove(folder)
        _rename(aside, folder, key)
    finally:
        remove(aside)
    return Entry(folder, facts, reason)


def read_entry(folder: Path, key: Mapping[str, Any]) -> Facts:
    """The facts of an entry; every byte of it is checked.

    Raises FileNotFoundError where there is none, and Unusable where it is damaged or of another
    key.
    """
    if not (folder / MANIFEST).exists() and not folder.exists():
        raise FileNotFoundError(folder)
    try:
        if not (folder / MANIFEST).is_file():  # a pipe would be waited for
            raise Unusable(f"{MANIFEST} is missing")
        manifest = json.loads(read_bounded(folder / MANIFEST, _MOST_BYTES))
        checksum = manifest.pop("checksum")
        if checksum != _checksum(manifest):
            raise Unusable(f"{MANIFEST} is damaged")
        if manifest["format"] != FORMAT or manifest["key"] != key:
            raise Unusable(CHANGED)
        for name, (size, crc) in manifest["files"].items():
            _check(folder / name, size, crc)
        return dict(manifest["facts"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise Unusable(f"{MANIFEST} is none, or damaged") from None
    except OSError as error:
        raise Unusable(f"{MANIFEST} cannot be read ({error.strerror})") from None


def checksum_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, of which few are held at a time; raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def remove(path: Path) -> None:
    """Delete an entry, or what stands in its place, as far as that can be done."""
    with suppress(OSError):
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed processes were building."""
    for path in folder.glob(f"*{PART_SUFFIX}"):
        remove(path)


def _seal(folder: Path, key: Mapping[str, Any], facts: Facts) -> None:
    """Write the manifest of all files, and sync them."""
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


def _rename(aside: Path, folder: Path, key: Mapping[str, Any]) -> None:
    try:
        aside.rename(folder)
    except OSError:
        try:
            read_entry(folder, key)  # by another process just now, where there are no locks
        except (Unusable, FileNotFoundError):
            pass
        else:
            return
        raise


def _check(path: Path, size: int, crc: int) -> None:
    try:
        if not path.is_file():
            raise Unusable(f"{path.name} is missing")
        if path.stat().st_size != size:
            raise Unusable(f"{path.name} is cut off, or of another size")
        if _crc(path) != crc:
            raise Unusable(f"{path.name} is damaged")
    except OSError as error:
        raise Unusable(f"{path.name} cannot be read ({error.strerror})") from None


def _crc(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
