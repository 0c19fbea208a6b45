"""Folders opened by handle: files in them are reached without following any symbolic link.

A path is resolved at each use, and whoever may write one of its folders can redirect it
meanwhile. A handle cannot be redirected. Windows has none for folders: there, paths are used, and
owners and permissions are not checked.
"""

import errno
import os
import secrets
import shutil
import stat
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import PART_SUFFIX, sync

_HAS_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER_FLAGS = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_DIRECTORY", 0)
_OPEN_FLAGS = _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)  # a pipe would block
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
_OTHERS = 0o077  # permissions of the group and of all others


class Address(NamedTuple):
    """Path and identity of an open folder, for another process to open the same one."""

    path: Path
    device: int
    inode: int


class Folder:
    """An open folder; names are resolved in it, whatever its path leads to now."""

    _mode = 0o777  # permissions of a folder made here, less the umask

    def __init__(self, path: Path, parent: "Folder | None" = None, create: bool = False) -> None:
        """Open a folder, or make it first; of its path, only the last name must not be a link.

        Raises UserError for a link, FileNotFoundError, NotADirectoryError and other OSErrors.
        """
        self.path = path
        self._handle: int | None = None
        above = None if parent is None else parent._handle
        name = path.name if above is not None else path
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, self._mode, dir_fd=above)
        if is_link(name, above):
            raise refused_link(path)
        if _HAS_HANDLES:
            self._handle = os.open(name, _FOLDER_FLAGS, dir_fd=above)
            self._close = weakref.finalize(self, os.close, self._handle)
        elif not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def close(self) -> None:
        """Close the handle."""
        if self._handle is not None:
            self._close()

    @property
    def status(self) -> os.stat_result:
        """Owner, mode and identity of the folder."""
        return self.path.stat() if self._handle is None else os.fstat(self._handle)

    def is_own(self) -> bool:
        """Return whether the folder belongs to the user of this process, or owners are unknown.

        Some network file systems give files of the process to a user of their own choice; then that
        user's folder is the process's own.
        """
        if self._handle is None or (owner := self.status.st_uid) == os.geteuid():
            return True
        return owner == self._owner_of_new_folders()

    def _owner_of_new_folders(self) -> int | None:
        name = f"owner.{secrets.token_hex(4)}{PART_SUFFIX}"
        try:
            os.mkdir(self._at(name), 0o700, dir_fd=self._handle)
            made = self.lstat(name)
            os.rmdir(self._at(name), dir_fd=self._handle)
        except OSError:
            return None
        return None if made is None else made.st_uid

    def names(self) -> list[str]:
        """List the names in the folder."""
        with os.scandir(self.path if self._handle is None else self._handle) as entries:
            return [each.name for each in entries]

    def lstat(self, name: str) -> os.stat_result | None:
        """Return the status of a file, a folder or a link itself; None if there is none."""
        try:
            return os.stat(self._at(name), dir_fd=self._handle, follow_symlinks=False)
        except OSError:
            return None

    def open(self, name: str, update: bool = False) -> int:
        """Return a descriptor to read or update a regular file; raises OSError, also for a link."""
        flags = _OPEN_FLAGS | (os.O_RDWR if update else os.O_RDONLY)
        descriptor = os.open(self._at(name), flags, dir_fd=self._handle)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a file", name)
        return descriptor

    def create(self, name: str, mode: int = 0o600) -> IO[bytes]:
        """Create a file, which must not exist, and open it for writing."""
        return os.fdopen(os.open(self._at(name), _CREATE_FLAGS, mode, dir_fd=self._handle), "wb")

    def write(self, name: str, content: bytes, mode: int = 0o666) -> None:
        """Write or replace a file atomically; raises OSError."""
        part = name + PART_SUFFIX
        self.remove(part)  # left by a killed process
        try:
            with self.create(part, mode) as file:
                file.write(content)
                file.flush()
                sync(file)
            os.replace(
                self._at(part), self._at(name), src_dir_fd=self._handle, dst_dir_fd=self._handle
            )
        except BaseException:
            self.remove(part)
            raise
        self.sync()

    def rename(self, name: str, other: str) -> None:
        """Rename a file or a folder."""
        names = self._at(name), self._at(other)
        os.rename(*names, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Delete a file, a link or a folder with all it contains; ignore failures."""
        status = self.lstat(name)
        if status is None:
            return
        with suppress(OSError):
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(self._at(name), dir_fd=self._handle)
            else:
                os.unlink(self._at(name), dir_fd=self._handle)

    def sync(self) -> None:
        """Make renames survive a power cut, if the system supports it."""
        with suppress(OSError):
            if self._handle is not None:
                os.fsync(self._handle)

    def _at(self, name: str) -> str:
        return name if self._handle is not None else str(self.path / name)


class PrivateFolder(Folder):
    """A folder that belongs to the current user and that no other user may search.

    `owner` is the user id that the file system gives to files of this process. It may differ from
    the process's own, as on a network file system that maps users.
    """

    _mode = 0o700

    def __init__(self, path: Path, parent: "PrivateFolder | None" = None, create: bool = False):
        """Open a folder, or make it first, and remove the permissions of other users.

        Raises UserError for a link and for a folder of another user, and OSError.
        """
        super().__init__(path, parent, create)
        status = self.status
        self.owner = status.st_uid
        if not (self.is_own() if parent is None else self.owner == parent.owner):
            raise UserError(
                f"{path}: belongs to another user (uid {status.st_uid}); refusing to use it. "
                "Remove it, or set another run_dir"
            )
        self.private = self._make_private(status)

    @classmethod
    def reopen(cls, address: Address) -> Self:
        """Open the folder that another process has open; raises OSError if it was replaced."""
        folder = cls(address.path)
        if folder.address != address:
            raise OSError(errno.ESTALE, "replaced by another folder", str(address.path))
        return folder

    @property
    def address(self) -> Address:
        """Address of the folder, which can be sent to another process."""
        status = self.status
        return Address(self.path, status.st_dev, status.st_ino)

    def subfolder(self, name: str, create: bool = False) -> "PrivateFolder":
        """Open a folder in this one, or make it first; raises errors as the constructor does."""
        return PrivateFolder(self.path / name, self, create)

    @contextmanager
    def temporary(self, prefix: str) -> "Iterator[PrivateFolder]":
        """Yield a new folder in this one; it is removed at the end, unless it was renamed."""
        name = f"{prefix}.{secrets.token_hex(4)}{PART_SUFFIX}"
        folder = self.subfolder(name, create=True)
        try:
            yield folder
        finally:
            self.remove(name)

    def open(self, name: str, update: bool = False) -> int:
        """Return a descriptor to a file of the user; raises OSError for any other."""
        descriptor = super().open(name, update)
        if _HAS_HANDLES and os.fstat(descriptor).st_uid != self.owner:
            os.close(descriptor)
            raise OSError(errno.EPERM, "it belongs to another user", name)
        return descriptor

    def _make_private(self, status: os.stat_result) -> bool:
        """Remove the permissions of others; return False if the file system keeps them."""
        if self._handle is None or stat.S_IMODE(status.st_mode) & 0o777 == 0o700:
            return True
        with suppress(OSError):
            os.fchmod(self._handle, 0o700)
        return not self.status.st_mode & _OTHERS


def open_to_append(path: Path) -> int:
    """Return a descriptor to append to a file, made if missing; raises OSError, also for a link."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_FOLLOW, 0o666)


def is_foreign(path: Path) -> bool:
    """Return whether a folder exists, is no link and belongs to another user."""
    try:
        if is_link(path) or not path.exists():
            return False
        with closing(Folder(path)) as folder:
            return not folder.is_own()
    except OSError:  # it may not be opened
        return True


def is_link(path: Path | str, folder: int | None = None) -> bool:
    """Return whether a path, relative to an open folder if one is given, is a symbolic link."""
    try:
        mode = os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return False
    return stat.S_ISLNK(mode)


def refused_link(path: Path) -> UserError:
    """Return the error for a symbolic link in a place where this program writes."""
    return UserError(f"{path}: is a symbolic link; refusing to write through it. Remove it")
