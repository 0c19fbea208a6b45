"""An update: not taken where its gradient is no number, in pieces where memory runs out."""

import copy
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import take_step
from torch import Tensor

from seq2seq.config.schema import load_config
from seq2seq.data.batching import Batch, make_batch
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import RunError
from seq2seq.training import step as update
from seq2seq.training.loss import Losses, batch_loss
from seq2seq.training.session import TrainingSession, prepare

Loss = Callable[[Seq2Seq, Batch, float], Tensor]


def prepared(corpus: Path, *overrides: str, run: str = "run") -> TrainingSession:
    """A run before its first update, without dropout."""
    overrides = (f"run_dir={corpus.parent / run}", "model.dropout=0", *overrides)
    config = load_config(corpus, overrides)[0]
    return prepare(config, choose_device("cpu"))[0]


def some_batch(run: TrainingSession, rows: range) -> Batch:
    return make_batch([run.data.train.src[i] for i in rows], [run.data.train.tgt[i] for i in rows])


def taken(run: TrainingSession, rows: range) -> int:
    run.progress.step += 1
    return take_step(run, [some_batch(run, rows)], 1e-2)


def everything(run: TrainingSession) -> list[Tensor]:
    """Weights, their averages and the optimizer's state."""
    states = [value for state in run.optimizer.state.values() for value in state.values()]
    weights = [*named_weights(run.model).values(), *run.averages.values()]
    tensors = [*weights, *(each for each in states if each is not None)]
    return copy.deepcopy(tensors)


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


# ------------------------------------------------------------------------------------- not a number


