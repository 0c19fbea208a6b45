"""File locks: one process trains in a run folder, one writes to a cache or a journal."""

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.process_group import is_main_process

LOCK = "lock"
_NO_SURPRISE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no links, no waiting


class FolderLock:
    """Exclusive lock of one process on a folder: on the folder itself and on a file in it.

    The file holds the process id. Removing it releases nothing, except where the system cannot lock
    folders (Windows, some network file systems) and the file alone is locked.
    """

    def __init__(self, folder: Path) -> None:
        """Lock an existing folder; raises OSError, and UserError if another process holds it."""
        self._folder, self._path = folder, folder / LOCK
        self._file: int | None = None
        self._handle = _lock_handle(folder)
        try:
            self._status = folder.stat() if self._handle is None else os.fstat(self._handle)
            self.made_file = not os.path.lexists(self._path)
            self._lock_file()
            if not self._is_in_place():
                raise _removed(folder)
        except BaseException:
            self.close()
            raise

    def verify(self) -> None:
        """Raise RunError if another process may write here, as the folder or its lock was replaced.

        A lock file that was removed is made and locked again.
        """
        if not self._folder.exists():
            return  # writing raises the error
        if not self._is_in_place():
            raise RunError(
                f"{self._folder}: another folder has taken the place of the one that this process "
                "locked; stopped without writing to it"
            )
        if self._file is not None and _is_at(self._file, self._path):
            return
        try:
            self._lock_file()
        except (OSError, UserError) as error:
            raise RunError(
                f"{self._path}: was removed or replaced, and cannot be locked again ({error}); "
                "stopped, since two processes must not write to one folder"
            ) from None

    def clear(self, remove: bool) -> None:
        """Clear the process id in the lock file, or remove the file."""
        with suppress(OSError):
            if self._file is not None:
                os.ftruncate(self._file, 0)
            if remove:  # a process that has opened the file notices it
                self._path.unlink()

    def close(self) -> None:
        """Release the lock."""
        for descriptor in (self._file, self._handle):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._handle = None

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._status, self._folder.stat())
        except OSError:
            return False

    def _lock_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._file = descriptor = _open_regular(self._path)
        try:
            _try_lock(descriptor, exclusive=True)
        except (BlockingIOError, PermissionError):
            raise _held(self._folder) from None
        except OSError as error:  # on some network file systems
            if self._handle is None:
                logger.info(
                    f"note: {self._folder}: cannot be locked ({error.strerror}); "
                    "make sure that no other process trains in it"
                )
        if not _is_at(descriptor, self._path):
            raise _removed(self._folder)
        content = _read_start(descriptor)
        if content and not content.isdigit():
            raise UserError(
                f"run_dir: {self._path} is not a lock file but has its reserved name; move it away"
            )
        with suppress(OSError):  # the process id is informative only, and the disk may be full
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[FolderLock]:
    """Lock a run folder against other processes; create it if it does not exist.

    The operating system releases the lock when the process ends, even by SIGKILL. A folder created
    here is removed again if nothing was written to it, and a lock file made here if the block
    raises UserError. Raises UserError if another process holds the lock or the folder is not
    writable.
    """
    created = [each for each in (folder, *folder.parents) if not each.exists()]  # deepest first
    lock, refused = _lock_writable(folder), False
    try:
        yield lock
    except UserError:
        refused = True
        raise
    finally:
        lock.clear(remove=refused and lock.made_file)
        _remove_unused(created)  # before the lock is released
        lock.close()


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Lock a file against other processes; create it if it does not exist.

    Raises UserError if another process holds the lock or the path is not a file, and OSError if it
    cannot be opened. A file system without locks is used without one.
    """
    descriptor = _open_regular(path)
    try:
        _try_lock(descriptor, exclusive=True)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise UserError(f"{path}: another process is writing it; wait until it ends") from None
    except OSError:  # on some network file systems
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def _lock_writable(folder: Path) -> FolderLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return FolderLock(folder)
    except OSError as error:
        raise UserError(
            f"run_dir: {folder} cannot be written ({error.filename}: {error.strerror}); "
            "make it writable or set another run_dir"
        ) from None


def _lock_handle(folder: Path) -> int | None:
    """Open and lock a folder; return None where the system cannot lock folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        _try_lock(descriptor, exclusive=True)
    except BlockingIOError:
        os.close(descriptor)
        raise _held(folder) from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _open_regular(path: Path) -> int:
    """Open or create a lock file; raises OSError, and UserError for a pipe or a device."""
    error = UserError(f"{path}: is not a file but has the reserved name of a lock; move it away")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NO_SURPRISE, 0o644)
    except IsADirectoryError:
        raise error from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error
    return descriptor


def _held(folder: Path) -> UserError:
    """Return the error for a folder that another process has locked, with its id if recorded."""
    content = b""
    with suppress(OSError):
        descriptor = os.open(folder / LOCK, os.O_RDONLY | _NO_SURPRISE)
        content = _read_start(descriptor)
        os.close(descriptor)
    process = f"process {content.decode()}" if content.isdigit() else "another process"
    return UserError(
        f"{folder}: {process} is writing to this run folder; "
        "wait until it ends or set another run_dir"
    )


def _removed(folder: Path) -> UserError:
    return UserError(f"{folder}: was removed by another process just now; try again")


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
        if created and {entry.name for entry in created[0].iterdir()} <= {LOCK}:
            (created[0] / LOCK).unlink(missing_ok=True)
            for folder in created:
                folder.rmdir()


class SharedLock:
    """Lock on a cache: shared by readers, exclusive for the one process that writes."""

    def __init__(self, path: Path) -> None:
        """Wait for the shared lock; raises OSError if the lock file cannot be created.

        Where locks cannot be shared, as on Windows, it is exclusive from the start.
        """
        self._path, self._descriptor = path, _open_regular(path)
        self.exclusive = self._acquire(exclusive=not _CAN_SHARE) and not _CAN_SHARE

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


_CAN_SHARE = sys.platform != "win32"
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
