"""One-dimensional arrays in files, read on demand through a handle.

A memory-mapped array would be simpler to index. But if its file is truncated, or its storage fails,
the system ends the process with SIGBUS, without a message.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.block_checksums import BlockChecks
from seq2seq.runtime.errors import RunError, argument

Number = TypeVar("Number", bound=np.generic)
IN_MEMORY_BYTES = 1 << 20  # the time for a small read is that of the system call
_BLOCK_BYTES = 1 << 20  # read at a time
_seek_lock = threading.Lock()


class ArrayFile(Generic[Number]):
    """Array of numbers in a file; indexing reads from the file and returns a copy.

    A file of at most IN_MEMORY_BYTES is read once, when it is opened. A larger one stays readable
    while this object exists, even if it is deleted or replaced; reading raises RunError if it was
    truncated or cannot be read, or if a block does not have the checksum that is given for it.
    """

    def __init__(
        self, descriptor: int, kind: type[Number], path: Path, checks: BlockChecks | None = None
    ) -> None:
        """Take over an open file, which holds complete elements of type `kind`."""
        self._descriptor, self._kind, self._path = descriptor, np.dtype(kind), path
        self._checks = checks
        self._size = self._kind.itemsize
        self._code: Any = self._kind.char  # for memoryview.cast
        self._bytes_in_file = os.fstat(descriptor).st_size
        self._length = self._bytes_in_file // self._size
        self._close = weakref.finalize(self, os.close, descriptor)
        self._held: bytes | None = None
        if self._length * self._size <= IN_MEMORY_BYTES:
            self._held = self._content(0, self._length)
            self._close()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, key: int) -> Number: ...

    @overload
    def __getitem__(self, key: slice | NDArray[np.integer]) -> NDArray[Number]: ...

    def __getitem__(self, key: int | slice | NDArray[Any]) -> Number | NDArray[Number]:
        if isinstance(key, slice):
            start, stop, step = key.indices(self._length)
            return self._read(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        if isinstance(key, np.ndarray):
            rows = np.arange(self._length)[key] if key.dtype == bool else key
            return np.array([self[i] for i in rows.tolist()], self._kind)
        place = range(self._length)[key]  # negative indices; IndexError
        number: Number = self._read(place, place + 1)[0]
        return number

    def blocks(self) -> Iterator[NDArray[Number]]:
        """Yield all elements, in consecutive arrays of at most a mebibyte."""
        step = _BLOCK_BYTES // self._size
        for start in range(0, self._length, step):
            yield self._read(start, min(start + step, self._length))

    def values(self, start: int, stop: int) -> list[int]:
        """Return the elements from `start` to before `stop`: as a slice, but faster for a few."""
        values: list[int] = memoryview(self._content(start, stop)).cast(self._code).tolist()
        return values

    def _read(self, start: int, stop: int) -> NDArray[Number]:
        return np.frombuffer(self._content(start, max(start, stop)), self._kind)

    def _content(self, start: int, stop: int) -> bytes:
        if self._held is not None:
            return self._held[start * self._size : stop * self._size]
        first, wanted = start * self._size, (stop - start) * self._size
        if self._checks is not None and (unread := self._checks.unread(first, first + wanted)):
            blocks = self._bytes(unread.start, min(unread.stop, self._bytes_in_file) - unread.start)
            if not self._checks.verify(unread.start, blocks):
                raise self._lost("is damaged")
        return self._bytes(first, wanted)

    def _bytes(self, place: int, size: int) -> bytes:
        try:
            content = read_at(self._descriptor, size, place)
        except OSError as error:
            raise self._lost(f"can no longer be read ({error.strerror})") from None
        if len(content) != size:
            raise self._lost("was truncated while it was in use")
        return content

    def _lost(self, reason: str) -> RunError:
        return RunError(
            f"{self._path}: {reason}. It is in the token cache, which is rebuilt when training "
            f"starts again; continue with {argument('resume', True)}"
        )


if hasattr(os, "pread"):

    def read_at(descriptor: int, size: int, place: int) -> bytes:
        """Read `size` bytes at a place of a file, fewer at its end; raises OSError."""
        content = os.pread(descriptor, size, place)
        if len(content) == size or not content:
            return content
        parts = [content]  # the system returns at most 2 GiB, and fewer after a signal
        while len(content) and (done := sum(map(len, parts))) < size:
            content = os.pread(descriptor, size - done, place + done)
            parts.append(content)
        return b"".join(parts)

else:

    def read_at(descriptor: int, size: int, place: int) -> bytes:
        """Read `size` bytes at a place of a file, fewer at its end; raises OSError."""
        parts: list[bytes] = []
        with _seek_lock:
            os.lseek(descriptor, place, os.SEEK_SET)
            while size and (content := os.read(descriptor, min(size, 1 << 30))):
                parts.append(content)
                size -= len(content)
        return b"".join(parts)
