"""kill -9 at any moment: the run goes on, and ends to the bit as one that nobody disturbed.

SEQ2SEQ_KILLS says how many times to kill (6), SEQ2SEQ_KILL_SEED when (1).
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
from conftest import write_small_corpus

from seq2seq.runs.layout import BEST, CONFIG, LAST, METRICS, PREVIOUS, snapshots
from seq2seq.runs.tensor_file import read_header, read_tensors
from seq2seq.runs.training_state import resumable
from seq2seq.runtime.files import PART_SUFFIX

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("SEQ2SEQ_KILLS", "6"))
SEED = int(os.environ.get("SEQ2SEQ_KILL_SEED", "1"))
MOST_KILLS = 4  # of one run; then it may end
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
SNAPSHOT = "step-6.safetensors"
WRITTEN = (LAST, LAST, LAST, BEST, BEST, SNAPSHOT, METRICS, CONFIG, "vocabulary/joint.model")
# Reads a call a line, runs each in a process of its own and tells its number, then how it ended. At
# the n-th operation on a file, if n is given, the process kills itself.
SERVER = """
import json, os, signal, sys
from pathlib import Path
sys.modules["torch.utils.tensorboard"] = None
import seq2seq.training.loop
from seq2seq.cli.main import main

def counted(function, left):
    def call(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

main(sys.argv[1:])  # what is slow the first time is then inherited
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
    sys.stdin.readline()  # until then its number is nobody else's
    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(os, "fork") or sys.platform == "darwin",  # Apple's products do not outlive one
        reason="processes cannot be forked here",
    ),
]


class Trainings:
    """Starts trainings of one config, one after the other, without importing torch each time."""

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
        assert self.told() == "ready"

    def command(self, run: Path) -> list[str]:
        return ["train", str(self.corpus), *SETTINGS, f"run_dir={run}", "--device", "cpu"]

    def told(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def start(self, run: Path, operation: int = 0) -> int:
        """Begin to train, or go on as the messages say; returns the number of the process."""
        there = any((run / name).exists() for name in (CONFIG, LAST, PREVIOUS))
        call = [[*self.command(run), *["--resume"] * there], str(log_of(run)), operation]
        self.tell(json.dumps(call))
        return int(self.told())

    def ended(self) -> int:
        """Wait; returns the exit code, or minus the signal."""
        self.tell("")
        return int(self.told())


def log_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")


def kill_by_clock(trainings: Trainings, run: Path, generator: random.Random, length: float) -> int:
    """Kill at a moment of the time that a whole run takes."""
    number = trainings.start(run)
    time.sleep(generator.uniform(0, length))
    os.kill(number, signal.SIGKILL)  # it is not waited for before `ended`
    return trainings.ended()


def kill_in_a_write(trainings: Trainings, run: Path, generator: random.Random) -> int:
    """Kill while a file is being written, or just after."""
    path = run / f"{generator.choice(WRITTEN)}{PART_SUFFIX}"
    skipped, delay = generator.randrange(3), generator.choice([0, generator.uniform(0, 0.02)])
    number = trainings.start(run)
    there = False
    until = time.monotonic() + 90
    while time.monotonic() < until:
        if path.exists() and not there:
            skipped -= 1
            if skipped < 0:
                time.sleep(delay)
                os.kill(number, signal.SIGKILL)
                break
        there = path.exists()
        if has_ended(number):
            break
    return trainings.ended()


def has_ended(number: int) -> bool:
    """Return whether the process is a zombie; without /proc, wait a while instead."""
    status = Path(f"/proc/{number}/stat")
    return status.exists() and ") Z " in status.read_text()


def assert_whole(run: Path) -> None:
    """Every file is complete after a kill."""
    for path in [*(run / name for name in (LAST, PREVIOUS, BEST)), *snapshots(run)]:
        if path.exists():
            read_tensors(path)
    if (run / BEST).exists():
        assert resumable(run) is not None


def assert_same_run(run: Path, whole: Path) -> None:
    """Bit for bit all that the seed determines, and nothing left over."""
    log = log_of(run).read_text()
    assert (run / METRICS).read_text() == (whole / METRICS).read_text(), log
    for path in (whole / BEST, *snapshots(whole)):
        assert (run / path.name).read_bytes() == path.read_bytes(), log
    states = [read_tensors(each / LAST) for each in (run, whole)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0]), log
    headers = [read_header(each / LAST)[0] for each in (run, whole)]
    for header in headers:
        del header["seconds"]
    assert headers[0] == headers[1]
    names = [{path.relative_to(each) for path in each.rglob("*")} for each in (run, whole)]
    assert names[0] == names[1]


def test_a_killed_run_ends_as_one_that_nobody_disturbed(tmp_path: Path) -> None:
    trainings = Trainings(write_small_corpus(tmp_path))
    whole, generator = tmp_path / "whole", random.Random(SEED)
    began = time.monotonic()
    trainings.start(whole)
    assert trainings.ended() == 0, log_of(whole).read_text()
    length = time.monotonic() - began
    kills: Counter[str] = Counter()
    runs = 0
    try:
        while kills.total() < KILLS:
            runs += 1
            kills += killed_until_it_ends(
                trainings, tmp_path / f"run{runs}", generator, length, KILLS - kills.total()
            )
            assert_same_run(tmp_path / f"run{runs}", whole)
    finally:
        trainings.process.kill()
        trainings.process.communicate()
    print(f"{kills.total()} kills of {runs} runs, seed {SEED}: {dict(kills)}")


def killed_until_it_ends(
    trainings: Trainings, run: Path, generator: random.Random, length: float, most: int
) -> Counter[str]:
    """Start a run and kill it, again and again, until it has ended; returns how it was killed."""
    kills: Counter[str] = Counter()
    while kills.total() < min(most, MOST_KILLS):
        way = generator.choice(["by the clock", *["in a write"] * 2, "at an operation"])
        if way == "by the clock":
            code = kill_by_clock(trainings, run, generator, length)
        elif way == "in a write":
            code = kill_in_a_write(trainings, run, generator)
        else:
            trainings.start(run, generator.randint(1, 90))
            code = trainings.ended()
        assert code in (0, -signal.SIGKILL), log_of(run).read_text()
        assert_whole(run)
        if code == 0:
            return kills
        kills[way] += 1
    trainings.start(run)
    assert trainings.ended() == 0, log_of(run).read_text()
    return kills
