"""Distributed training equals training in one process; a failure or signal ends all ranks.

The processes are forked from one that has imported torch, and set up as torchrun would.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cases.environment import project_environment
from cases.tiers import one_quick
from cases.toy_text import write_small_corpus
from torch import Tensor

from seq2seq.__main__ import main
from seq2seq.runs.layout import BEST, LAST, LOG, METRICS
from seq2seq.runs.tensor_file import read_header, read_tensors
from seq2seq.runtime import process_group as ranks
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.process_group import ProcessGroup, distributed_errors, process_group
from seq2seq.training.stopping import StopSync

ROOT = Path(__file__).resolve().parents[2]
SIGKILL = signal.SIGKILL
# Reads one call per line (arguments, number of processes, fault) and prints the exit codes.
# Each process writes the checksum of its weights after every step to a file beside its output.
SERVER = """
import dataclasses, hashlib, json, os, signal, sys, time
from pathlib import Path
sys.modules["torch.utils.tensorboard"] = None
import torch
import torch.distributed
from seq2seq.runtime.process_group import process_group
from seq2seq.runs import graphs
from seq2seq.training import preparation
from seq2seq.training import loop as training
from seq2seq.training import step as step_module
from seq2seq.training import validation
from seq2seq.training.loss import Losses
from seq2seq.__main__ import main

torch.set_num_threads(1)
taken, scored, read = training.train_step, validation.score_by, preparation.valid_text
loss_of = step_module.batch_loss

def watched(log, inject):
    def step(run, batches, rate):
        inject(run)
        result = taken(run, batches, rate)
        digest = hashlib.sha256()
        for weight in run.model.parameters():
            digest.update(weight.detach().numpy().tobytes())
        with open(f"{log}.weights", "a") as file:
            print(digest.hexdigest(), file=file)
        return result
    return step

def rank_1_ends(ending):
    def inject(run):
        if run.run.group.rank == 1 and run.progress.step == 5:
            ending()
    return inject

def raising():
    raise OSError(5, "the disk of rank 1", "here")

def nan_loss(*arguments):
    return Losses(*(each * float("nan") for each in loss_of(*arguments)))

def spoiled(run):
    nan = run.run.group.rank == 1 and run.progress.step == 3
    step_module.batch_loss = nan_loss if nan else loss_of

def little_memory(run):
    def loss(model, batch, *weights):
        if run.run.group.rank == 1 and batch.tgt_in.numel() > 100:
            raise RuntimeError("can't allocate memory")
        return loss_of(model, batch, *weights)
    step_module.batch_loss = loss

def first_is_killed(run):
    if run.run.group.rank == 0 and run.progress.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)

