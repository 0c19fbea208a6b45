"""Training speed and memory: of the standard model, and by sentence length."""

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from benchmarking.machine import peak_mib
from benchmarking.standard import Case, standard, work
from seq2seq.data.batching import EncodedPairs, EpochOrder
from seq2seq.data.length_windows import Rows
from seq2seq.data.padding import Batch, make_batch
from seq2seq.model.builder import build_model
from seq2seq.runtime.device import choose_device, derive_seed, synchronize, tensor_cores_for_lstm
from seq2seq.training.batches import batch_of
from seq2seq.training.loss import batch_loss
from seq2seq.training.preparation import prepare
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import train_step

WARM_UP_STEPS = 4
LENGTHS = (10, 25, 50, 100, 200, 400)
VOCABULARY = 8000


class TrainingSpeed(NamedTuple):
    """Training speed; padding is not counted."""

    tokens_per_second: float  # target tokens
    flop_per_token: float  # matrix products only, per target token
    peak_mib: float


class LengthCost(NamedTuple):
    """Training speed and memory for random sentences of one length."""

    tokens_per_second: float
    peak_mib: float


def training_speed(  # noqa: PLR0913
    case: Case, precision: str, data: Path, device: str, seconds: float, batch_tokens: int
) -> TrainingSpeed:
    """Train the standard model on the corpus for the given time."""
    with TemporaryDirectory() as folder:
        config = standard(case, data, Path(folder) / "run", precision, batch_tokens=batch_tokens)
        run, _ = prepare(config, choose_device(device))
        return _measured(run, seconds)


def length_cost(  # noqa: PLR0913
    case: Case, length: int, precision: str, device: str, seconds: float, batch_tokens: int
) -> LengthCost:
    """Run forward and backward passes over batches of sentences of `length` tokens."""
    chosen = choose_device(device)
    config = standard(case, Path("unused"), Path("unused"), precision)
    model = build_model(config.model, VOCABULARY, VOCABULARY, True).to(chosen).train()
    rows = max(1, batch_tokens // length)
    ids = torch.randint(4, VOCABULARY, (2, rows, length - 1)).tolist()  # EOS is added
    made = make_batch(*ids)
    batch = Batch(*(part if part is None else part.to(chosen) for part in made))  # type: ignore[arg-type]
    count, started = -2, 0.0
    while count < 2 or time.perf_counter() - started < seconds:
        if count == 0:
            started = time.perf_counter()
        with tensor_cores_for_lstm(chosen, precision):
            with torch.autocast(chosen.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                loss = batch_loss(model, batch).objective
            loss.backward()
        count += 1
        loss.item()  # synchronises with the device
    elapsed = time.perf_counter() - started
    return LengthCost(count * rows * length / elapsed, peak_mib(str(chosen)))


def _measured(run: TrainingSession, seconds: float) -> TrainingSpeed:
    order = EpochOrder(run.data.train, run.config.training.batch_tokens, run.config.seed, 0)
    for n in range(WARM_UP_STEPS):
        _step(run, order[n])
    count = 0
    synchronize(run.device)
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        _step(run, order[(WARM_UP_STEPS + count) % len(order)])
        count += 1
        if count % 20 == 0:
            synchronize(run.device)
    synchronize(run.device)
    elapsed = time.perf_counter() - started
    rows = [row for n in range(count) for row in order[(WARM_UP_STEPS + n) % len(order)]]
    tokens, flop = _cost(run, rows)
    return TrainingSpeed(tokens / elapsed, flop / tokens, peak_mib(str(run.device)))


def _step(run: TrainingSession, rows: Rows) -> None:
    run.progress.step += 1
    batch = batch_of(run, rows, derive_seed(run.config.seed, run.progress.step, 0))
    result = train_step(run, [batch], 1e-3)
    run.progress.add(result.losses, result.skipped)


def _cost(run: TrainingSession, rows: Sequence[int]) -> tuple[int, float]:
    """Return the target tokens of these pairs, EOS included, and their operations."""
    pairs: EncodedPairs = run.data.train
    costs = work(run.model)
    lengths = [(len(pairs.src[i]) + 1, len(pairs.tgt[i]) + 1) for i in rows]
    flop = sum(
        costs.src_token * src + costs.tgt_token * tgt + costs.pair_of_tokens * src * tgt
        for src, tgt in lengths
    )
    return sum(tgt for _, tgt in lengths), flop
