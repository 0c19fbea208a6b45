"""Atomic writes, after a crash with the old or the new content, paths, and strict JSON.

What a full disk means for a run, and the remedy, is said by `writing` in runs/layout.py.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from seq2seq.runtime.errors import RunError, UnreadableFile, UserError

_STREAMS = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
_NAME_MAX = 255  # bytes of a name, in almost all file systems
Renames = list[tuple[Path, Path]]  # complete temporary files, and the paths they get
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of writing, which name no file
PART_SUFFIX = ".part"  # ends the name of a file that is still being written
_ESCAPED_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # JSON escapes others
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # in a str: a byte that is not UTF-8


@contextmanager
def atomic_file(
    path: Path, backup: Path | None = None, renames: Renames | None = None
) -> Iterator[IO[bytes]]:
    """Yield a temporary file; on success fsync it and atomically rename it to `path`.

    The previous file is renamed to `backup`, if given: a crash between the two leaves only that. A
    symbolic link at `path` is replaced, not followed. If the block fails, the temporary file is
    removed. Raises OSError, also if another process starts to write the same path meanwhile, which
    then completes its write. With `renames`, of `appearing_together`, the rename is left to that.
    """
    part = part_of(path)
    part.unlink(missing_ok=True)  # left by a killed process, or a link to a file of the user's
    created = None
    try:
        with part.open("xb") as file:  # written by this handle only: the name may be replaced
            created = os.fstat(file.fileno())
            yield file
            file.flush()
            sync(file)
        if not _is_same_file(created, part):
            text = "is being written by another process; use another path"
            raise OSError(errno.EBUSY, text, str(path))
        if renames is not None:
            renames.append((part, path))
        else:
            if backup is not None and path.exists():
                path.replace(backup)
            part.replace(path)
            sync_folder(path.parent)
    except BaseException as error:
        if isinstance(error, OSError) and (
            error.filename == str(part) or (error.filename is None and error.errno in _FULL)
        ):
            error.filename = str(path)  # the name that the user knows
        # A call that failed to create the file made none; one that a signal interrupted may have.
        is_mine = _is_same_file(created, part) if created else not isinstance(error, OSError)
        with suppress(OSError):
            if is_mine:
                part.unlink()
        raise


@contextmanager
def appearing_together() -> Iterator[Renames]:
    """Yield the list of renames of files that belong together, and carry them out at the end.

    A crash leaves some of several files missing, but none of before beside a new one. If the block
    fails, all stay as they were. Raises RunError.
    """
    renames: Renames = []
    try:
        yield renames
    except BaseException:
        for part, _ in renames:
            part.unlink(missing_ok=True)
        raise
    for _, path in renames if len(renames) > 1 else ():
        with write_errors(path):
            path.unlink(missing_ok=True)
    for part, path in renames:
        with write_errors(path):
            part.replace(path)
            sync_folder(path.parent)


def part_of(path: Path) -> Path:
    """Return the path of the temporary file that is renamed to `path`."""
    return path.with_name(path.name + PART_SUFFIX)


def atomic_write(path: Path, content: bytes, backup: Path | None = None) -> None:
    """Write or replace `path` atomically; raises OSError."""
    with atomic_file(path, backup) as file:
        file.write(content)


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield the file to write a user's output to, following symbolic links; raises OSError.

    Pipes, devices and descriptors such as /dev/stdout are written directly, others atomically.
    """
    target = resolve_link(path)
    if is_stream(target):
        descriptor = descriptor_of(target)
        stream = target.open("wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb")
        try:
            yield stream
            stream.flush()
        finally:
            with suppress(OSError):  # an error of the block or of the flush takes precedence
                stream.close()
        return
    with atomic_file(target) as file:
        yield file


@contextmanager
def write_errors(name: Path | str) -> Iterator[None]:
    """Turn an OSError into a RunError that names the output; let BrokenPipeError pass."""
    try:
        yield
    except BrokenPipeError:  # the reader has finished
        raise
    except OSError as error:
        raise RunError(f"{name}: cannot be written ({error.strerror or error})") from None


def check_paths(*paths: Path) -> None:
    """Raise UserError for a path with too long a name, or in a folder that may not be searched."""
    for path in paths:
        try:
            path.stat()
        except OSError as error:
            longest = max(len(os.fsencode(name)) for name in (*path.parts, "."))
            if error.errno == errno.ENOENT and longest > _NAME_MAX:  # in a folder still to be made
                error = OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                continue
            hint = "; a folder of the path may not be searched" * (error.errno == errno.EACCES)
            raise UserError(f"{path}: {error.strerror}{hint}") from None
        except ValueError as error:  # a NUL character
            raise UserError(f"{path}: {error}") from None


