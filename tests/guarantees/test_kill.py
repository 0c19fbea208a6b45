"""kill -9 at any time: the resumed run ends bitwise as an uninterrupted one.

SEQ2SEQ_KILLS is the number of kills (6), SEQ2SEQ_KILL_SEED the seed of their times (1).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from cases.toy_text import write_small_corpus

from seq2seq.runs.layout import BEST, CONFIG, LAST, METRICS, PREVIOUS, snapshots
from seq2seq.runs.run_folder import resumable
from seq2seq.runs.tensor_file import read_header, read_tensors
from seq2seq.runtime.files import PART_SUFFIX

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("SEQ2SEQ_KILLS", "6"))
SEED = int(os.environ.get("SEQ2SEQ_KILL_SEED", "1"))
MAX_KILLS_PER_RUN = 4  # maximum of one run, which is then trained to its end
SETTINGS = (
    "model.decoder=luong",
    "vocabulary.type=bpe",
    "vocabulary.sampling=0.2",
    "training.average=0.9",
    "decoding.max_length=6",
    "training.max_steps=8",
    "training.keep=2",
    "training.validate_every=2",
    "training.log_every=1",
)
CHECKPOINT = "step-6.safetensors"
WRITTEN = (LAST, LAST, LAST, BEST, BEST, CHECKPOINT, METRICS, CONFIG, "vocabulary/joint.model")
# Reads one call per line, runs each in its own process, and prints its PID and then its exit code.
# If the call has a number n, the process kills itself at its n-th file operation.
SERVER = """
import json, os, signal, sys
from pathlib import Path
sys.modules["torch.utils.tensorboard"] = None
import seq2seq.training.loop
from seq2seq.__main__ import main

def counted(function, left):
    def call(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

main(sys.argv[1:])  # warm-up, inherited by the forks
print("ready", flush=True)
for line in sys.stdin:
    arguments, log, operation = json.loads(line)
    number = os.fork()
    if number == 0:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        if operation:
            left = [operation]
            os.fsync = counted(os.fsync, left)
            os.ftruncate = counted(os.ftruncate, left)
            for name in ("open", "replace", "unlink", "mkdir"):
                setattr(Path, name, counted(getattr(Path, name), left))
        os._exit(main(arguments))
    print(number, flush=True)
    sys.stdin.readline()  # its PID is not reused before
    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)
"""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        sys.platform == "darwin",  # Apple's BLAS does not survive a fork
        reason="processes cannot be forked here",
    ),
]


class Trainings:
    """Server that forks trainings of one config, so that torch is imported only once."""

    def __init__(self, corpus: Path) -> None:
        self.corpus = corpus
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *self.command(corpus.parent / "warm-up")],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.read_line() == "ready"

    def command(self, run: Path) -> list[str]:
        return ["train", str(self.corpus), *SETTINGS, f"run_dir={run}", "--device", "cpu"]

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write_line(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def start(self, run: Path, operation: int = 0) -> int:
        """Start or resume a training; return the PID of its process."""
        started = any((run / name).exists() for name in (CONFIG, LAST, PREVIOUS))
        call = [[*self.command(run), *["--resume"] * started], str(log_of(run)), operation]
        self.write_line(json.dumps(call))
        return int(self.read_line())

    def wait(self) -> int:
        """Wait for the process; return its exit code, or minus its signal."""
        self.write_line("")
        return int(self.read_line())


def log_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")


def kill_by_clock(trainings: Trainings, run: Path, generator: random.Random, length: float) -> int:
    """Kill at a random time within the duration of a complete run."""
    pid = trainings.start(run)
    time.sleep(generator.uniform(0, length))
    os.kill(pid, signal.SIGKILL)  # it exists until `wait` reaps it
    return trainings.wait()


def kill_in_a_write(trainings: Trainings, run: Path, generator: random.Random) -> int:
    """Kill while a file is being written, or just after."""
    path = run / f"{generator.choice(WRITTEN)}{PART_SUFFIX}"
    skipped = generator.randrange(3)
    delay = generator.choice([0, generator.uniform(0, 0.02)])
    pid = trainings.start(run)
    existed = False
    until = time.monotonic() + 90
    while time.monotonic() < until:
        if path.exists() and not existed:
            skipped -= 1
            if skipped < 0:
                time.sleep(delay)
                os.kill(pid, signal.SIGKILL)
                break
        existed = path.exists()
        if has_ended(pid):
            break
    return trainings.wait()


def has_ended(pid: int) -> bool:
    """Return whether the process is a zombie; always False without /proc."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and ") Z " in status.read_text()


def assert_intact(run: Path) -> None:
    """Check that every file is complete after a kill."""
    for path in [*(run / name for name in (LAST, PREVIOUS, BEST)), *snapshots(run)]:
        if path.exists():
            read_tensors(path)
    if (run / BEST).exists():
        assert resumable(run) is not None


def assert_same_run(run: Path, expected: Path) -> None:
    """Check that all that the seed determines is bitwise equal, and no other file is left."""
    log = log_of(run).read_text()
    assert (run / METRICS).read_text() == (expected / METRICS).read_text(), log
    for path in (expected / BEST, *snapshots(expected)):
        assert (run / path.name).read_bytes() == path.read_bytes(), log
    states = [read_tensors(folder / LAST) for folder in (run, expected)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0]), log
    headers = [read_header(folder / LAST)[0] for folder in (run, expected)]
    for header in headers:
        del header["seconds"]
    assert headers[0] == headers[1]
    names = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (run, expected)]
    assert names[0] == names[1]


def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    trainings = Trainings(write_small_corpus(tmp_path, short=True))
    complete = tmp_path / "complete"
    generator = random.Random(SEED)
    start = time.monotonic()
    trainings.start(complete)
    assert trainings.wait() == 0, log_of(complete).read_text()
    length = time.monotonic() - start
    kills: Counter[str] = Counter()
    runs = 0
    try:
        while kills.total() < KILLS:
            runs += 1
            kills += kill_and_resume(
                trainings, tmp_path / f"run{runs}", generator, length, KILLS - kills.total()
            )
            assert_same_run(tmp_path / f"run{runs}", complete)
    finally:
        trainings.process.kill()
        trainings.process.communicate()
    print(f"{kills.total()} kills of {runs} runs, seed {SEED}: {dict(kills)}")


def kill_and_resume(
    trainings: Trainings, run: Path, generator: random.Random, length: float, max_kills: int
) -> Counter[str]:
    """Start and kill a run repeatedly, then let it end; return the counts of kills by method."""
    kills: Counter[str] = Counter()
    while kills.total() < min(max_kills, MAX_KILLS_PER_RUN):
        method = generator.choice(["by the clock", *["in a write"] * 2, "at an operation"])
        if method == "by the clock":
            code = kill_by_clock(trainings, run, generator, length)
        elif method == "in a write":
            code = kill_in_a_write(trainings, run, generator)
        else:
            trainings.start(run, generator.randint(1, 90))
            code = trainings.wait()
        assert code in (0, -signal.SIGKILL), log_of(run).read_text()
        assert_intact(run)
        if code == 0:
            return kills
        kills[method] += 1
    trainings.start(run)
    assert trainings.wait() == 0, log_of(run).read_text()
    return kills
