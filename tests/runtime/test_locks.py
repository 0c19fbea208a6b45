"""One process at a time in a run folder, and nothing to clean up after it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from seq2seq.runtime import locks as run_lock
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.locks import LOCK, SharedLock, exclusive_lock

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, in the folder until it is told to go."""
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


def test_the_second_process_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with holder(tmp_path) as first:
        for _ in range(2):  # being refused changes nothing
            with pytest.raises(UserError) as caught:
                enter(tmp_path)
            assert f"{tmp_path}: process {first.pid} is training in this run" in str(caught.value)
            assert "\n" not in str(caught.value)
        first.communicate("\n")
        assert first.returncode == 0
    enter(tmp_path)
    assert (tmp_path / LOCK).read_bytes() == b""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as first:
        first.kill()
        first.wait()
    assert (tmp_path / "run" / LOCK).read_text() == f"{first.pid}\n"  # and that hinders nobody
    with exclusive_lock(tmp_path / "run"):
        assert (tmp_path / "run" / LOCK).read_text() == f"{os.getpid()}\n"


def test_within_one_process_it_counts_as_well(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path), pytest.raises(UserError, match=f"process {os.getpid()} "):
        enter(tmp_path)


def test_a_folder_made_for_nothing_is_taken_back(tmp_path: Path) -> None:
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
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", LOCK]
    with pytest.raises(UserError, match="no"):
        refuse()  # this time it was there
    assert (folder / "config.yaml").exists()


def test_a_lock_that_its_holder_removes_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened it before holds a file that others no longer find."""
    take = run_lock._try_lock

    def late(descriptor: int, exclusive: bool) -> None:
        monkeypatch.setattr(run_lock, "_try_lock", take)
        (tmp_path / LOCK).unlink()
        take(descriptor, exclusive)

    monkeypatch.setattr(run_lock, "_try_lock", late)
    with pytest.raises(UserError, match="was removed by another process just now"):
        enter(tmp_path)
    monkeypatch.setattr(run_lock, "_try_lock", late)
    with closing(SharedLock(tmp_path / LOCK)), pytest.raises(UserError, match="another process is"):
        enter(tmp_path)


def test_many_read_and_one_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_of_that_name_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("precious")
    with pytest.raises(UserError, match="lock is not a lock file"):
        enter(tmp_path)
    assert (tmp_path / LOCK).read_text() == "precious"
    (tmp_path / LOCK).write_text("4711\n")  # of a process that was killed
    enter(tmp_path)


def test_a_link_planted_as_the_lock_is_not_written_through(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(mine)
    with pytest.raises(UserError, match=r"run_dir: .*lock"):
        enter(tmp_path / "run")
    assert mine.read_text() == "precious"


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"run_dir: .* cannot be written \(.*file"):
        enter(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(UserError, match=r"cannot be written \(.*Permission denied"):
            enter(tmp_path)
    finally:
        tmp_path.chmod(0o755)


def test_where_files_cannot_be_locked_training_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(*_: object, **__: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(run_lock, "_try_lock", no_locks)
    enter(tmp_path)
    assert "cannot be locked (No locks available)" in capsys.readouterr().err