FAULTS = {
    "none": lambda run: None,
    "kill": rank_1_ends(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "term": rank_1_ends(lambda: os.kill(os.getpid(), signal.SIGTERM)),
    "interrupt": rank_1_ends(lambda: os.kill(os.getpid(), signal.SIGINT)),
    "error": rank_1_ends(raising),
    "first killed": first_is_killed,
    "nan": spoiled,
    "memory": little_memory,
    "other clock": lambda run: None,
    "other data": lambda run: None,
    "other config": lambda run: None,
}

def check_exchange():
    with process_group() as group:
        number, size = group.rank, group.size
        assert size > 1 and torch.distributed.is_initialized()
        for length in (0, 1, 2, 7):
            lines = [f"\\u0930{n}\\n" * n for n in range(length)]
            assert group.gather_shares(group.share(lines)) == lines
        assert group.gather([number, 0.5]) == [[n, 0.5] for n in range(size)]
        assert group.sum([number, 1]) == [size * (size - 1) / 2, size]
        tensors = [torch.full((2, 3), float(number)), torch.tensor(1.5)]
        group.add_up(tensors)
        assert tensors[0].unique().tolist() == [size * (size - 1) / 2]
        assert tensors[1] == 1.5 * size
    assert not torch.distributed.is_initialized()
    return 0

def run(number, call):
    if call["ranks"] > 1:
        os.environ |= dict(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(call["ranks"]),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(call["port"]),
                           TORCHELASTIC_USE_AGENT_STORE="True")
    log = f"{call['log']}.{number}"
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if call["fault"] == "exchange":
        return check_exchange()
    training.train_step = watched(log, FAULTS[call["fault"]])
    if call["fault"] != "none":
        graphs.store_engine = lambda run: None
    if call["fault"] == "other clock" and number == 1:
        true = time.monotonic
        time.monotonic = lambda: 1000 * true()
    if call["fault"] == "other data" and number == 1:
        def fewer(*arguments):
            valid = read(*arguments)
            return dataclasses.replace(valid, src=valid.src[1:], tgt=valid.tgt[1:])
        preparation.valid_text = fewer
    def score(key, hypotheses, *references):
        Path(f"{log}.hypotheses").write_text(json.dumps(hypotheses))
        return scored(key, hypotheses, *references)
    validation.score_by = score
    other = call["fault"] == "other config" and number == 1
    return main(call["arguments"] + ["training.learning_rate=0.3"] * other)

main(sys.argv[1:])  # warm-up, inherited by the forks
print("ready", flush=True)
for line in sys.stdin:
    call = json.loads(line)
    # Keep the store here, as torchrun does, so that ranks can report one that is gone.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    call["port"] = store.port
    numbers = []
    for number in range(call["ranks"]):
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = run(number, call)
            except BaseException:
                import traceback
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        numbers.append(child)
    codes, until = {}, time.monotonic() + call["seconds"]
    while len(codes) < len(numbers):
        for child in set(numbers) - codes.keys():
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    print(json.dumps([codes[child] for child in numbers]), flush=True)
"""
SMALL = ("training.max_steps=8", "training.validate_every=4", "training.log_every=1")
EXACT = (*SMALL, "model.dropout=0", "training.optimizer=sgd", "training.learning_rate=0.5")
EVENTFUL = (*SMALL, "vocabulary.sampling=0.2", "training.average=0.9", "training.accumulate=2")

pytestmark = pytest.mark.skipif(
    sys.platform == "darwin",  # Apple's BLAS does not survive a fork
    reason="processes cannot be forked here",
)


class TrainingResult(NamedTuple):
    """A finished training of several processes."""

    folder: Path
    codes: list[int]  # exit code of each rank, or minus its signal
    stderr: list[str]  # text printed by each rank
    log: Path

    def weights(self) -> list[list[str]]:
        """Return the checksums of each rank's weights after its steps."""
        return [
            Path(f"{self.log}.{n}.weights").read_text().splitlines() for n in range(len(self.codes))
        ]

    def errors(self) -> list[str]:
        return [line for text in self.stderr for line in text.splitlines() if "error: " in line]


class Trainings:
    """Server that forks trainings of one config in one or more processes."""

    def __init__(self, corpus: Path) -> None:
        self.corpus, self.calls = corpus, 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, *self.command("warm-up"), "training.max_steps=1"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def command(self, run: str) -> list[str]:
        folder = self.corpus.parent / run
        return ["train", str(self.corpus), f"run_dir={folder}", "--device=cpu"]

    def __call__(
        self,
        run: str,
        processes: int,
        overrides: Sequence[str] = EVENTFUL,
        *flags: str,
        fault: str = "none",
        seconds: float = 600,
    ) -> TrainingResult:
        """Train; kill each process that has not ended after `seconds`."""
        self.calls += 1
        folder = self.corpus.parent / run
        log = self.corpus.parent / f"{run}.{self.calls}"
        call = {
            "arguments": [*self.command(run), *overrides, *flags],
            "ranks": processes,
            "fault": fault,
            "log": str(log),
            "seconds": seconds,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        codes = json.loads(self.process.stdout.readline())
        stderr = [Path(f"{log}.{n}").read_text() for n in range(processes)]
        return TrainingResult(folder, codes, stderr, log)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    started = Trainings(write_small_corpus(tmp_path_factory.mktemp("ranks"), short=True))
    yield started
    started.process.kill()
    started.process.communicate()


@pytest.fixture(scope="module")
def uninterrupted(trainings: Trainings) -> TrainingResult:
    """An eventful training of two processes without a fault."""
    result = trainings("uninterrupted", 2)
    assert result.codes == [0, 0], result.stderr
    return result


def metrics_of(result: TrainingResult) -> list[dict[str, float]]:
    return [json.loads(line) for line in (result.folder / METRICS).read_text().splitlines()]


def weights_of(result: TrainingResult) -> dict[str, Tensor]:
    return read_tensors(result.folder / LAST)


def assert_near(result: TrainingResult, expected: TrainingResult) -> None:
    """Check that two runs are equal except for rounding."""
    assert [*result.codes, *expected.codes] == [0] * len(result.codes + expected.codes), (
        result.stderr
    )
    lines = metrics_of(result)
    expected_lines = metrics_of(expected)
    assert [line.keys() for line in lines] == [line.keys() for line in expected_lines]
    for line, right in zip(lines, expected_lines, strict=True):
        assert line == pytest.approx(right, rel=1e-5)
    tensors = weights_of(expected)
    for name, tensor in weights_of(result).items():
        torch.testing.assert_close(tensor, tensors[name], rtol=1e-4, atol=1e-5)
    progress, right = (
        read_header(training.folder / LAST)[0]["progress"] for training in (result, expected)
    )
    assert progress["tokens"] == right["tokens"]
    texts = [Path(f"{training.log}.0.hypotheses").read_text() for training in (result, expected)]
    assert texts[0] == texts[1]


def assert_same(result: TrainingResult, expected: TrainingResult) -> None:
    """Check that two runs are bitwise equal."""
    for name in (METRICS, BEST):
        assert (result.folder / name).read_bytes() == (expected.folder / name).read_bytes()
    tensors = weights_of(expected)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in weights_of(result).items())
    headers = [read_header(training.folder / LAST)[0] for training in (result, expected)]
    for header in headers:
        del header["seconds"]
    assert headers[0] == headers[1]


# ---------------------------------------------------------------------------------- single process


def test_a_single_process_exchanges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    values = torch.ones(2)
    with process_group() as group:
        assert not torch.distributed.is_initialized()
        assert (group.rank, group.size) == (0, 1)
        assert group.is_main
        assert ranks.is_main_process()
        assert ranks.reports_errors()
        assert group.share([3, 4]) == [3, 4]
        assert group.gather_shares(["a"]) == ["a"]
        assert group.sum([2.5]) == [2.5]
        group.add_up([values])
        assert values.tolist() == [1, 1]
        assert group.device_for("cuda:1") == "cuda:1"
        group.start([1.0])
        group.barrier()


def test_a_single_process_stops_without_synchronisation() -> None:
    stops: list[int] = []
    seconds = [1.0]
    sync = StopSync(ProcessGroup(), stops, lambda: seconds[0])
    assert sync.after_step(5, 7) == (5, 7)
    stops.append(signal.SIGTERM)
    seconds[0] = 2.0
    assert sync.stops == [signal.SIGTERM]
    assert sync.seconds == 2


def test_a_malformed_environment_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small_corpus: Path
) -> None:
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("RANK", "abc")
    assert ranks.is_main_process()
    assert ranks.reports_errors()
    assert main(["train", str(small_corpus)]) == 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "error: " in line)
    assert "RANK: not a number in the environment ('abc')" in line
    monkeypatch.delenv("MASTER_PORT")  # without torchrun the variable is another program's
    with process_group() as group:
        assert (group.rank, group.size) == (0, 1)


