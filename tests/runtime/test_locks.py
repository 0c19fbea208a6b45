"""Locks of run folders: one process at a time, and no stale locks."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from seq2seq.runtime import locks as run_lock
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.locks import LOCK, FolderLock, exclusive_lock

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the lock until it receives a line."""
    program = f"""
from pathlib import Path
from seq2seq.runtime.locks import exclusive_lock
with exclusive_lock(Path({str(folder)!r})):
    print("in", flush=True)
    input()
"""
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        try:
            yield process
        finally:
            process.kill()


def enter(folder: Path) -> None:
    with exclusive_lock(folder):
        pass


BUSY = "another process is writing to this run folder"


def test_the_second_process_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with holder(tmp_path) as first:
        for _ in range(2):  # a refusal changes nothing
            with pytest.raises(UserError, match=f"{tmp_path}: {BUSY}") as caught:
                enter(tmp_path)
            assert "\n" not in str(caught.value)
        first.communicate("\n")
        assert first.returncode == 0
    enter(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as first:
        first.kill()
        first.wait()
    enter(tmp_path / "run")


def test_the_lock_also_applies_within_one_process(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path), pytest.raises(UserError, match=BUSY):
        enter(tmp_path)


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (link := tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    for folder in (link, link / "runs" / "new"):
        with pytest.raises(UserError, match="dead is a broken link; rem"), exclusive_lock(folder):
            pass


def test_a_new_folder_is_removed_after_a_refusal_if_it_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "new"

    def refuse(*names: str) -> None:
        with exclusive_lock(folder):
            for name in names:
                (folder / name).touch()
            raise UserError("no")

    with pytest.raises(UserError, match="no"):
        refuse()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="no"):
        refuse("config.yaml")
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]
    with pytest.raises(UserError, match="no"):
        refuse()  # the folder existed before
    assert (folder / "config.yaml").exists()


@pytest.fixture
def file_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock files only, as some network file systems do."""
    flock = fcntl.flock

    def lock(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock)


def test_removing_the_lock_file_admits_no_second_process(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        (tmp_path / LOCK).unlink(missing_ok=True)
        with pytest.raises(UserError, match=BUSY):
            enter(tmp_path)
        first.communicate("\n")
        assert first.returncode == 0
    enter(tmp_path)


@pytest.mark.usefixtures("file_locks")
def test_a_file_is_locked_where_folders_cannot_be(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "new" / "run"):
        with exclusive_lock(folder) as lock:
            lock.verify()
            with pytest.raises(UserError, match=BUSY):
                enter(folder)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("file_locks")
def test_one_of_two_processes_admitted_by_a_removed_lock_stops(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path) as first:
        (tmp_path / LOCK).unlink()
        with exclusive_lock(tmp_path) as second:
            with pytest.raises(RunError, match=r"lock: another file has taken the place") as caught:
                first.verify()
            assert "\n" not in str(caught.value)
            second.verify()


@pytest.mark.parametrize("way", ["moved", "by a link"])
def test_a_folder_that_replaced_the_locked_one_is_not_written(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "run"
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    with exclusive_lock(folder) as lock:
        lock.verify()
        folder.rename(tmp_path / "away")
        lock.verify()  # the folder is gone: any write fails
        if way == "moved":
            other_folder.rename(folder)
        else:
            folder.symlink_to(other_folder)
        with pytest.raises(RunError, match="another folder has taken the place") as caught:
            lock.verify()
        assert "\n" not in str(caught.value)
        enter(folder)  # another process may train there
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
        (tmp_path / "away").rename(folder)
        lock.verify()


def test_a_folder_that_its_holder_removes_is_not_acquired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes would no longer find the folder that this one has opened and locked."""
    folder = tmp_path / "run"
    flock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        folder.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UserError, match="removed by another process just now"):
        enter(folder)


def test_a_process_can_wait_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = FolderLock(tmp_path)
    waiting = threading.Event()
    monkeypatch.setattr(run_lock.logger, "info", lambda _: waiting.set())
    with ThreadPoolExecutor() as pool:
        second = pool.submit(FolderLock, tmp_path, wait=True)
        assert waiting.wait(600)
        assert not second.done()
        first.close()
        second.result().close()


@pytest.mark.usefixtures("file_locks")
def test_another_file_with_the_name_of_the_lock_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("precious")
    enter(tmp_path)
    assert (tmp_path / LOCK).read_text() == "precious"


@pytest.mark.usefixtures("file_locks")
def test_a_link_planted_as_the_lock_is_not_written_through(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(mine)
    with pytest.raises(UserError, match=r"run_dir: .*lock"):
        enter(tmp_path / "run")
    assert mine.read_text() == "precious"


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"run_dir: .* cannot be written \(.*file"):
        enter(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(UserError, match=r"cannot be written \(.*Permission denied"):
            enter(tmp_path)
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.usefixtures("on_console")
def test_training_is_possible_where_files_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(*_: object, **__: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    enter(tmp_path)
    assert "cannot be locked on this file system" in capsys.readouterr().err