def refused_link(path: Path) -> UserError:
    """Return the error for a symbolic link in a place where this program writes."""
    return UserError(f"{path}: is a symbolic link; refusing to write through it. Remove it")


def open_to_append(path: Path) -> int:
    """Return a descriptor to append to a file, made if missing; raises OSError, also for a link."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)


def check_readable(path: Path) -> None:
    """Raise UnreadableFile if a regular file cannot be opened for reading; it need not exist."""
    try:
        if path.is_file():  # opening a pipe would block
            with path.open("rb"):
                pass
    except OSError as error:
        raise UnreadableFile(f"{path}: cannot be read ({error.strerror})") from None


def check_regular_file(path: Path) -> None:
    """Raise UserError for a file, named by a config, that is none: a pipe would never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: is not a regular file; write the text to one")


def outside(paths: Iterable[Path], *folders: Path) -> list[Path]:
    """Return the paths that lead, by a link or not, to none of the folders or the current one."""
    allowed_folders = [folder.resolve() for folder in (*folders, Path.cwd())]
    return [
        path
        for path in dict.fromkeys(paths)
        if not any(path.resolve().is_relative_to(folder) for folder in allowed_folders)
    ]


def outside_notes(paths: Iterable[Path], run: Path) -> list[str]:
    """Return a note for each text of a config that is neither of the run nor the current folder."""
    return [f"note: reads {path}, which the config of {run} names" for path in outside(paths, run)]


def resolve_link(path: Path) -> Path:
    """Return the target of a symbolic link; other paths are made absolute."""
    if descriptor_of(path) is not None:
        return path
    target = path.resolve()
    dangling = path.exists() and not target.exists()  # such as /dev/stdout when it is a pipe
    return path if dangling else target


def delete(path: Path) -> None:
    """Delete a file or a link, if it is there, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def same_file(path: Path, second: Path) -> bool:
    """Return whether two paths lead to the same place, by name or by a link; raises no error."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a cycle of links, before Python 3.13
        if path.resolve() == second.resolve() or path.samefile(second):
            return True
    return path == second


def is_stream(path: Path) -> bool:
    """Return True for a pipe, a device or a descriptor, which must not be replaced by a file."""
    return path.exists() and (not path.is_file() or descriptor_of(path) is not None)


def descriptor_of(path: Path) -> int | None:
    """Return the open descriptor that is meant by a path such as /dev/stdout or /dev/fd/3."""
    name = _STREAMS.get(str(path), str(path))
    match = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,9})", name)
    return int(match[1]) if match else None


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Read a file of at most `max_bytes`; raises OSError, also for a larger one."""
    with path.open("rb") as file:
        large = os.fstat(file.fileno()).st_size > max_bytes
        content = b"" if large else file.read(max_bytes + 1)
    if large or len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(path))
    return content


def sync(file: IO[Any]) -> None:
    """Flush a file to the storage device; raises OSError."""
    if sys.platform == "darwin":  # fsync leaves data in the cache of the drive
        with suppress(OSError):  # not supported by some file systems
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
            return
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, if the system supports it."""
    with suppress(OSError):  # some file systems cannot sync folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_same_file(file: os.stat_result, path: Path) -> bool:
    return path.exists() and os.path.samestat(file, path.lstat())


@contextmanager
def made_folders(paths: Sequence[Path]) -> Iterator[None]:
    """Make the folders of outputs; after the block, remove those that are empty: it failed."""
    check_paths(*paths)
    new_folders = {parent for path in paths for parent in path.parents if not parent.exists()}
    try:
        for folder in sorted(new_folders):
            with write_errors(folder):
                folder.mkdir()
        yield
    finally:
        for folder in sorted(new_folders, reverse=True):
            with suppress(OSError):
                folder.rmdir()


def json_text(value: Any, indent: int | None = None) -> str:
    """Format a value as strict JSON in which a line feed alone can end a line, for any reader.

    U+0085, U+2028 and U+2029, at which others split, are escaped, as are other C1 controls and lone
    surrogates, which UTF-8 lacks. Raises RunError for a number that JSON lacks (nan, inf).
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError as error:
        raise RunError(f"JSON cannot hold a number that is not finite ({error})") from None
    return _ESCAPED_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