@pytest.mark.parametrize(
    ("name", "gpus", "device_or_message"),
    [
        ("auto", 0, "auto"),
        ("auto", 2, "cuda:1"),
        ("cuda", 3, "cuda:1"),
        ("cuda", 0, "cuda"),
        ("cpu", 2, "cpu"),
        ("tpu", 2, "tpu"),
        ("cuda:0", 2, "each of several processes uses the GPU with its own number"),
    ],
)
def test_each_rank_has_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int, device_or_message: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with (
        pytest.raises(UserError, match=device_or_message)
        if " " in device_or_message
        else nullcontext()
    ):
        assert ProcessGroup(5, 6).device_for(name) == device_or_message


# ---------------------------------------------------------------------------- distributed training


@one_quick("processes", [2, 3])
def test_exchanged_values_arrive_complete_and_in_order(
    trainings: Trainings, processes: int
) -> None:
    result = trainings("exchange", processes, fault="exchange")
    assert result.codes == [0] * processes, result.stderr


@pytest.fixture(scope="module")
def single_process(trainings: Trainings) -> TrainingResult:
    return trainings("alone", 1, EXACT)


def test_two_processes_train_as_one_does(
    trainings: Trainings, single_process: TrainingResult
) -> None:
    result = trainings("two", 2, EXACT)
    assert_near(result, single_process)
    assert "BLEU" in result.stderr[0]
    assert result.stderr[1] == ""
    assert "2 processes, each with a share of every batch" in (result.folder / LOG).read_text()
    assert {path.name for path in result.folder.iterdir()} == {
        path.name for path in single_process.folder.iterdir()
    }


