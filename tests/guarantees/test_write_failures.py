"""Full disks and deleted folders: one clear error line, and the saved state is intact."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from cases.tiers import one_quick
from cases.toy_text import write_small_corpus
from cases.trainings import after_steps

from seq2seq.__main__ import main
from seq2seq.runs.layout import (
    BEST,
    CONFIG,
    LAST,
    LOG,
    METRICS,
    PREVIOUS,
    SAMPLES,
    TENSORBOARD,
    TIMING,
)
from seq2seq.runs.tensor_file import read_header, read_tensors
from seq2seq.runtime.files import PART_SUFFIX, atomic_write
from seq2seq.training import loop as training
from seq2seq.training.reporting import RunReporter

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (
    "seed=2",  # its second validation is better than its first: best.safetensors is written again
    "training.max_steps=6",
    "training.validate_every=2",
    "training.log_every=1",
)
TEXTS = (METRICS, SAMPLES, TIMING, LOG)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a finished run in the folder beside it; tests must not change either."""
    corpus = write_small_corpus(tmp_path_factory.mktemp("corpus"), short=True)
    assert train(corpus, corpus.parent / "finished") == 0
    return corpus


def train(corpus: Path, run: Path, *options: str) -> int:
    return main(["train", str(corpus), *SETTINGS, f"run_dir={run}", "--device", "cpu", *options])


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the last line on stderr: the only one about the failure."""
    err = capsys.readouterr().err
    assert "Traceback" not in err
    *earlier_lines, last = err.splitlines()
    assert not [line for line in earlier_lines if "error" in line]
    assert last.startswith("seq2seq: error: ")
    return last


def assert_intact(run: Path, *names: str) -> None:
    for name in names:
        read_tensors(run / name)
    assert not list(run.rglob(f"*{PART_SUFFIX}"))


def assert_same_state(run: Path, expected_run: Path) -> None:
    assert (run / METRICS).read_bytes() == (expected_run / METRICS).read_bytes()
    assert (run / BEST).read_bytes() == (expected_run / BEST).read_bytes()
    digests = [read_header(folder / LAST)[0]["tensors"] for folder in (run, expected_run)]
    assert digests[0] == digests[1]


# ----------------------------------------------------------------------------------- power failure


def test_metrics_are_on_disk_before_the_checkpoint_that_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics that are not synced before the checkpoint is renamed may be lost."""
    run = tmp_path / "run"
    sync = os.fsync
    rename = Path.replace
    synced: dict[int, bytes] = {}  # inode -> content
    counted: list[int] = []

    def noted_sync(descriptor: int) -> None:
        sync(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            for path in (run / METRICS, run / f"{METRICS}{PART_SUFFIX}"):
                if path.exists() and path.stat().st_ino == status.st_ino:
                    synced[status.st_ino] = path.read_bytes()

    def noted_rename(self: Path, target: Path) -> Path:
        if target.name == LAST and (run / METRICS).exists():
            content = (run / METRICS).read_bytes()
            assert synced.get((run / METRICS).stat().st_ino) == content
            counted.append(content.count(b"\n"))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    corpus = write_small_corpus(tmp_path)
    assert train(corpus, run) == 0
    assert counted == [3, 6, 9, 9]  # at each validation, every two steps, and at the end


def test_the_folder_is_synced_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    rename = Path.replace

    def noted_sync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    def noted_rename(self: Path, target: Path) -> Path:
        events.append("name")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    atomic_write(tmp_path / "a", b"new")
    assert events == ["file", "name", "folder"]


# ---------------------------------------------------------------------------------- the run folder


class FullDisk:
    """A file on a disk that has become full."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, text: str) -> int:
        return self.file.write(text)

    def flush(self) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        self.file.close()
        raise OSError(28, "No space left on device")


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEXTS)
def test_a_log_that_cannot_be_written_ends_training_with_one_line(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    run = tmp_path / "run"
    reporters: list[RunReporter] = []
    enter = RunReporter.__enter__
    monkeypatch.setattr(
        RunReporter, "__enter__", lambda self: reporters.append(self) or enter(self)
    )

    def fill() -> None:
        files = reporters[0]._files._files
        files[name] = FullDisk(files[name])  # type: ignore[assignment]

    with monkeypatch.context() as patched:
        patched.setattr(training, "train_step", after_steps(3, fill))
        assert train(finished, run) == 1
    error = error_of(capsys)
    assert f"{run / name}: cannot be written (No space left on device)" in error
    assert f"{LAST} is intact by checksum: training with" in error
    assert_intact(run, LAST, PREVIOUS, BEST)
    assert train(finished, run, "--resume") == 0
    assert_same_state(run, finished.parent / "finished")


class FullBoard:
    """A TensorBoard writer that reports a failure at a later call."""

    def __init__(self, room: int) -> None:
        self.room = room

    def add_scalar(self, *_: object, **_options: object) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(28, "No space left on device")

    add_text = add_image = add_summary = add_scalar

    @property
    def file_writer(self) -> "FullBoard":
        return self

    def close(self) -> None:
        if self.room < 0:
            raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("tensorboard")
@pytest.mark.parametrize("room", [2, 9, 18])
def test_tensorboard_that_cannot_be_written_ends_training_with_one_line(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    room: int,
) -> None:
    """The disk fills at metrics or samples."""
    monkeypatch.setattr("seq2seq.training.reporting.open_board", lambda _: (FullBoard(room), ""))
    assert train(finished, tmp_path / "run") == 1
    error = error_of(capsys)
    assert f"{tmp_path / 'run' / TENSORBOARD}: cannot be written (No space left on dev" in error
    assert_intact(tmp_path / "run", LAST)


@pytest.mark.thorough
def test_tensorboard_itself_fails_without_a_traceback(tmp_path: Path) -> None:
    """It writes in its own thread, where a failure would print a traceback."""
    pytest.importorskip("tensorboard")
    program = f"""
import resource, sys, time
from pathlib import Path
from seq2seq.runtime.errors import RunError
from seq2seq.training.reporting import RunReporter
try:
    with RunReporter(Path({str(tmp_path)!r}), 0, None) as reporter:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        for step in range(500):
            reporter._plot(step, {{"train_loss": 1.0}})
            time.sleep(0.001)
except RunError as error:
    print(error)
"""
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "Traceback" not in process.stderr
    assert f"{tmp_path / TENSORBOARD}: cannot be written (File too large)" in process.stdout


@one_quick("failing", ["os.fsync", "pathlib.Path.replace"])
@one_quick("at", [1, 4])
def test_a_checkpoint_that_cannot_be_written_ends_training_with_one_line(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    at: int,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        fill = after_steps(at, lambda: patched.setattr(failing, full))
        patched.setattr(training, "train_step", fill)
        assert train(finished, run) == 1
    error = error_of(capsys)
    assert "No space left on device" in error
    assert f"{LAST} is intact by checksum" in error
    assert read_header(run / LAST)[0]["progress"]["step"] == {1: 0, 4: 2}[at]
    assert_intact(run, LAST)
    assert train(finished, run, "--resume") == 0
    assert_same_state(run, finished.parent / "finished")


def test_a_folder_that_vanished_ends_training_with_one_line(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(training, "train_step", after_steps(3, lambda: shutil.rmtree(run)))
    assert train(finished, run) == 1
    assert error_of(capsys).endswith(f"The run folder {run} does not exist")
    assert not run.exists()


@pytest.mark.thorough
def test_training_continues_without_its_config_file(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    vanish = after_steps(3, lambda: (run / CONFIG).unlink())
    monkeypatch.setattr(training, "train_step", vanish)
    assert train(finished, run) == 0
    assert_same_state(run, finished.parent / "finished")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_folder_made_read_only_ends_training_with_one_line(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(training, "train_step", after_steps(3, lambda: run.chmod(0o555)))
        assert train(finished, run) == 1
    assert "Permission denied" in error_of(capsys)
    run.chmod(0o755)
    assert_intact(run, LAST, BEST)
    run.chmod(0o555)
    assert train(finished, run, "--resume") == 2
    assert "Permission denied" in error_of(capsys)
    run.chmod(0o755)
    assert train(finished, run, "--resume") == 0
    assert_same_state(run, finished.parent / "finished")


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [100_000, 1_000])
def test_a_limit_on_file_sizes_is_reported_in_one_line(
    finished: Path, tmp_path: Path, limit: int
) -> None:
    """Run the command in a process with a limit on the size of its files."""
    run = tmp_path / "run"
    program = (
        "import resource, sys\n"
        "from seq2seq.__main__ import main\n"
        "sys.modules['torch.utils.tensorboard'] = None\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = ["train", finished, *SETTINGS, f"run_dir={run}", "--device", "cpu"]
    process = subprocess.run(
        [sys.executable, "-c", program, *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert process.returncode == 1, process.stderr
    assert "Traceback" not in process.stderr
    assert process.stderr.count("error:") == 1
    assert "File too large" in process.stderr.splitlines()[-1]
    assert not list(run.rglob(f"*{PART_SUFFIX}"))
    if (run / LAST).exists():  # the first state is small: it has no moments
        assert read_header(run / LAST)[0]["progress"]["step"] == 0
        read_tensors(run / LAST)


# ------------------------------------------------------------------------------------------ output

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


@needs_full
@pytest.mark.parametrize(
    "words",
    [
        "translate -m RUN -i SRC -o FULL",
        "evaluate -m RUN -i SRC -r TGT -o FULL",
        "evaluate --hyp TGT -r TGT --json FULL",
        "attention -m RUN -i SRC -o LINK.json",
    ],
)
def test_output_to_a_full_disk_fails_with_one_line(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(FULL)
    here = finished.parent
    names = {"RUN": here / "finished", "SRC": here / "test.src", "TGT": here / "test.tgt"}
    names |= {"FULL": FULL, "LINK.json": link}
    assert main([str(names.get(word, word)) for word in words.split()]) == 1
    assert (
        error_of(capsys) == "seq2seq: error: /dev/full: cannot be written (No space left on device)"
    )
    assert FULL.is_char_device()


@needs_full
@pytest.mark.thorough
@pytest.mark.parametrize("words", ["translate -m RUN -i SRC", "evaluate --hyp TGT -r TGT"])
def test_a_full_stdout_fails_with_one_line(finished: Path, words: str) -> None:
    for name, path in (("RUN", "finished"), ("SRC", "test.src"), ("TGT", "test.tgt")):
        words = words.replace(name, str(finished.parent / path))
    with FULL.open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "seq2seq", *words.split()],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    expected = "seq2seq: error: standard output: cannot be written (No space left on device)\n"
    errors = [line for line in process.stderr.splitlines(True) if not line.startswith("note: ")]
    assert (process.returncode, "".join(errors)) == (1, expected)


def test_output_through_a_link_goes_to_the_file_behind_it(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    real = tmp_path / "folder" / "real"
    link.symlink_to(real)
    tgt = str(finished.parent / "test.tgt")
    assert main(["evaluate", "--hyp", tgt, "-r", tgt, "--json", str(link)]) == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["bleu"]["score"] > 99
