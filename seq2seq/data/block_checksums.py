"""CRC-32 of the blocks of a file, each compared when the block is first read.

A start thus takes no longer for a larger file, and every byte is still verified before use.
"""

from array import array
from collections.abc import Callable
from zlib import crc32

BLOCK_BYTES = 1 << 13
_CODE = "I"  # an unsigned integer of four bytes


def checksums_of_blocks(content: bytes) -> bytes:
    """Return the checksums of consecutive blocks, the last of which may be shorter."""
    view = memoryview(content)
    starts = range(0, len(content), BLOCK_BYTES)
    return array(_CODE, (crc32(view[start : start + BLOCK_BYTES]) for start in starts)).tobytes()


def size_of_checksums(size: int) -> int:
    """Return the bytes that the checksums of a file of `size` bytes take."""
    return -(-size // BLOCK_BYTES) * array(_CODE).itemsize


class BlockChecks:
    """Checksums of a file's blocks, and which of the blocks have been read."""

    def __init__(self, checksums: bytes, report_damage: Callable[[], None]) -> None:
        """Expect these checksums; call `report_damage` if a block has another."""
        self._expected = memoryview(checksums)
        self._size = array(_CODE).itemsize
        self._unread = bytearray(b"\1") * (len(checksums) // self._size)
        self._report_damage = report_damage

    def unread(self, start: int, end: int) -> range:
        """Return the bytes to verify before bytes `start` to `end` are used: complete blocks.

        Empty if all of them are verified.
        """
        last = -(-end // BLOCK_BYTES)
        first = self._unread.find(1, start // BLOCK_BYTES, last)
        if first < 0 or start >= end:
            return range(0)
        return range(first * BLOCK_BYTES, (self._unread.rfind(1, first, last) + 1) * BLOCK_BYTES)

    def verify(self, start: int, content: bytes) -> bool:
        """Return whether the blocks that start at a byte have the expected checksums."""
        found, place = checksums_of_blocks(content), start // BLOCK_BYTES
        count = len(found) // self._size
        if found != self._expected[place * self._size : (place + count) * self._size]:
            self._report_damage()
            return False
        self._unread[place : place + count] = bytes(count)
        return True
