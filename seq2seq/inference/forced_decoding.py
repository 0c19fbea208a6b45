"""Forced decoding: how likely the model finds translations that are given; ids in, numbers out."""

from collections.abc import Sequence

import torch

from seq2seq.data.batching import Ids, pad, pad_sources
from seq2seq.data.vocabulary import BOS_ID, EOS_ID
from seq2seq.inference.batch_invariance import fitting, tile_sizes
from seq2seq.inference.interface import Model
from seq2seq.inference.search import by_width


def forced_log_probs(
    model: Model, sources: Sequence[Ids], targets: Sequence[Ids], device: torch.device
) -> list[list[float]]:
    """The log-probability, nats, of every piece of each target and of its END, given its source.

    Taken in the tiles of `search` and one step after the other, so that they are to the bit what
    greedy search sees on its way, and do not depend on company. Memory grows with the longest
    source, not with the target.
    """
    found: list[list[float]] = [[] for _ in sources]
    for width, rows in by_width(sources).items():
        rows = sorted(rows, key=lambda i: len(targets[i]))
        sizes = tile_sizes(model, [sources[i] for i in rows], width, 1, device)
        for start in range(0, len(rows), sizes[-1]):
            tile = rows[start : start + sizes[-1]]
            pairs = [(sources[i], targets[i]) for i in tile]
            filled = [*pairs, *[([], [])] * (fitting(sizes, len(tile)) - len(tile))]
            log_probs = _forced(model, filled, width, device)
            for i, of_target in zip(tile, log_probs, strict=False):
                found[i] = of_target
    return found


@torch.inference_mode()
def _forced(
    model: Model, pairs: Sequence[tuple[Ids, Ids]], width: int, device: torch.device
) -> list[list[float]]:
    """The same of the pairs of one tile."""
    src, src_lengths = pad_sources([src for src, _ in pairs], width)
    memory, state = model.start(model.encode(src.to(device), src_lengths.to(device)))
    tgt_in = pad([[BOS_ID, *tgt] for _, tgt in pairs]).to(device)
    tgt_out = pad([[*tgt, EOS_ID] for _, tgt in pairs]).to(device)
    columns = []
    for before, wanted in zip(tgt_in.unbind(1), tgt_out.unbind(1), strict=True):
        step = model.step(before, state, memory)
        state = step.state
        log_probs = model.project(step.outputs).float().log_softmax(dim=-1)  # [N, V]
        columns.append(log_probs.gather(1, wanted[:, None]))
    table = torch.cat(columns, dim=1).tolist()
    return [row[: len(tgt) + 1] for (_, tgt), row in zip(pairs, table, strict=True)]
