"""Checks that need a GPU: determinism, steps without synchronisation, limited memory."""

import copy
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cases.models import Case, make_model
from cases.searches import SEARCHES, random_requests
from cases.stopped_trainings import take_step
from torch import Tensor

from seq2seq.config.schema import load_config
from seq2seq.data.padding import Batch, make_batch
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.inference.search.search import search
from seq2seq.model.recurrent import LSTMLayer
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs.layout import BEST, LAST, METRICS
from seq2seq.runs.tensor_file import read_header, read_tensors
from seq2seq.runtime.cuda_graphs import Graphs
from seq2seq.runtime.device import choose_device, tensor_cores_for_lstm
from seq2seq.training import step as update
from seq2seq.training.batches import own_batches
from seq2seq.training.loss import Losses, batch_loss, coverage_losses
from seq2seq.training.preparation import prepare
from seq2seq.training.session import TrainingSession

ROOT = Path(__file__).resolve().parents[2]
CUDA = torch.device("cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

# Train; if a number is given, send SIGTERM within the step of that number.
PROGRAM = """
import os, signal, sys
sys.modules["torch.utils.tensorboard"] = None
from seq2seq.training import loop as training
from seq2seq.__main__ import main

taken, at = training.train_step, int(sys.argv.pop(1))
def step(run, batches, rate):
    if run.progress.step == at:
        os.kill(os.getpid(), signal.SIGTERM)
    return taken(run, batches, rate)
training.train_step = step
sys.exit(main())
"""
EVENTFUL = (
    "vocabulary.sampling=0.3",
    "training.accumulate=2",
    "training.average=0.9",
    "training.validate_every=4",
    "training.patience=9",
    "training.batch_tokens=220",
    "training.max_steps=10",
    "decoding.max_length=9",
)


@pytest.fixture(autouse=True)
def settings_of_the_product() -> Iterator[None]:
    """Choose the device as commands do: without TF32."""
    tf32 = torch.backends.cudnn.allow_tf32
    precision = torch.get_float32_matmul_precision()
    choose_device("cuda")
    yield
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision(precision)


def train(corpus: Path, run: str, *overrides: str, stop_at: int = 0) -> Path:
    """Train in a separate process, since cuBLAS reads its environment only once."""
    folder = corpus.parent / run
    resume = ["--resume"] if (folder / LAST).exists() else []
    settings = [*EVENTFUL, *overrides, f"run_dir={folder}", "--device", "cuda", *resume]
    environment = {k: v for k, v in os.environ.items() if k != "CUBLAS_WORKSPACE_CONFIG"}
    environment["SEQ2SEQ_DETERMINISTIC"] = "1"
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(stop_at), "train", str(corpus), *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert process.returncode == (143 if stop_at else 0), process.stderr
    return folder


def assert_same_run(run: Path, expected: Path) -> None:
    assert (run / METRICS).read_text() == (expected / METRICS).read_text()
    assert (run / BEST).read_bytes() == (expected / BEST).read_bytes()
    headers = [read_header(folder / LAST)[0] for folder in (run, expected)]
    assert json.dumps(headers[0]["progress"]) == json.dumps(headers[1]["progress"])
    left, right = (read_tensors(folder / LAST) for folder in (run, expected))
    assert left.keys() == right.keys()
    for name, tensor in right.items():
        assert torch.equal(left[name], tensor), name


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("decoder", "precision"),
    [("bahdanau", "float32"), ("luong", "bf16"), ("luong", "float32"), ("none", "bf16")],
)
def test_deterministic_runs_are_the_same_interrupted_or_not(
    small_corpus: Path, decoder: str, precision: str
) -> None:
    kind = (f"model.decoder={decoder}", f"training.precision={precision}", "model.layers=2")
    if decoder != "bahdanau":
        kind = (*kind, "model.attention_size=null")
    full = train(small_corpus, "uninterrupted", *kind)
    assert_same_run(train(small_corpus, "again", *kind), full)
    for stop_at in (1, 4, 7):
        train(small_corpus, "interrupted", *kind, stop_at=stop_at)
    assert_same_run(train(small_corpus, "interrupted", *kind), full)


def prepared(corpus: Path, *overrides: str, run: str = "run") -> TrainingSession:
    overrides = (f"run_dir={corpus.parent / run}", "model.dropout=0", *overrides)
    return prepare(load_config(corpus, overrides), CUDA)[0]


