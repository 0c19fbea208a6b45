"""Measure the batches of training configs: padding, composition over epochs, and their cost.

    python scripts/batch_statistics.py CONFIG [section.key=value ...]

Prints the batches of an epoch and their tokens, padding included; the share of its batch-mates that
a pair has met one and two epochs before; and the CPU milliseconds to order an epoch and to sample
the segmentations of a batch. Nothing is trained.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.schema import Config, load_config
from seq2seq.data.batching import EncodedPairs, EpochOrder, sampled_pairs
from seq2seq.data.padding import make_batch
from seq2seq.data.training_data import cached_text, cached_vocabularies, encoded_text, open_cache
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.console import aligned_table, say

EPOCHS = 3

Order = Sequence[NDArray[np.int64]]


def main() -> None:
    """Print the table of one config."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    options = parser.parse_intermixed_args()
    config = load_config(options.config, options.overrides)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_cache(config.data.train, Path(folder) / "run") as cache,
    ):
        text, _ = cached_text(config.data.train, cache)
        vocabularies, _ = cached_vocabularies(text, config.vocabulary)
        pairs = encoded_text(text, vocabularies, config.data.max_length)[0].pairs
        rows = statistics(config, pairs, vocabularies)
    say(aligned_table([[name, figure] for name, figure in rows.items()]))


def statistics(config: Config, pairs: EncodedPairs, vocabularies: Vocabularies) -> dict[str, str]:
    """Return the figures of a config's batches, as printed."""
    started = time.process_time()
    budget, seed = config.training.batch_tokens, config.seed
    orders = [[*EpochOrder(pairs, budget, seed, epoch)] for epoch in range(EPOCHS)]
    ordered = time.process_time()
    tokens = [0] * EPOCHS
    for epoch, order in enumerate(orders):
        marks = time.process_time()
        for rows in order:
            if config.vocabulary.sampling > 0:
                longest = config.data.max_length
                sampled_pairs(pairs, rows, vocabularies, longest, epoch)
        sampling = time.process_time() - marks  # last epoch: words are cached
        for rows in order:
            batch = make_batch([pairs.src[i] for i in rows], [pairs.tgt[i] for i in rows])
            tokens[epoch] += batch.src.numel() + batch.tgt_in.numel()
    met = [
        [share_met(orders[n], orders[n + later], len(pairs)) for n in range(EPOCHS - later)]
        for later in (1, 2)
    ]
    return {
        "pairs": f"{len(pairs):,}",
        "batches an epoch": f"{len(orders[0]):,}",
        "tokens an epoch, padding included": f"{sum(tokens) / EPOCHS:,.0f}",
        "of these padding, %": f"{100 * (1 - real_tokens(pairs) * EPOCHS / sum(tokens)):.1f}",
        "batch-mates met in the epoch before, %": f"{100 * max(met[0]):.1f}",
        "two epochs before, %": f"{100 * max(met[1]):.1f}",
        "CPU ms to order an epoch": f"{1000 * (ordered - started) / EPOCHS:,.0f}",
        "CPU ms to sample a batch": f"{1000 * sampling / len(orders[0]):.1f}",
    }


def real_tokens(pairs: EncodedPairs) -> int:
    """Return the tokens of both sides of all pairs, EOS included."""
    lengths = (np.asarray(side.lengths[:]) for side in (pairs.src, pairs.tgt))
    return sum(int(side_lengths.sum()) for side_lengths in lengths) + 2 * len(pairs)


def share_met(before: Order, after: Order, pairs: int) -> float:
    """Return the share of its batch-mates that a pair met in an epoch before, the mean of pairs."""
    batch_of = np.empty(pairs, np.int64)
    for number, rows in enumerate(before):
        batch_of[rows] = number
    shares = []
    for rows in after:
        _, where, counts = np.unique(batch_of[rows], return_inverse=True, return_counts=True)
        if len(rows) > 1:
            shares.append((counts[where] - 1) / (len(rows) - 1))
    return float(np.concatenate(shares).mean()) if shares else 0.0


if __name__ == "__main__":
    main()
