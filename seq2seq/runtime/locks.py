"""Locks: one process trains in a run folder, one builds a cache or writes a journal.

The operating system releases a lock when its process ends, even by SIGKILL.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.process_group import is_main_process

LOCK = "lock"  # file that is locked instead where a file system cannot lock folders, as with NFS


class FolderLock:
    """Exclusive lock of one process on a folder, whatever is removed from it."""

    def __init__(self, folder: Path, wait: bool = False) -> None:
        """Lock an existing folder, or `wait` for the process that has; raises OSErrors."""
        self._folder = self._path = folder
        self._descriptor = os.open(folder, os.O_RDONLY)
        if not _try_lock(self._descriptor, folder, wait):
            self._path = folder / LOCK
            self._descriptor = _open_regular(self._path)
            if not _try_lock(self._descriptor, folder, wait):
                self._descriptor = -1
                remedy = "make sure that no other process writes to it"
                logger.info(f"note: {folder}: cannot be locked on this file system; {remedy}")
        if not self._is_in_place():
            self.close()
            raise OSError(errno.ENOENT, "removed by another process just now", str(folder))

    @property
    def descriptor(self) -> int | None:
        """Return what is locked, for children that are to hold the lock, too; None without one."""
        return self._descriptor if self._descriptor >= 0 else None

    def verify(self) -> None:
        """Raise RunError if another process may write here, as what is locked was replaced."""
        if self._folder.exists() and not self._is_in_place():
            kind = "folder" if self._path == self._folder else "file"
            text = f"another {kind} has taken the place of the one that this process locked"
            raise RunError(f"{self._path}: {text}; stopped without writing to it")

    def close(self) -> None:
        """Release the lock, also where forked processes have inherited it."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)

    def _is_in_place(self) -> bool:
        file = self._descriptor
        with suppress(OSError):
            return file < 0 or os.path.samestat(os.fstat(file), self._path.stat())
        return False


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[FolderLock]:
    """Lock a run folder against other processes; create it if it does not exist.

    It is removed again if nothing was written to it. Raises UserError if it is in use or read-only.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]  # deepest first
    lock = _lock_writable(folder)
    try:
        yield lock
    finally:
        with suppress(OSError):  # raised for a folder that is not empty
            if created:
                (folder / LOCK).unlink(missing_ok=True)
            for path in created:
                path.rmdir()
        lock.close()


def lock_file(file: IO[bytes], path: Path) -> None:
    """Lock an open file until it is closed; raises UserError if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path}: another process is writing it; wait until it ends") from None
    except OSError:  # this file system has no locks
        pass


def _lock_writable(folder: Path) -> FolderLock:
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            raise UserError(f"run_dir: {path} is a broken link; remove it or set another run_dir")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return FolderLock(folder)
    except BlockingIOError:
        text = f"{folder}: another process is writing to this run folder"
        raise UserError(f"{text}; wait until it ends or set another run_dir") from None
    except OSError as error:
        text = f"run_dir: {folder} cannot be written ({error.filename}: {error.strerror})"
        raise UserError(f"{text}; make it writable or set another run_dir") from None


def _try_lock(descriptor: int, path: Path, wait: bool) -> bool:
    """Lock an open folder or file; close it and return False if its file system has no such lock.

    Raises BlockingIOError if another process holds the lock and `wait` is not set.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            os.close(descriptor)
            raise
        if is_main_process():
            logger.info(f"note: {path}: waiting for another process")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        os.close(descriptor)
        return False
    return True


def _open_regular(path: Path) -> int:
    """Open or create a file to lock; raises OSError, and UserError for a pipe or a device."""
    with suppress(IsADirectoryError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    raise UserError(f"{path}: is not a file but has the reserved name of a lock; move it away")
