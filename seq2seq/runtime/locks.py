"""File locks: one process trains in a run folder, one writes to a cache."""

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import is_main_process

LOCK = "lock"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Lock a run folder against other processes; create it if it does not exist.

    The operating system releases the lock when the process ends, even by SIGKILL. A folder created
    here is removed again if nothing was written to it. Raises UserError if another process holds
    the lock or the folder is not writable.
    """
    created = [each for each in (folder, *folder.parents) if not each.exists()]  # deepest first
    descriptor = _open_lock(folder)
    try:
        _lock(descriptor, folder)
        if not _is_at(descriptor, folder / LOCK):
            raise UserError(f"{folder}: was removed by another process just now; try again")
        content = _read_start(descriptor)
        if content and not content.isdigit():
            raise UserError(
                f"run_dir: {folder / LOCK} is not a lock file but has its reserved name; "
                "move it away"
            )
        with suppress(OSError):  # the process id is informative only, and the disk may be full
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            _remove_unused(created)  # before the lock is released
    finally:
        os.close(descriptor)


def _open_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return _open_regular(folder / LOCK)
    except OSError as error:
        raise UserError(
            f"run_dir: {folder} cannot be written ({error.filename}: {error.strerror}); "
            "make it writable or set another run_dir"
        ) from None


def _open_regular(path: Path) -> int:
    """Open or create a lock file; raises OSError, and UserError for a pipe or a device."""
    descriptor = os.open(path, _FLAGS | getattr(os, "O_NONBLOCK", 0), 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path}: is not a file but has the reserved name of a lock; move it away")
    return descriptor


def _lock(descriptor: int, folder: Path) -> None:
    try:
        _try_lock(descriptor, exclusive=True)
    except (BlockingIOError, PermissionError):
        number = _read_start(descriptor).decode("ascii", errors="replace")
        process = f"process {number}" if number.isdigit() else "another process"
        raise UserError(
            f"{folder}: {process} is training in this run folder; "
            "wait until it ends or set another run_dir"
        ) from None
    except OSError as error:  # on some network file systems
        logger.info(
            f"note: {folder}: cannot be locked ({error.strerror}); "
            "make sure that no other process trains in it"
        )


def _read_start(descriptor: int) -> bytes:
    """Read the first bytes of a lock file, normally a process id."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = os.read(descriptor, 100).strip()
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content


def _is_at(descriptor: int, path: Path) -> bool:
    """Return False if an open file was removed or replaced at its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_unused(created: list[Path]) -> None:
    """Remove folders created for a run if they contain nothing but the lock."""
    with suppress(OSError):
        if created and [entry.name for entry in created[0].iterdir()] == [LOCK]:
            (created[0] / LOCK).unlink()
            for folder in created:
                folder.rmdir()


class SharedLock:
    """Lock on a cache: shared by readers, exclusive for the one process that writes."""

    def __init__(self, path: Path) -> None:
        """Wait for the shared lock; raises OSError if the lock file cannot be created."""
        self.exclusive = False
        self._path, self._descriptor = path, _open_regular(path)
        self._acquire(exclusive=False)

    def upgrade(self) -> None:
        """Wait for the exclusive lock; `exclusive` stays False if the file system has no locks."""
        if not self.exclusive:
            self.exclusive = self._acquire(exclusive=True)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def _acquire(self, exclusive: bool) -> bool:
        waiting = False
        while True:
            try:
                _try_lock(self._descriptor, exclusive)
            except (BlockingIOError, PermissionError):
                if not waiting and is_main_process():
                    logger.info(f"note: {self._path.parent}: waiting for another process")
                waiting = True
                time.sleep(0.2)
                continue
            except OSError:  # on some network file systems
                return False
            if _is_at(self._descriptor, self._path):
                return True
            os.close(self._descriptor)  # removed by its previous holder
            self._descriptor = _open_regular(self._path)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, exclusive: bool) -> None:  # noqa: ARG001 -- always exclusive
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # past the content, which others must read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _try_lock(descriptor: int, exclusive: bool) -> None:
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