def batch(run: TrainingSession, times: int = 1) -> Batch:
    pairs = run.data.train
    return make_batch([*pairs.src] * times, [*pairs.tgt] * times).to(CUDA)


def everything(run: TrainingSession) -> list[Tensor]:
    states = [value for state in run.optimizer.state.values() for value in state.values()]
    tensors = [
        *named_weights(run.model).values(),
        *(optional_tensor for optional_tensor in states if optional_tensor is not None),
    ]
    return [tensor.cpu().clone() for tensor in tensors]


@pytest.fixture
def sync_debug_mode_restored() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # torch calls it a prototype
@pytest.mark.usefixtures("sync_debug_mode_restored")
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_step_is_taken_or_skipped_without_synchronisation(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, precision: str
) -> None:
    def non_finite_loss(model: Seq2Seq, micro_batch: Batch, *weights: float) -> Losses:
        objective, nll = batch_loss(model, micro_batch, *weights)
        return Losses(objective * math.nan, nll)

    run = prepared(
        small_corpus,
        f"training.optimizer={optimizer}",
        f"training.precision={precision}",
        "training.average=0.9",
    )
    data = batch(run)
    run.progress.step = 1
    take_step(run, [data], 1e-2)  # the first step may synchronise
    tensors_before = everything(run)
    loss = run.progress.losses.clone()
    for step, is_taken in ((2, False), (3, True), (4, True)):  # the last one is captured
        run.progress.step = step
        if not is_taken:
            run.graphs.clear()
        with monkeypatch.context() as patch:
            if not is_taken:
                patch.setattr(update, "batch_loss", non_finite_loss)
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            take_step(run, [data], 1e-2)
            torch.cuda.set_sync_debug_mode("default")
        same = all(map(torch.equal, everything(run), tensors_before))
        assert same != is_taken
        assert torch.equal(run.progress.losses, loss) != is_taken
        assert run.progress.skipped.nonzero().flatten().tolist() == [2]