def spoiled(by: float) -> Loss:
    def loss(model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
        objective, nll = batch_loss(model, batch, *weights)
        return Losses(objective * by, nll)

    return loss


def spoiled_gradient(model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
    """A loss of ordinary value whose gradient is infinite."""
    loss, nll = batch_loss(model, batch, *weights)
    return Losses(loss + (loss.detach() - loss).sqrt(), nll)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("loss", [spoiled(math.nan), spoiled(math.inf), spoiled_gradient])
def test_a_step_without_a_finite_gradient_changes_nothing(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, loss: Loss
) -> None:
    run = prepared(small_corpus, f"training.optimizer={optimizer}", "training.average=0.9")
    taken(run, range(8))
    before, told = everything(run), run.progress.losses.clone()
    with monkeypatch.context() as patch:
        patch.setattr(update, "batch_loss", loss)
        taken(run, range(8, 16))
    assert same(everything(run), before)
    assert torch.equal(run.progress.losses, told)
    assert run.progress.skipped.nonzero().flatten().tolist() == [2]
    taken(run, range(16, 24))
    assert not same(everything(run), before)
    assert run.progress.losses.isfinite().all()
    assert run.progress.skipped.nonzero().flatten().tolist() == [2]


READING = ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "nonzero")


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("loss", [batch_loss, spoiled(math.nan)])
def test_a_step_reads_no_value(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, loss: Loss
) -> None:
    """Whoever reads a value waits for the device: here any reading would be the same fault."""
    run = prepared(small_corpus, f"training.optimizer={optimizer}", "training.average=0.9")
    batch = some_batch(run, range(8))
    run.progress.step = 1
    take_step(run, [batch], 1e-2)

    def read(*_: object) -> object:
        raise AssertionError("a value is read")

    with monkeypatch.context() as patch:
        patch.setattr(update, "batch_loss", loss)
        for name in READING:
            patch.setattr(Tensor, name, read)
        run.progress.step = 2
        take_step(run, [batch], 1e-2)
    assert run.progress.skipped.tolist()[2] is (loss is not batch_loss)


def test_a_step_after_one_not_taken_is_as_if_that_had_not_been(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = (prepared(small_corpus, run=name) for name in ("left", "right"))
    for run in (left, right):
        taken(run, range(8))
    with monkeypatch.context() as patch:
        patch.setattr(update, "batch_loss", spoiled(math.nan))
        taken(left, range(8, 16))
    right.progress.step += 1
    for run in (left, right):
        taken(run, range(16, 24))
    assert same(everything(left), everything(right))


# ------------------------------------------------------------------------------------ out of memory


class LittleMemory:
    """A loss that has room for so many target positions, and counts the pieces it was given."""

    def __init__(self, positions: int, message: str = "can't allocate memory: 7 bytes") -> None:
        self.positions, self.message = positions, message
        self.pieces: list[int] = []
        self.refused: list[int] = []

    def __call__(self, model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
        if batch.tgt_in.numel() > self.positions:
            self.refused.append(batch.tgt_in.numel())
            raise RuntimeError(self.message)
        self.pieces.append(batch.tgt_in.numel())
        return batch_loss(model, batch, *weights)


@pytest.mark.parametrize("divisor", [2, 5])
@pytest.mark.parametrize(
    "message",
    [
        "DefaultCPUAllocator: can't allocate memory",
        "CUDA out of memory.",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "std::bad_alloc",
    ],
)
def test_pieces_have_the_gradient_of_the_whole(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, divisor: int, message: str
) -> None:
    whole, parts = (prepared(small_corpus, run=name) for name in ("whole", "parts"))
    tokens = taken(whole, range(19))
    loss = LittleMemory(some_batch(whole, range(19)).tgt_in.numel() // divisor, message)
    monkeypatch.setattr(update, "batch_loss", loss)
    assert taken(parts, range(19)) == tokens
    assert len(loss.pieces) >= divisor
    assert parts.progress.max_micro_batch_positions > 0
    torch.testing.assert_close(
        parts.progress.losses, whole.progress.losses, rtol=1e-6, atol=0
    )  # sums of float32
    gradients = (each.grad for each in whole.model.parameters())
    for parameter, gradient in zip(parts.model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_what_was_too_large_once_is_not_tried_again(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    loss = LittleMemory(some_batch(run, range(16)).tgt_in.numel() - 1)
    monkeypatch.setattr(update, "batch_loss", loss)
    taken(run, range(16))
    limit = run.progress.max_micro_batch_positions
    loss.positions = 10**9
    taken(run, range(16))
    assert run.progress.max_micro_batch_positions == limit
    assert 0 < max(loss.pieces) <= limit


def test_memory_for_a_wide_pair_in_company_is_an_error_in_words(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair that does not fit is not cut for ever because narrower ones still can be."""
    run = prepared(small_corpus)
    by_width = sorted(range(len(run.data.train.tgt)), key=lambda row: len(run.data.train.tgt[row]))
    wide, narrow = (
        make_batch([run.data.train.src[i] for i in rows], [run.data.train.tgt[i] for i in rows])
        for rows in (by_width[-2:], by_width[:4])
    )
    room = narrow.tgt_in.numel() // 4
    assert 2 * wide.tgt_in.shape[1] > wide.tgt_in.shape[1] > 2 * room
    loss = LittleMemory(2 * room)
    monkeypatch.setattr(update, "batch_loss", loss)
    run.progress.step = 1
    with pytest.raises(RunError, match=r"step 1: out of memory with a single pair. Lower "):
        take_step(run, [wide, narrow], 1e-3)
    assert loss.refused[0] == wide.tgt_in.numel()
    assert loss.refused[-1] == wide.tgt_in.shape[1]  # a row by itself


def test_memory_for_not_even_a_pair_is_an_error_in_words(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    monkeypatch.setattr(update, "batch_loss", LittleMemory(1))
    with pytest.raises(RunError, match=r"step 1: out of memory with a single pair. Lower "):
        taken(run, range(8))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_a_limit_set_by_the_user_is_a_lack_of_memory() -> None:
    program = """
import resource, torch
from seq2seq.runtime.errors import is_out_of_memory
(size,) = (line for line in open("/proc/self/status") if line.startswith("VmData"))
limit = 1024 * int(size.split()[1]) + 2**28
resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
torch.zeros(2**20)
try:
    torch.zeros(2**27)
except RuntimeError as error:
    print("out of memory:", is_out_of_memory(error))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "out of memory: True\n", result.stderr


def test_another_failure_is_no_lack_of_memory(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    monkeypatch.setattr(update, "batch_loss", LittleMemory(1, "mat1 and mat2 do not fit"))
    with pytest.raises(RuntimeError, match="do not fit"):
        taken(run, range(8))
