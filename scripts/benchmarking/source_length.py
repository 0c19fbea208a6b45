"""Time and memory of training against the length of the sentences."""

import time
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarking.processes import peak_mib
from benchmarking.standard import Case, standard
from seq2seq.data.batching import make_batch
from seq2seq.model.builder import build_model
from seq2seq.runtime.device import choose_device
from seq2seq.training.loss import batch_loss

LENGTHS = (10, 25, 50, 100, 200, 400)
VOCABULARY = 8000


class LengthCost(NamedTuple):
    """Of random sentences of one length on both sides."""

    tokens_per_second: float
    peak_mib: float


def length_cost(
    case: Case, length: int, precision: str, device: str, seconds: float, batch_tokens: int
) -> LengthCost:
    """Forward and backward passes over batches of so many target tokens, for so many seconds."""
    chosen = choose_device(device)
    config = standard(case, Path("nowhere"), Path("nowhere"), precision)
    model = build_model(config.model, VOCABULARY, VOCABULARY, True).to(chosen).train()
    rows = max(1, batch_tokens // length)
    ids = torch.randint(4, VOCABULARY, (2, rows, length - 1)).tolist()  # END comes to them
    batch = make_batch(*ids).to(chosen)
    taken, began = -2, 0.0
    while taken < 2 or time.perf_counter() - began < seconds:
        if taken == 0:
            began = time.perf_counter()
        with torch.autocast(chosen.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = batch_loss(model, batch, 0.0)
        loss.backward()
        taken += 1
        loss.item()  # waits for the device
    return LengthCost(taken * rows * length / (time.perf_counter() - began), peak_mib(str(chosen)))
