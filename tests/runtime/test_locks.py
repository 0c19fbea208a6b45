"""Locks of run folders: one process at a time, and no stale locks."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from seq2seq.runtime import locks as run_lock
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.locks import LOCK, SharedLock, exclusive_lock

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


def test_the_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with holder(tmp_path) as first:
        for _ in range(2):  # a refusal changes nothing
            with pytest.raises(UserError) as caught:
                enter(tmp_path)
            assert f"{tmp_path}: process {first.pid} is writing to this run" in str(caught.value)
            assert "\n" not in str(caught.value)
        first.communicate("\n")
        assert first.returncode == 0
    enter(tmp_path)
    assert (tmp_path / LOCK).read_bytes() == b""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as first:
        first.kill()
        first.wait()
    assert (tmp_path / "run" / LOCK).read_text() == f"{first.pid}\n"  # a stale PID
    with exclusive_lock(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK).read_text() == f"{os.getpid()}\n"


def test_the_lock_also_applies_within_one_process(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()} "):
        enter(tmp_path)


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


def test_a_refused_call_leaves_no_lock_in_an_existing_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    def refuse() -> None:
        with exclusive_lock(tmp_path):
            assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
            raise UserError("no")

    for before in (["mine"], [LOCK, "mine"]):  # the second time, after a run that locked it
        with pytest.raises(UserError, match="no"):
            refuse()
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        enter(tmp_path)


def without_folder_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock only the file, as on Windows and on some network file systems."""
    monkeypatch.setattr(run_lock, "_lock_handle", lambda _: None)


def test_removing_the_lock_file_admits_no_second_process(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path) as lock:
        for _ in range(2):
            (tmp_path / LOCK).unlink()
            with pytest.raises(UserError, match="another process is writing to this run folder"):
                enter(tmp_path)
            assert not (tmp_path / LOCK).exists()
            lock.verify()
            with pytest.raises(UserError, match=f"process {os.getpid()} is writing"):
                enter(tmp_path)
    enter(tmp_path)


def test_another_process_is_refused_after_the_lock_file_was_removed(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        (tmp_path / LOCK).unlink()
        with pytest.raises(UserError, match="another process is writing to this run folder"):
            enter(tmp_path)
        first.communicate("\n")
        assert first.returncode == 0
    enter(tmp_path)


@pytest.mark.parametrize("replaced", ["moved", "by a link"])
def test_a_folder_that_replaced_the_locked_one_is_not_written(
    tmp_path: Path, replaced: str
) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    with exclusive_lock(folder) as lock:
        lock.verify()
        folder.rename(tmp_path / "away")
        lock.verify()  # the folder is gone: any write fails
        if replaced == "moved":
            other.rename(folder)
        else:
            folder.symlink_to(other)
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


def test_a_removed_lock_is_acquired_again_where_folders_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_folder_locks(monkeypatch)
    with exclusive_lock(tmp_path) as lock:
        (tmp_path / LOCK).unlink()
        lock.verify()
        with pytest.raises(UserError, match=f"process {os.getpid()} is writing"):
            enter(tmp_path)
    enter(tmp_path)


def test_one_of_two_processes_admitted_by_a_removed_lock_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_folder_locks(monkeypatch)
    with exclusive_lock(tmp_path) as first:
        (tmp_path / LOCK).unlink()
        with exclusive_lock(tmp_path) as second:
            with pytest.raises(RunError, match=r"lock: was removed or replaced") as caught:
                first.verify()
            assert "\n" not in str(caught.value)
            second.verify()


def test_a_lock_file_that_its_holder_removes_is_not_acquired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes would no longer find the file that this one has opened and locked."""
    without_folder_locks(monkeypatch)
    try_lock = run_lock._try_lock

    def late(descriptor: int, exclusive: bool) -> None:
        monkeypatch.setattr(run_lock, "_try_lock", try_lock)
        (tmp_path / LOCK).unlink()
        try_lock(descriptor, exclusive)

    monkeypatch.setattr(run_lock, "_try_lock", late)
    with pytest.raises(UserError, match="was removed by another process just now"):
        enter(tmp_path)
    monkeypatch.setattr(run_lock, "_try_lock", late)
    with closing(SharedLock(tmp_path / LOCK)), pytest.raises(UserError, match="another process is"):
        enter(tmp_path)


def test_an_upgrade_to_exclusive_waits_for_other_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (SharedLock(tmp_path / LOCK) for _ in range(2))
    waited = []

    def sleep(_: float) -> None:
        waited.append(second.exclusive)
        first.close()

    monkeypatch.setattr(run_lock.time, "sleep", sleep)
    with closing(second):
        second.upgrade()
        assert second.exclusive
        assert waited == [False]


def test_a_lock_that_cannot_be_shared_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = set()

    def lock(descriptor: int, _exclusive: bool) -> None:  # like msvcrt, also within one process
        if held:
            raise PermissionError
        held.add(descriptor)

    def sleep(_: float) -> None:
        raise AssertionError("waits")

    monkeypatch.setattr(run_lock, "_CAN_SHARE", False)
    monkeypatch.setattr(run_lock, "_try_lock", lock)
    monkeypatch.setattr(run_lock.time, "sleep", sleep)
    with closing(SharedLock(tmp_path / LOCK)) as shared:
        assert shared.exclusive
        shared.upgrade()
        assert shared.exclusive


def test_another_file_with_the_name_of_the_lock_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("precious")
    with pytest.raises(UserError, match="lock is not a lock file"):
        enter(tmp_path)
    assert (tmp_path / LOCK).read_text() == "precious"
    (tmp_path / LOCK).write_text("4711\n")  # left by a killed process
    enter(tmp_path)


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


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser writes everywhere")
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

    monkeypatch.setattr(run_lock, "_try_lock", no_locks)
    enter(tmp_path)
    assert "cannot be locked (No locks available)" in capsys.readouterr().err