@pytest.mark.thorough
def test_a_rank_without_a_pair_adds_nothing(trainings: Trainings) -> None:
    lonely = (*EXACT, "training.batch_tokens=8", "training.accumulate=2")  # one pair per batch
    assert_near(trainings("lonely3", 3, lonely), trainings("lonely1", 1, lonely))


@pytest.mark.thorough
def test_a_rank_may_split_its_share_into_micro_batches(
    trainings: Trainings, single_process: TrainingResult
) -> None:
    result = trainings("micro-batches", 2, EXACT, fault="memory")
    assert_near(result, single_process)
    assert "out of memory; from now on a batch of more than" in result.stderr[0]
    assert result.weights()[0] == result.weights()[1]


def test_all_ranks_have_bitwise_the_same_weights(uninterrupted: TrainingResult) -> None:
    first, second = uninterrupted.weights()
    assert first == second
    assert len(set(first)) == 8


def test_a_non_finite_loss_on_one_rank_is_skipped_on_all(trainings: Trainings) -> None:
    result = trainings("nan", 2, fault="nan")
    first, second = result.weights()
    assert first == second
    assert first[2] == first[1] != first[3]
    assert result.stderr[0].count("skipped: non-finite loss or gradient") == 1


# ----------------------------------------------------------------------------- failures and resume


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "code"), [("term", 143), ("interrupt", 130)])
def test_a_signal_to_one_rank_stops_all_and_loses_nothing(
    trainings: Trainings, uninterrupted: TrainingResult, fault: str, code: int
) -> None:
    result = trainings(fault, 2, fault=fault)
    assert result.codes == [code, code], result.stderr
    assert result.stderr[0].count("Stopped at step 5, saved.") == 1
    again = trainings(fault, 2, EVENTFUL, "--resume")
    assert again.codes == [0, 0], again.stderr
    assert_same(again, uninterrupted)


@one_quick(
    ("fault", "codes", "line"),
    [
        ("kill", [1, -SIGKILL], "another process of this run ended or does not answer"),
        ("first killed", [-SIGKILL, 1], "another process of this run ended or does not"),
        ("error", [1, 1], "the disk of rank 1"),
    ],
)
def test_a_rank_that_dies_ends_the_run_with_one_line(
    trainings: Trainings, uninterrupted: TrainingResult, fault: str, codes: list[int], line: str
) -> None:
    run = f"dead {fault}"
    result = trainings(run, 2, fault=fault)
    assert result.codes == codes, result.stderr
    (error,) = result.errors()
    assert line in error
    again = trainings(run, 2, EVENTFUL, "--resume")
    assert again.codes == [0, 0], again.stderr
    assert_same(again, uninterrupted)