def gradient_of(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("sizes", [(12, 10, 9, 7), (256, 256, 64, 26), (1024, 1024, 64, 26)])
def test_the_library_lstm_runs_in_every_precision(
    sizes: tuple[int, int, int, int], precision: str
) -> None:
    """A warning, as of weights that cuDNN has to copy, fails here."""
    inputs, hidden, batch, steps = sizes
    torch.manual_seed(1)
    layer = LSTMLayer(inputs, hidden).to(CUDA)
    values = torch.randn(batch, steps, inputs, device=CUDA)
    padding = torch.arange(steps, device=CUDA) >= torch.arange(1, batch + 1, device=CUDA)[:, None]
    zeros = values.new_zeros(batch, hidden)

    def passes(precision: str) -> list[Tensor]:
        layer.zero_grad()
        dtype = torch.float16 if precision == "fp16" else torch.bfloat16
        with tensor_cores_for_lstm(CUDA, precision):
            with torch.autocast(CUDA.type, dtype=dtype, enabled=precision != "float32"):
                hiddens, cell = layer.run(values, (zeros, zeros), padding)
            (hiddens.float().square().mean() + cell.float().square().mean()).backward()
        return [cell.float(), *(gradient_of(parameter).clone() for parameter in layer.parameters())]

    for value, expected in zip(passes(precision), passes("float32"), strict=True):
        error = (value - expected).norm() / expected.norm()
        assert error < (1e-5 if precision == "float32" else 0.05)


def test_coverage_losses_are_reproducible() -> None:
    weights = torch.rand(3, 5, 4, device=CUDA, requires_grad=True)
    expected = coverage_losses(weights)
    torch.use_deterministic_algorithms(True)
    try:
        losses = coverage_losses(weights)
        losses.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(losses, expected)


@pytest.fixture
def memory_limit_restored() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("memory_limit_restored")
def test_a_batch_too_large_for_the_device_is_split_into_micro_batches(small_corpus: Path) -> None:
    large = ("model.hidden_size=512", "model.embedding_size=128", "model.attention_size=256")
    full, parts = (prepared(small_corpus, *large, run=name) for name in ("full", "parts"))
    data = batch(full, times=8)  # 960 pairs: some hundred MiB of activations
    for run in (full, parts):  # allocates Adam's moments, which persist
        run.progress.step = 1
        take_step(run, [batch(run)], 1e-3)
        run.progress.step = 2
        run.progress.losses.zero_()
    with torch.no_grad():  # weights after Adam are equal by chance: it divides by any gradient
        for mine, full_weight in zip(
            parts.model.parameters(), full.model.parameters(), strict=True
        ):
            mine.copy_(full_weight)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    resting = torch.cuda.memory_reserved()
    tokens = take_step(full, [data], 1e-3)
    needed = torch.cuda.max_memory_reserved() - resting
    assert full.progress.max_micro_batch_positions == 0
    assert needed > 100 * 2**20
    torch.cuda.empty_cache()
    available = torch.cuda.get_device_properties(CUDA).total_memory
    limit = torch.cuda.memory_reserved() + 0.6 * needed
    torch.cuda.set_per_process_memory_fraction(limit / available)
    assert take_step(parts, [data], 1e-3) == tokens
    assert 0 < parts.progress.max_micro_batch_positions < data.tgt_in.numel()
    torch.testing.assert_close(parts.progress.losses, full.progress.losses, rtol=1e-5, atol=0)
    for weight_of_parts, full_weight in zip(
        parts.model.parameters(), full.model.parameters(), strict=True
    ):
        gradient = gradient_of(weight_of_parts)
        expected = gradient_of(full_weight)
        tolerance = 1e-4 * expected.abs().max().item()
        torch.testing.assert_close(gradient, expected, rtol=0, atol=tolerance)


# ------------------------------------------------------------------------------------- CUDA graphs


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "gnmt", "none"])
def test_replayed_steps_equal_those_launched_one_by_one(
    small_corpus: Path, decoder: str, precision: str
) -> None:
    results = []
    for captures in (True, False):
        settings = (f"model.decoder={decoder}", f"training.precision={precision}")
        folder = f"run_dir={small_corpus.parent / str(captures)}"
        config = load_config(small_corpus, (folder, "training.average=0.9", *settings))
        session, _ = prepare(config, CUDA)
        session.graphs._captures = captures
        for step in range(9):
            rows = torch.arange(step % 3, 100, 3 + step % 3).numpy()
            session.progress.step += 1
            take_step(session, own_batches(session, [rows]), 1e-3)
        assert (len(session.graphs._captured) == 4) is captures
        assert session.graphs.note is None
        results.append(named_weights(session.model))
    for name, weight in results[0].items():
        assert weight.equal(results[1][name]), name


def test_memory_stays_the_same_over_epochs(small_corpus: Path) -> None:
    config = load_config(small_corpus, (f"run_dir={small_corpus.parent / 'flat'}",))
    session, _ = prepare(config, CUDA)
    reserved = []
    for _ in range(4):
        for first in range(12):
            session.progress.step += 1
            rows = torch.arange(first, 110, 1 + first % 4).numpy()
            take_step(session, own_batches(session, [rows]), 1e-3)
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[1] == reserved[2] == reserved[3]


def test_a_function_that_cannot_be_captured_is_called_and_reported() -> None:
    graphs = Graphs(CUDA)
    for _ in range(3):
        values = torch.arange(4.0)
        total = graphs.call("sum", lambda inputs: torch.tensor(inputs.sum().item()), values)
        assert total == 6
    assert graphs.note is not None
    second_result = graphs.call("double", lambda inputs: inputs * 2, values)
    assert second_result.tolist() == [0, 2, 4, 6]


def test_search_on_captured_steps_equals_that_on_the_cpu() -> None:
    for case in (Case("luong", "general", True, 2), Case("bahdanau", "additive", False, 1)):
        on_cpu = make_model(case).float().eval()
        model = copy.deepcopy(on_cpu).to(CUDA)
        for options in SEARCHES.values():
            engines = TorchEngine(model, CUDA), TorchEngine(on_cpu, torch.device("cpu"))
            for _ in range(2):  # captured, then replayed
                lists_by_engine = [search(engine, random_requests(), options) for engine in engines]
            best = [[hypotheses[0].ids for hypotheses in results] for results in lists_by_engine]
            same = sum(captured_ids == cpu_ids for captured_ids, cpu_ids in zip(*best, strict=True))
            assert same >= 0.98 * len(best[0])  # ties are broken by rounding
