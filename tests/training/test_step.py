"""A step: skipped if its gradient is non-finite, split into micro-batches if memory runs out."""

import copy
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.stopped_trainings import take_step
from torch import Tensor

from seq2seq.config.schema import load_config
from seq2seq.data.padding import Batch, make_batch
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training import step as step_module
from seq2seq.training import validation
from seq2seq.training.loss import Losses, batch_loss
from seq2seq.training.preparation import prepare
from seq2seq.training.session import OpenRun, TrainingSession
from seq2seq.training.validation import valid_loss

Loss = Callable[[Seq2Seq, Batch, float], Tensor]


def prepared(corpus: Path, *overrides: str, run: str = "run") -> TrainingSession:
    """Return a run before its first step, without dropout."""
    overrides = (f"run_dir={corpus.parent / run}", "model.dropout=0", *overrides)
    config = load_config(corpus, overrides)
    return prepare(config, choose_device("cpu"))[0]


def some_batch(run: TrainingSession, rows: range) -> Batch:
    return make_batch([run.data.train.src[i] for i in rows], [run.data.train.tgt[i] for i in rows])


def take(run: TrainingSession, rows: range) -> int:
    run.progress.step += 1
    return take_step(run, [some_batch(run, rows)], 1e-2)


def everything(run: TrainingSession) -> list[Tensor]:
    """Return copies of the weights, their averages and the optimizer's state."""
    states = [value for state in run.optimizer.state.values() for value in state.values()]
    weights = [*named_weights(run.model).values(), *run.averages.values()]
    tensors = [
        *weights,
        *(optional_tensor for optional_tensor in states if optional_tensor is not None),
    ]
    return copy.deepcopy(tensors)


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def test_every_step_draws_other_dropout(small_corpus: Path) -> None:
    run = prepared(small_corpus)
    seeds = []
    for _ in range(3):
        take(run, range(4))
        seeds.append(torch.initial_seed())
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_both_passes_may_use_tensor_cores_for_the_lstm(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    run = prepared(small_corpus, f"training.precision={precision}")
    is_inside = [False]
    seen = []

    @contextmanager
    def entered(device: torch.device, name: str) -> Iterator[None]:
        assert (device, name) == (run.device, precision)
        is_inside[0] = True
        yield
        is_inside[0] = False

    def observed(*arguments: Any) -> Losses:
        losses = batch_loss(*arguments)
        seen.append(("forward", is_inside[0]))
        losses.objective.register_hook(lambda _: seen.append(("backward", is_inside[0])))
        return losses

    monkeypatch.setattr(step_module, "tensor_cores_for_lstm", entered)
    monkeypatch.setattr(step_module, "batch_loss", observed)
    take(run, range(4))
    assert seen == [("forward", True), ("backward", True)]
    assert not is_inside[0]


def test_losses_are_divided_before_their_gradients_are_summed_over_ranks(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of summed losses would overflow in fp16; those in float32 do not change."""
    steps = []
    for divisor in (1, 64):
        run = prepared(small_corpus)
        sums = OwnGradients()
        run.run = OpenRun(group=sums)
        monkeypatch.setattr(step_module, "_divisor_of_all_ranks", lambda _, total=divisor: total)
        take(run, range(4))
        steps.append((sums.largest, everything(run)))
    (largest, weights), (divided, same_weights) = steps
    assert divided == largest / 64
    assert same(weights, same_weights)


def test_the_divisor_of_several_ranks_is_a_power_of_two_near_the_tokens(small_corpus: Path) -> None:
    run = prepared(small_corpus, "training.batch_tokens=1500", "training.accumulate=3")
    assert step_module._divisor_of_all_ranks(run) == 8192


class OwnGradients(ProcessGroup):
    """Group with ranks that have no pairs; records the largest gradient."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.largest = 0.0

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        self.largest = max(float(gradient.abs().max()) for gradient in tensors[:-2])


# ------------------------------------------------------------------------------- non-finite losses


def spoiled(by: float) -> Loss:
    def loss(model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
        objective, nll = batch_loss(model, batch, *weights)
        return Losses(objective * by, nll)

    return loss


def spoiled_gradient(model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
    """Return a finite loss with an infinite gradient."""
    loss, nll = batch_loss(model, batch, *weights)
    return Losses(loss + (loss.detach() - loss).sqrt(), nll)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("loss", [spoiled(math.nan), spoiled(math.inf), spoiled_gradient])
def test_a_step_without_a_finite_gradient_changes_nothing(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, loss: Loss
) -> None:
    run = prepared(small_corpus, f"training.optimizer={optimizer}", "training.average=0.9")
    take(run, range(8))
    tensors_before = everything(run)
    losses = run.progress.losses.clone()
    with monkeypatch.context() as patch:
        patch.setattr(step_module, "batch_loss", loss)
        take(run, range(8, 16))
    assert same(everything(run), tensors_before)
    assert torch.equal(run.progress.losses, losses)
    assert run.progress.skipped.nonzero().flatten().tolist() == [2]
    take(run, range(16, 24))
    assert not same(everything(run), tensors_before)
    assert run.progress.losses.isfinite().all()
    assert run.progress.skipped.nonzero().flatten().tolist() == [2]


READING = ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "nonzero")


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("loss", [batch_loss, spoiled(math.nan)])
def test_a_step_reads_no_value(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, loss: Loss
) -> None:
    """Reading a value waits for the device, so each method that reads one is made to fail."""
    run = prepared(small_corpus, f"training.optimizer={optimizer}", "training.average=0.9")
    batch = some_batch(run, range(8))
    run.progress.step = 1
    take_step(run, [batch], 1e-2)

    def read(*_: object) -> object:
        raise AssertionError("a value is read")

    with monkeypatch.context() as patch:
        patch.setattr(step_module, "batch_loss", loss)
        for name in READING:
            patch.setattr(Tensor, name, read)
        run.progress.step = 2
        take_step(run, [batch], 1e-2)
    assert run.progress.skipped.tolist()[2] is (loss is not batch_loss)


def test_a_step_after_a_skipped_one_is_as_without_it(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = (prepared(small_corpus, run=name) for name in ("left", "right"))
    for run in (left, right):
        take(run, range(8))
    with monkeypatch.context() as patch:
        patch.setattr(step_module, "batch_loss", spoiled(math.nan))
        take(left, range(8, 16))
    right.progress.step += 1
    for run in (left, right):
        take(run, range(16, 24))
    assert same(everything(left), everything(right))


# ----------------------------------------------------------------------------------- out of memory


class LittleMemory:
    """A loss with memory for this many target positions, which records its micro-batches."""

    def __init__(self, positions: int, message: str = "can't allocate memory: 7 bytes") -> None:
        self.positions, self.message = positions, message
        self.micro_batches: list[int] = []
        self.refused: list[int] = []

    def __call__(self, model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
        if batch.tgt_in.numel() > self.positions:
            self.refused.append(batch.tgt_in.numel())
            raise RuntimeError(self.message)
        self.micro_batches.append(batch.tgt_in.numel())
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
def test_micro_batches_have_the_gradient_of_the_batch(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, divisor: int, message: str
) -> None:
    complete, parts = (prepared(small_corpus, run=name) for name in ("complete", "parts"))
    tokens = take(complete, range(19))
    loss = LittleMemory(some_batch(complete, range(19)).tgt_in.numel() // divisor, message)
    monkeypatch.setattr(step_module, "batch_loss", loss)
    assert take(parts, range(19)) == tokens
    assert len(loss.micro_batches) >= divisor
    assert parts.progress.max_micro_batch_positions > 0
    torch.testing.assert_close(
        parts.progress.losses, complete.progress.losses, rtol=1e-6, atol=0
    )  # sums of float32
    gradients = (weight.grad for weight in complete.model.parameters())
    for parameter, gradient in zip(parts.model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_size_that_ran_out_of_memory_is_not_tried_again(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    loss = LittleMemory(some_batch(run, range(16)).tgt_in.numel() - 1)
    monkeypatch.setattr(step_module, "batch_loss", loss)
    take(run, range(16))
    limit = run.progress.max_micro_batch_positions
    loss.positions = 10**9
    take(run, range(16))
    assert run.progress.max_micro_batch_positions == limit
    assert 0 < max(loss.micro_batches) <= limit


def test_a_long_pair_beside_shorter_ones_that_does_not_fit_is_an_error(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Splitting ends at a pair that does not fit, although shorter ones could still be split."""
    run = prepared(small_corpus)
    by_length = sorted(range(len(run.data.train.tgt)), key=lambda row: len(run.data.train.tgt[row]))
    long, short = (
        make_batch([run.data.train.src[i] for i in rows], [run.data.train.tgt[i] for i in rows])
        for rows in (by_length[-2:], by_length[:4])
    )
    room = short.tgt_in.numel() // 4
    assert 2 * long.tgt_in.shape[1] > long.tgt_in.shape[1] > 2 * room
    loss = LittleMemory(2 * room)
    monkeypatch.setattr(step_module, "batch_loss", loss)
    run.progress.step = 1
    with pytest.raises(RunError, match=r"step 1: out of memory with a single pair. Lower "):
        take_step(run, [long, short], 1e-3)
    assert loss.refused[0] == long.tgt_in.numel()
    assert loss.refused[-1] == long.tgt_in.shape[1]  # a single row


def test_a_single_pair_that_does_not_fit_is_an_error(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    monkeypatch.setattr(step_module, "batch_loss", LittleMemory(1))
    with pytest.raises(RunError, match=r"step 1: out of memory with a single pair. Lower "):
        take(run, range(8))


def test_a_validation_batch_is_halved_too(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    expected = valid_loss(run)
    loss = LittleMemory(3 * run.data.valid_pairs.tgt.lengths[:].max())
    monkeypatch.setattr(validation, "batch_loss", loss)
    assert valid_loss(run) == pytest.approx(expected, rel=1e-6)
    assert loss.refused
    assert run.progress.max_micro_batch_positions == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_a_resource_limit_is_recognised_as_out_of_memory() -> None:
    program = """
import mmap, resource, torch
from seq2seq.runtime.errors import is_out_of_memory
(size,) = (line for line in open("/proc/self/status") if line.startswith("VmData"))
limit = 1024 * int(size.split()[1]) + 2**28
resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
try:
    mmap.mmap(-1, 2**29, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    print("no limit")
except OSError:
    pass
torch.zeros(2**20)
try:
    torch.zeros(2**27)
except RuntimeError as error:
    print("out of memory:", is_out_of_memory(error))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if result.stdout.startswith("no limit"):
        pytest.skip("this system, such as an emulated one, does not limit the memory of a process")
    assert result.stdout == "out of memory: True\n", result.stderr


def test_other_errors_are_not_taken_for_out_of_memory(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(small_corpus)
    monkeypatch.setattr(step_module, "batch_loss", LittleMemory(1, "mat1 and mat2 do not fit"))
    with pytest.raises(RuntimeError, match="do not fit"):
        take(run, range(8))
