"""Locks: one process at a time trains in a run folder, and one builds in a cache."""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path

from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import is_main_process

LOCK = "lock"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold the run folder, made if it is not there, and let no other process in.

    The system lets go when the process ends, however it ends: a kill leaves nothing to clean up.
    A folder made here in which nothing came to lie is removed again. Raises UserError where
    another process holds the folder or it cannot be written.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]  # the deepest first
    descriptor = _opened(folder)
    try:
        _lock(descriptor, folder)
        if not _is_there(descriptor, folder / LOCK):
            raise UserError(f"{folder}: another process has just removed it; try again")
        _check_own(descriptor, folder)
        with suppress(OSError):  # the number is for people, and the disk may be full
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            _remove_empty(made)  # while no other can hold it
    finally:
        os.close(descriptor)


def _opened(folder: Path) -> int:
    """The lock file of a run folder, both made where they are not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return os.open(folder / LOCK, _FLAGS, 0o644)
    except OSError as error:
        raise UserError(
            f"run_dir: {folder} cannot be written ({error.filename}: {error.strerror}); "
            "mend that or set another run_dir"
        ) from None


def _check_own(descriptor: int, folder: Path) -> None:
    """Refuse a file called as the lock is which holds more than the number of a process."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = os.read(descriptor, 100).strip()
    os.lseek(descriptor, 0, os.SEEK_SET)
    if content and not content.isdigit():
        raise UserError(
            f"run_dir: {folder / LOCK} is no lock, for which that name is kept; move it away"
        )


def _is_there(descriptor: int, path: Path) -> bool:
    """Whether an open file still stands at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


class SharedLock:
    """A lock file that is held beside others to read, alone to build; made if it is not there."""

    def __init__(self, path: Path) -> None:
        """Hold it to read, once nobody builds; raises OSError where it cannot be made."""
        self.exclusive = False
        self._path, self._descriptor = path, os.open(path, _FLAGS, 0o644)
        self._hold(exclusive=False)

    def upgrade(self) -> None:
        """Hold it alone, once nobody else does; not so where the file system knows no locks."""
        if not self.exclusive:
            self.exclusive = self._hold(exclusive=True)

    def close(self) -> None:
        """Let go."""
        os.close(self._descriptor)

    def _hold(self, exclusive: bool) -> bool:
        while held := _wait(self._descriptor, self._path, exclusive):
            if _is_there(self._descriptor, self._path):
                break  # else whoever held it has removed it
            os.close(self._descriptor)
            self._descriptor = os.open(self._path, _FLAGS, 0o644)
        return held


def _wait(descriptor: int, path: Path, exclusive: bool) -> bool:
    for seconds in chain((0.1,), repeat(0.2)):
        try:
            _try_lock(descriptor, exclusive)
            return True
        except (BlockingIOError, PermissionError):
            if seconds == 0.1 and is_main_process():
                print(f"note: {path.parent}: waiting for another process there", file=sys.stderr)
            time.sleep(seconds)
        except OSError:  # as on some network file systems
            break
    return False


def _lock(descriptor: int, folder: Path) -> None:
    try:
        _try_lock(descriptor, exclusive=True)
    except (BlockingIOError, PermissionError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        number = os.read(descriptor, 20).strip().decode("ascii", errors="replace")
        process = f"process {number}" if number.isdigit() else "another process"
        raise UserError(
            f"{folder}: {process} is training in this run folder; "
            "wait until it ends, or set another run_dir"
        ) from None
    except OSError as error:  # as on some network file systems
        print(
            f"note: {folder}: cannot be locked ({error.strerror}); "
            "see to it that no other process trains in it",
            file=sys.stderr,
        )


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, exclusive: bool) -> None:  # noqa: ARG001 -- always alone, here
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # a byte apart: others may not read a locked one
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _try_lock(descriptor: int, exclusive: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def _remove_empty(made: list[Path]) -> None:
    """Take back folders in which nothing but the lock lies."""
    with suppress(OSError):
        if made and [entry.name for entry in made[0].iterdir()] == [LOCK]:
            (made[0] / LOCK).unlink()
            for folder in made:
                folder.rmdir()
