"""Record of the verification of an entry, by which a later start verifies only what it reads.

It holds the checksum of each block of the files, and their status. If a file has another status,
or the manifest has changed, the entry is verified completely, and the record is written again. A
status is no proof: whatever it is, each block is compared with its checksum before it is used.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO, NamedTuple

from seq2seq.data.block_checksums import BLOCK_BYTES, checksums_of_blocks, size_of_checksums
from seq2seq.runtime.folders import PrivateFolder

RECORD = "verified"
_READ_BYTES = 128 * BLOCK_BYTES
_MAX_HEADER_BYTES = 1 << 16

UNREADABLE = (  # errors from reading a record that is missing, damaged or of another kind
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
Status = tuple[int, ...]  # inode, size, and times of the last changes of content and status


class Scan(NamedTuple):
    """Result of reading a file to its end."""

    sha256: str
    blocks: bytes  # checksums of its blocks
    status: Status  # before it was read

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.status[1]


def scan(file: IO[bytes]) -> Scan:
    """Read a file to its end."""
    status, digest, blocks = status_of(os.fstat(file.fileno())), hashlib.sha256(), bytearray()
    file.seek(0)
    while content := file.read(_READ_BYTES):
        digest.update(content)
        blocks += checksums_of_blocks(content)
    return Scan(digest.hexdigest(), bytes(blocks), status)


def write_record(folder: PrivateFolder, manifest: str, scans: Mapping[str, Scan]) -> None:
    """Record that an entry with this checksum of its manifest was verified; ignore failures."""
    content = b"".join(each.blocks for each in scans.values())
    header = {
        "manifest": manifest,
        "files": {name: each.status for name, each in scans.items()},
        "blocks": hashlib.sha256(content).hexdigest(),
    }
    with suppress(OSError):  # the entry is then verified completely again
        folder.write(RECORD, json.dumps(header).encode() + b"\n" + content, 0o600)


def read_record(folder: PrivateFolder, manifest: str) -> dict[str, bytes] | None:
    """Return the checksums of the blocks of each file, if the record is of these very files."""
    try:
        return _read_record(folder, manifest)
    except UNREADABLE:
        return None


def _read_record(folder: PrivateFolder, manifest: str) -> dict[str, bytes]:
    with os.fdopen(folder.open(RECORD), "rb") as file:
        header = json.loads(file.readline(_MAX_HEADER_BYTES))
        files = {str(name): tuple(map(int, each)) for name, each in header["files"].items()}
        if header["manifest"] != manifest or files != _statuses(folder, files):
            raise ValueError(manifest)
        sizes = {name: size_of_checksums(size) for name, (_, size, *_) in files.items()}
        content = file.read(sum(sizes.values()) + 1)
    if hashlib.sha256(content).hexdigest() != header["blocks"]:
        raise ValueError(RECORD)
    blocks, start = {}, 0
    for name, size in sizes.items():
        blocks[name], start = content[start : start + size], start + size
    return blocks


def _statuses(folder: PrivateFolder, names: Iterable[str]) -> dict[str, Status | None]:
    found = {name: folder.lstat(name) for name in names}
    return {name: each and status_of(each) for name, each in found.items()}


def status_of(found: os.stat_result) -> Status:
    """Return what changes with the content of a file."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