def test_only_a_failed_exchange_is_blamed_on_another_process() -> None:
    memory = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    with pytest.raises(torch.OutOfMemoryError), distributed_errors():
        raise memory
    with (
        pytest.raises(RunError, match=r"does not answer \(RuntimeError\); continue"),
        distributed_errors(),
    ):
        raise RuntimeError


@pytest.mark.thorough
def test_a_run_resumes_with_another_number_of_processes(trainings: Trainings) -> None:
    overrides = (*EVENTFUL, "training.max_steps=4")
    assert trainings("fewer", 2, overrides).codes == [0, 0]
    assert trainings("fewer", 1, EVENTFUL, "--resume").codes == [0]


@pytest.mark.thorough
def test_the_clock_of_rank_0_decides(trainings: Trainings) -> None:
    result = trainings("clock", 2, (*EVENTFUL, "training.max_minutes=50"), fault="other clock")
    assert result.codes == [0, 0], result.stderr
    assert "Training finished: training.max_steps=8 reached." in result.stderr[0]


# ------------------------------------------------------------------------------------- user errors


@pytest.mark.thorough
def test_an_error_is_reported_once(trainings: Trainings, uninterrupted: TrainingResult) -> None:
    cases: list[tuple[tuple[Any, ...], str]] = [
        (("typo", 2, ("training.max_stepz=3",)), "max_stepz"),
        (("uninterrupted", 2), "already holds a run"),
        (("uninterrupted", 2, (*EVENTFUL, "seed=9"), "--resume"), "--resume needs the config"),
    ]
    for call, line in cases:
        result = trainings(*call)
        assert result.codes == [2, 2], result.stderr
        assert len(result.errors()) == 1
        assert sum(line in text for text in result.stderr) == 1
    assert (uninterrupted.folder / LAST).exists()


@pytest.mark.thorough
def test_resume_starts_a_run_on_all_ranks(
    trainings: Trainings, uninterrupted: TrainingResult
) -> None:
    started = trainings("nowhere", 2, EVENTFUL, "--resume")
    assert started.codes == [0, 0], started.stderr
    assert "had no saved state to resume: started the run" in started.stderr[0]
    assert_same(started, uninterrupted)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["other data", "other config"])
def test_ranks_with_other_data_or_another_config_are_refused(
    trainings: Trainings, fault: str
) -> None:
    result = trainings(fault.replace(" ", "-"), 2, fault=fault)
    assert result.codes == [2, 2], result.stderr
    (error,) = result.errors()
    assert "rank 1 has another config or other data than rank 0" in error


# ---------------------------------------------------------------------------------------- torchrun


KILLED_ONCE = """
import os, signal, sys
sys.modules["torch.utils.tensorboard"] = None
from seq2seq.training import loop as training
from seq2seq.__main__ import main

taken = training.train_step

def step(run, batches, rate):
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if first and run.run.group.rank == 1 and run.progress.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return taken(run, batches, rate)

training.train_step = step
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.thorough
def test_torchrun_restarts_a_run_from_its_saved_state(
    trainings: Trainings, uninterrupted: TrainingResult, tmp_path: Path
) -> None:
    script = tmp_path / "killed_once.py"
    script.write_text(KILLED_ONCE, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    process = subprocess.run(
        [
            *[*torchrun, "--nproc-per-node=2", "--max-restarts=1", str(script)],
            *[*trainings.command("restarted"), *EVENTFUL, "--resume"],
        ],
        cwd=ROOT,
        env=project_environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    restarted = uninterrupted._replace(folder=trainings.corpus.parent / "restarted")
    log = (restarted.folder / LOG).read_text()
    assert "resumed at step 4, epoch 1" in log
    assert log.count("resumed at") == 1
    assert_same(restarted, uninterrupted)
