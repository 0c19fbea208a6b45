"""Atomic writes: the old file is kept until the new one is complete; no partial file is left."""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from seq2seq.runtime.files import (
    PART_SUFFIX,
    appearing_together,
    atomic_file,
    atomic_write,
    delete,
    read_bounded,
    sync,
)


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (b"one", b"", b"three\n\0"):
        atomic_write(path, content)
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_kept_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a"
    old_copy = tmp_path / "b"
    atomic_write(path, b"1", old_copy)
    assert not old_copy.exists()
    for old, new in ((b"1", b"2"), (b"2", b"3")):
        atomic_write(path, new, old_copy)
        assert (path.read_bytes(), old_copy.read_bytes()) == (new, old)


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt(), ValueError("x")])
def test_a_failure_leaves_the_old_file_and_no_temporary_file(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic_file(path) as file:
            file.write(b"ne")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_temporary_file_left_by_a_kill_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a"
    (tmp_path / f"a{PART_SUFFIX}").write_bytes(b"half of something longer")
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_the_first_of_two_writers_fails_and_the_second_succeeds(
    tmp_path: Path, first_ends_first: bool
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    first = atomic_file(path)
    second = atomic_file(path)
    first.__enter__().write(b"first")
    second.__enter__().write(b"second")
    if not first_ends_first:
        second.__exit__(None, None, None)
    with pytest.raises(OSError, match="is being written by another process") as raised:
        first.__exit__(None, None, None)
    assert raised.value.filename == str(path)
    if first_ends_first:
        assert path.read_bytes() == b"old"
        second.__exit__(None, None, None)
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_starts_while_another_syncs_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    sync_file = os.fsync
    second = atomic_file(path)

    def slow(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync_file)
        second.__enter__().write(b"half")
        sync_file(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with pytest.raises(OSError, match="is being written by another process"):
        atomic_write(path, b"first")
    assert not path.exists()
    second.__exit__(None, None, None)
    assert path.read_bytes() == b"half"


def written_together(paths: Sequence[Path], content: bytes) -> None:
    with appearing_together() as files:
        for path in paths:
            with atomic_file(path, renames=files) as file:
                file.write(content)


@pytest.mark.parametrize("count", [2, 3])
def test_a_crash_leaves_no_old_file_beside_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    paths = [tmp_path / str(number) for number in range(count)]
    written_together(paths, b"old")
    rename = Path.replace

    def crash(part: Path, path: Path) -> Path:
        if path == paths[-1]:
            raise KeyboardInterrupt
        return rename(part, path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            written_together(paths, b"new")
    assert [path.read_bytes() for path in paths[:-1]] == [b"new"] * (count - 1)
    assert not paths[-1].exists()
    written_together(paths, b"newer")
    assert [path.read_bytes() for path in paths] == [b"newer"] * count


def test_a_file_alone_is_old_or_new_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    written_together([path], b"old")

    def crash(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        written_together([path], b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="has no fcntl")
@pytest.mark.parametrize("supported", [True, False])
def test_macos_flushes_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    calls = []
    fsync = os.fsync

    def control(_: int, command: int) -> None:
        calls.append(command)
        if not supported:
            raise OSError(errno.ENOTSUP, "not here")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("fcntl.F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr("fcntl.fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append(0), fsync(number)))
    with (tmp_path / "a").open("wb") as file:
        sync(file)
    assert calls == ([51] if supported else [51, 0])


@pytest.mark.parametrize("planted", ["a", f"a{PART_SUFFIX}"])
def test_links_are_replaced_and_never_followed(tmp_path: Path, planted: str) -> None:
    mine = tmp_path / "mine"
    folder = tmp_path / "folder"
    mine.write_bytes(b"precious")
    folder.mkdir()
    (folder / planted).symlink_to(mine)
    atomic_write(folder / "a", b"new")
    assert mine.read_bytes() == b"precious"
    assert (folder / "a").read_bytes() == b"new"
    assert [path.name for path in folder.iterdir() if path.is_symlink()] == []


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    atomic_write(tmp_path / "a", b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_reading_stops_at_the_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bounded(path, 4)
    os.truncate(path, 1 << 40)  # a sparse file of a terabyte
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        read_bounded(path, 1000)


def test_only_the_opened_file_is_written(tmp_path: Path) -> None:
    """The temporary file may have been replaced by a link at the time of the write."""
    mine = tmp_path / "mine"
    path = tmp_path / "a"
    mine.write_bytes(b"precious")
    writer = atomic_file(path)
    file = writer.__enter__()
    (tmp_path / f"a{PART_SUFFIX}").unlink()
    (tmp_path / f"a{PART_SUFFIX}").symlink_to(mine)
    file.write(b"new")
    with pytest.raises(OSError, match="is being written by another process"):
        writer.__exit__(None, None, None)
    assert mine.read_bytes() == b"precious"
    assert not path.exists()


@pytest.mark.parametrize("moment", ["open", "fstat"])
def test_a_signal_while_the_temporary_file_is_created_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    owner, create = (Path, Path.open) if moment == "open" else (os, os.fstat)

    def interrupted(*arguments: object) -> None:
        file = create(*arguments)  # type: ignore[operator]
        if moment == "open":
            file.close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, moment, interrupted)
        with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "a"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_what_is_deleted_is_gone_and_what_a_link_leads_to_remains(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "folder/file"
    folder.mkdir()
    file.write_text("1", encoding="utf-8")
    links = [tmp_path / "to-folder", tmp_path / "to-file", tmp_path / "to-nothing"]
    for link, target in zip(links, (folder, file, tmp_path / "nothing"), strict=True):
        link.symlink_to(target)
        delete(link)
        assert not link.is_symlink()
    assert file.exists()
    delete(folder)
    delete(folder)
    assert list(tmp_path.iterdir()) == []
