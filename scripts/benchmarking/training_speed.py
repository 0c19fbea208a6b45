"""How many target tokens a second training takes in, what share of the ceiling, in what memory."""

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from benchmarking.processes import peak_mib
from benchmarking.standard import Case, standard, work
from seq2seq.data.batching import EncodedPairs, Rows, derive_seed, epoch_order
from seq2seq.runtime.device import choose_device
from seq2seq.training.loop import batch_of
from seq2seq.training.session import Run, prepare
from seq2seq.training.step import train_step

WARM_UP = 4  # updates


class TrainingSpeed(NamedTuple):
    """Padding is counted nowhere."""

    tokens_per_second: float  # target tokens
    flop_per_token: float  # of the counted products, for each target token
    peak_mib: float


def training_speed(
    case: Case, precision: str, data: Path, device: str, seconds: float, batch_tokens: int
) -> TrainingSpeed:
    """Real updates of the standard model on the real corpus, for so many seconds."""
    with TemporaryDirectory() as folder:
        config = standard(case, data, Path(folder) / "run", precision, batch_tokens=batch_tokens)
        run, _ = prepare(config, choose_device(device), resume=False)
        return _measured(run, seconds)


def _measured(run: Run, seconds: float) -> TrainingSpeed:
    order = epoch_order(run.train, run.config.training.batch_tokens, run.config.seed, 0)
    for n in range(WARM_UP):
        _update(run, order[n])
    taken = 0
    _wait(run.device)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        _update(run, order[(WARM_UP + taken) % len(order)])
        taken += 1
        if run.device.type != "cpu" and taken % 20 == 0:
            _wait(run.device)
    _wait(run.device)
    elapsed = time.perf_counter() - began
    rows = [row for n in range(taken) for row in order[(WARM_UP + n) % len(order)]]
    tokens, flop = _cost(run, rows)
    return TrainingSpeed(tokens / elapsed, flop / tokens, peak_mib(str(run.device)))


def _update(run: Run, rows: Rows) -> None:
    run.progress.step += 1
    batch = batch_of(run, rows, derive_seed(run.config.seed, run.progress.step, 0))
    train_step(run, [batch], 1e-3)


def _cost(run: Run, rows: Sequence[int]) -> tuple[int, float]:
    """Target tokens of these pairs, END counted, and the operations that they need."""
    pairs: EncodedPairs = run.train
    costs = work(run.model)
    lengths = [(len(pairs.src[i]) + 1, len(pairs.tgt[i]) + 1) for i in rows]
    flop = sum(
        costs.src_token * src + costs.tgt_token * tgt + costs.pair_of_tokens * src * tgt
        for src, tgt in lengths
    )
    return sum(tgt for _, tgt in lengths), flop


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
