"""Files that are written whole or not at all, whatever happens meanwhile."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

PART_SUFFIX = ".part"  # ends the name of a file that is still being written


@contextmanager
def atomic_path(path: Path, kept: Path | None = None) -> Iterator[Path]:
    """A path to write to; what is there at the end is synced and takes the name `path`.

    Until then `path` is the old file, which goes to `kept` if that is given. A link in its place
    is replaced, never followed. Where the block fails, nothing is left aside. Raises OSError, also
    where another process begins to write the same file meanwhile, which leaves it to that one.
    """
    aside = path.with_name(path.name + PART_SUFFIX)
    aside.unlink(missing_ok=True)  # left by a kill; or a link to a file that is not ours
    with aside.open("xb") as own:  # open till the end, or its number might become another's
        mine = os.fstat(own.fileno())
        try:
            yield aside
            sync(own)
            if not _is(mine, aside):
                raise OSError(errno.EBUSY, "another process writes it too; name another", str(path))
            own.close()  # Windows renames no open file, nor removes it
            if kept is not None and path.exists():
                path.replace(kept)
            aside.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            own.close()
            with suppress(OSError):
                if _is(mine, aside):
                    aside.unlink()
            raise


def sync(file: IO[Any]) -> None:
    """Let what was written reach the disk itself; raises OSError.

    On a Mac fsync leaves it in the drive's memory, which a power cut empties in any order.
    """
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # some file systems do not know it
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
            return
    os.fsync(file.fileno())


def _is(file: os.stat_result, path: Path) -> bool:
    """Whether the file is what stands at the path."""
    return path.exists() and os.path.samestat(file, path.stat())


def _sync_folder(folder: Path) -> None:
    """Let the new name survive a power cut, where the system knows how."""
    with suppress(OSError):  # Windows opens no folders, and some file systems sync none
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def atomic_write(path: Path, content: bytes, kept: Path | None = None) -> None:
    """Put a file of this content in the place of `path`; raises OSError."""
    with atomic_path(path, kept) as aside, aside.open("wb") as file:
        file.write(content)


@contextmanager
def output_path(path: Path) -> Iterator[Path]:
    """A path to write to, as `atomic_path` gives it; of a pipe or a device, that itself.

    Of a link the file behind it is written. Raises OSError.
    """
    target = resolve_link(path)
    if is_stream(target):
        yield target
        return
    with atomic_path(target) as aside:
        yield aside


def resolve_link(path: Path) -> Path:
    """Of a link the file behind it, as other programs write it."""
    behind = path.resolve()
    gone = path.exists() and not behind.exists()  # as of /dev/stdout, where that is a pipe
    return path if gone else behind


def is_stream(path: Path) -> bool:
    """Whether it is a pipe or a device: not to be replaced by a file."""
    return path.exists() and not path.is_file()


def read_bounded(path: Path, most: int) -> bytes:
    """All of a file, unless that is more than `most` bytes; raises OSError."""
    with path.open("rb") as file:
        large = os.fstat(file.fileno()).st_size > most
        content = b"" if large else file.read(most + 1)
    if large or len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return content
