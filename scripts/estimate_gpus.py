"""Estimate on paper how training scales to several GPUs; nothing is measured.

    python scripts/estimate_gpus.py
    python scripts/estimate_gpus.py --model gnmt --share 0.3

Computation is the matrix products of a step, divided by a share of the GPU's peak. Gradients are
summed in rings: each of N GPUs sends `2 (N - 1) / N` times their bytes, at a share of the bandwidth
of the slowest link, and waits `2 (N - 1)` times for its latency, for each bucket. The efficiency is
a range: from exchange after computation to exchange hidden behind it.
"""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarking.random_text import MODELS, batches, flop_of_batches, new_session
from seq2seq.model.seq2seq import count_parameters
from seq2seq.runtime.console import aligned_table, say
from seq2seq.training.gradient_exchange import BUCKET_BYTES

PEAK = 989e12  # FLOP/s of an H100 SXM in bf16, dense, by its data sheet
GPUS_PER_MACHINE = 8
NVLINK, NETWORK = 450e9, 50e9  # bytes/s a GPU, each way: H100's NVLink; InfiniBand of 400 Gbit/s
USED_BANDWIDTH = 0.7  # share of these
NVLINK_LATENCY, NETWORK_LATENCY = 3e-6, 10e-6  # seconds a step of a ring
BYTES = 4  # float32 gradient
SIZES = (1, 8, 64)


class Estimate(NamedTuple):
    """One step of data-parallel training."""

    gpus: int
    compute_seconds: float
    sent_bytes: float  # by each GPU
    exchange_seconds: float

    @property
    def efficiency(self) -> tuple[float, float]:
        """Return speed relative to the same GPUs without exchange: none hidden, all hidden."""
        longest = max(self.compute_seconds, self.exchange_seconds)
        total = self.compute_seconds + self.exchange_seconds
        return self.compute_seconds / total, self.compute_seconds / longest


def estimate(gpus: int, flop: float, parameters: int, share: float) -> Estimate:
    """Estimate a step in which each GPU computes `flop` operations at a share of PEAK."""
    sent = 2 * (gpus - 1) / gpus * BYTES * parameters
    within = gpus <= GPUS_PER_MACHINE
    bandwidth, latency = (NVLINK, NVLINK_LATENCY) if within else (NETWORK, NETWORK_LATENCY)
    buckets = -(-BYTES * parameters // BUCKET_BYTES)
    waited = 2 * (gpus - 1) * latency * buckets
    return Estimate(gpus, flop / (share * PEAK), sent, sent / (USED_BANDWIDTH * bandwidth) + waited)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: a row for each number of GPUs and target tokens of each GPU in a step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=list(MODELS), default="bahdanau")
    text = "share of the peak that training reaches, not known before it is measured"
    parser.add_argument("--share", type=float, default=0.1, help=text)
    options = parser.parse_args(arguments)
    session = new_session(options.model, "bf16", torch.device("cpu"))
    parameters = count_parameters(session.model)
    say(
        f"{options.model}: {parameters:,} parameters, {options.share:.0%} of {PEAK / 1e12:.0f} TF/s"
    )
    head = ["GPUs", "tokens a GPU", "compute, ms", "sent a GPU, MB", "exchange, ms", "efficiency"]
    rows = [head]
    for tokens in (4096, 16_384):
        made = list(batches(MODELS[options.model][0], tokens, 16))
        flop = flop_of_batches(session.model, made) / len(made)
        for gpus in SIZES:
            found = estimate(gpus, flop, parameters, options.share)
            worst, best = found.efficiency
            cells = [found.compute_seconds * 1e3, found.sent_bytes / 1e6]
            cells.append(found.exchange_seconds * 1e3)
            figures = [f"{each:.1f}" for each in cells]
            rows.append([f"{gpus}", f"{tokens:,}", *figures, f"{worst:.0%} to {best:.0%}"])
    say(aligned_table(rows))


if __name__ == "__main__":
    main()
