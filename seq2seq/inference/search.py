"""Greedy and beam search: ids in, ids out.

Sentences are searched in tiles, of a padded length that depends on the sentence alone and a number
of rows that changes no bit: so a translation does not depend on its company. A sentence that is
done leaves its row to the next; where none is left, the tile shrinks.
"""

from collections.abc import Sequence
from typing import Any

import torch

from seq2seq.data.batching import Ids, pad_sources
from seq2seq.inference.batch_invariance import fitting, tile_sizes
from seq2seq.inference.beam_search import BeamSearch
from seq2seq.inference.continuous_batching import ContinuousBatch, Sentence
from seq2seq.inference.greedy_search import GreedySearch
from seq2seq.inference.interface import Hypothesis, Model, SearchOptions
from seq2seq.inference.prefixes import NO_PREFIX, Prefix

TILE_LENGTH_STEP = 16  # source positions
REFILL = 8  # the part of a tile's slots whose emptiness is worth the work of filling them: 1 / 8


def search(
    model: Model,
    sources: Sequence[Ids],
    limits: Sequence[int],
    beam: SearchOptions,
    device: torch.device,
    prefixes: Sequence[Prefix] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source (END not counted), best first.

    At most `beam.size` of them; none is empty, nor longer than its source's limit, END not counted.
    In none does an n-gram of `no_repeat_ngram` pieces occur twice, save where its prefix has it.
    After a prefix that leaves no room the limit counts anew.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    prefixes = prefixes or [NO_PREFIX] * len(sources)
    ruled = beam.no_repeat_ngram > 0 or any(prefix.states for prefix in prefixes)
    for width, rows in by_width(sources).items():
        sizes = tile_sizes(model, [sources[i] for i in rows], width, beam.size, device)
        waiting = [
            Sentence(sources[i], _limit(limits[i], prefixes[i]) + 1, prefixes[i]) for i in rows
        ]
        queue = _Queue(model, waiting, width, sizes, device)
        for n, hypotheses in _searched(_slots(model, queue, beam, ruled), queue):
            i = rows[n]
            found[i] = [_trim(hypothesis, len(sources[i]) + 1) for hypothesis in hypotheses]
    return found


def by_width(sources: Sequence[Ids]) -> dict[int, list[int]]:
    """Which sources are padded to which length, END counted; in each the longest first."""
    groups: dict[int, list[int]] = {}
    for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])):
        width = -(-(len(sources[i]) + 1) // TILE_LENGTH_STEP) * TILE_LENGTH_STEP
        groups.setdefault(width, []).append(i)
    return groups


def _limit(limit: int, prefix: Prefix) -> int:
    """The most pieces of a translation; after a prefix that fills it, as many more."""
    return limit if len(prefix.states) < limit else limit + len(prefix.states)


def _trim(hypothesis: Hypothesis, src_length: int) -> Hypothesis:
    weights = hypothesis.attention_weights
    return hypothesis._replace(
        attention_weights=None if weights is None else weights[:, :src_length]
    )


@torch.inference_mode()
def _slots(model: Model, queue: "_Queue", beam: SearchOptions, ruled: bool) -> ContinuousBatch:
    kind = GreedySearch if beam.size == 1 else BeamSearch
    return kind(model, *queue.tile, queue.rows, beam, ruled)


@torch.inference_mode()
def _searched(slots: ContinuousBatch, queue: "_Queue") -> list[tuple[int, list[Hypothesis]]]:
    """What is found for each sentence of the queue, by its number."""
    entering, _ = queue.take(len(queue.rows))  # of the first tile, which the slots are made of
    slots.enter(range(len(entering)), [queue.sentences[n] for n in entering])
    holds = dict(enumerate(entering))  # slot -> sentence
    found = []
    while queue.waiting or holds:
        while queue.waiting and len(free := slots.free()) >= max(1, len(queue.rows) // REFILL):
            entering, rows = queue.take(len(free))
            filled = free[: len(entering)]
            slots.put(filled, [queue.sentences[n] for n in entering], *queue.tile, rows)
            holds |= zip(filled, entering, strict=True)
        found += [(holds.pop(slot), hypotheses) for slot, hypotheses in slots.step()]
        if not queue.waiting and fitting(queue.sizes, len(holds)) < len(slots.limits):
            kept = slots.shrink(fitting(queue.sizes, len(holds)))
            holds = {new: holds[old] for new, old in enumerate(kept) if old in holds}
    return found


class _Queue:
    """Sentences whose sources have one padded length, encoded a tile at a time."""

    def __init__(
        self,
        model: Model,
        sentences: Sequence[Sentence],
        width: int,
        sizes: Sequence[int],
        device: torch.device,
    ) -> None:
        self.model, self.sentences, self.width, self.device = model, sentences, width, device
        self.sizes, self.waiting = sizes, len(sentences)
        self.rows = torch.arange(fitting(sizes, len(sentences)), device=device)
        self.tile = self._encode(0)

    @torch.inference_mode()
    def _encode(self, start: int) -> tuple[Any, Any]:
        """Memory and state of the tile that begins with this sentence."""
        entering = self.sentences[start : start + len(self.rows)]
        sources = [sentence.source for sentence in entering]
        filled = [*sources, *[[]] * (fitting(self.sizes, len(sources)) - len(sources))]
        src, src_lengths = (part.to(self.device) for part in pad_sources(filled, self.width))
        return self.model.start(self.model.encode(src, src_lengths))

    def take(self, most: int) -> tuple[range, slice]:
        """The next sentences, as many as `self.tile` holds of them, and their rows in it."""
        start = len(self.sentences) - self.waiting
        row = start % len(self.rows)
        if start and row == 0:
            self.tile = self._encode(start)
        count = min(most, self.waiting, len(self.rows) - row)
        self.waiting -= count
        return range(start, start + count), slice(row, row + count)
