"""Greedy and beam search over many sentences: ids in, ids out.

Sentences are searched in tiles of a padded length that depends on the sentence alone and of a
number of rows that leaves every result bitwise unchanged, so translations are batch-invariant. A
finished sentence frees its slot for the next; when none is left, the tile shrinks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seq2seq.data.batching import pad_sources
from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.inference.search.batch_invariance import smallest_fitting, tile_sizes
from seq2seq.inference.search.beam import BeamSearch
from seq2seq.inference.search.constraints import search_constraints
from seq2seq.inference.search.continuous_batching import ContinuousBatch
from seq2seq.inference.search.greedy import GreedySearch
from seq2seq.inference.search.interface import (
    Hypothesis,
    Model,
    NonFiniteError,
    Sampling,
    SearchOptions,
)
from seq2seq.inference.search.sampling import SampledSearch
from seq2seq.inference.search.sentences import Request, Sentence, make_sentence, queues

REFILL = 8  # slots are refilled once 1 / REFILL of them are empty


def search(
    model: Model,
    requests: Sequence[Request],
    options: SearchOptions,
    device: torch.device,
    on_found: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return at most `options.size` hypotheses for each request, best first.

    No hypothesis is empty or longer than its limit, which counts from the end of a prefix that
    leaves no room. No n-gram of `no_repeat_ngram` tokens occurs twice, except in a prefix.
    Hypotheses contain the phrases of `lexical`, which raises the limit if they need more room, and
    which only a prefix overrides. With sampling, there are as many hypotheses as samples, in the
    order in which they were drawn. `on_found` is called with the number of each request whose
    search has ended. Raises NonFiniteError if the log-probabilities of a sentence are not finite.
    """
    count = options.sampling.samples if options.sampling else 1
    if count > 1:
        return _search_samples(model, requests, options, device, on_found, count)
    return _search(model, requests, options, device, on_found, [0] * len(requests))


def _search(
    model: Model,
    requests: Sequence[Request],
    options: SearchOptions,
    device: torch.device,
    on_found: Callable[[int], None] | None,
    samples: Sequence[int],
) -> list[list[Hypothesis]]:
    """Search as `search` does, drawing the sample of the given number for each request."""
    found: list[list[Hypothesis]] = [[] for _ in requests]
    for width, rows in queues(requests):
        sentences = [
            make_sentence(each, options, _seed(options.sampling, sample, each.source))
            for each, sample in ((requests[i], samples[i]) for i in rows)
        ]
        sources = [each.source for each in sentences]
        sizes = tile_sizes(model, sources, width, options.size, device)
        queue = _Queue(model, sentences, width, sizes, device)
        try:
            for n, hypotheses in _search_queue(queue, options):
                found[rows[n]] = hypotheses
                if on_found is not None:
                    on_found(rows[n])
        except NonFiniteError as error:
            raise NonFiniteError(rows[error.sentence], error.value) from None
    return found


def _search_samples(
    model: Model,
    requests: Sequence[Request],
    options: SearchOptions,
    device: torch.device,
    on_found: Callable[[int], None] | None,
    count: int,
) -> list[list[Hypothesis]]:
    """Return `count` samples of each request, in the order of their numbers."""
    assert options.sampling is not None
    rows = [i for i in range(len(requests)) for _ in range(count)]
    once = options._replace(sampling=options.sampling._replace(samples=1))
    left = [count] * len(requests)

    def count_down(number: int) -> None:
        left[rows[number]] -= 1
        if not left[rows[number]] and on_found is not None:
            on_found(rows[number])

    try:
        repeated, samples = [requests[i] for i in rows], [*range(count)] * len(requests)
        found = _search(model, repeated, once, device, count_down, samples)
    except NonFiniteError as error:
        raise NonFiniteError(rows[error.sentence], error.value) from None
    return [
        [hypothesis for each in found[start : start + count] for hypothesis in each]
        for start in range(0, len(found), count)
    ]


def _seed(sampling: Sampling | None, sample: int, source: Ids) -> str:
    """Return the seed of a sample: it depends on the sentence, not on the others."""
    return "" if sampling is None else f"{sampling.seed} {sample} {' '.join(map(str, source))}"


@torch.inference_mode()
def _search_queue(
    queue: "_Queue", options: SearchOptions
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield the number and the hypotheses of each sentence of a queue as its search ends."""
    sentences, tile_size = queue.sentences, len(queue.slots)
    constraints = search_constraints(options, [each.prefix for each in sentences])
    greedy = options.size == 1 and not sentences[0].lexical.phrases
    kind: type[ContinuousBatch] = GreedySearch if greedy else BeamSearch
    if options.sampling is not None:
        kind = SampledSearch
    batch = kind(queue.model, *queue.tile, queue.slots, options, constraints)
    entering, _ = queue.take(tile_size)  # the first tile is already in the slots
    batch.enter(range(len(entering)), [sentences[n] for n in entering])
    sentence_in = dict(enumerate(entering))  # slot -> sentence
    while queue.waiting or sentence_in:
        while queue.waiting and len(free := batch.rows.free()) >= max(1, tile_size // REFILL):
            entering, rows = queue.take(len(free))
            filled = free[: len(entering)]
            batch.put(filled, [sentences[n] for n in entering], *queue.tile, rows)
            sentence_in |= zip(filled, entering, strict=True)
        try:
            finished = batch.step()
        except NonFiniteError as error:
            raise NonFiniteError(sentence_in[error.sentence], error.value) from None
        for slot, hypotheses in finished:
            yield sentence_in.pop(slot), hypotheses
        size = smallest_fitting(queue.sizes, len(sentence_in))
        if not queue.waiting and size < len(batch.rows.limits):
            kept = enumerate(batch.shrink(size))
            sentence_in = {new: sentence_in[old] for new, old in kept if old in sentence_in}


@dataclass
class _Queue:
    """Sentences of one padded length, encoded one tile at a time."""

    model: Model
    sentences: Sequence[Sentence]
    width: int
    sizes: Sequence[int]
    device: torch.device

    def __post_init__(self) -> None:
        self.waiting = len(self.sentences)
        self.slots = torch.arange(smallest_fitting(self.sizes, self.waiting), device=self.device)
        self.tile = self._encode(0)

    @torch.inference_mode()
    def _encode(self, start: int) -> tuple[Any, Any]:
        """Return the memory and state of the tile that starts with this sentence."""
        entering = self.sentences[start : start + len(self.slots)]
        sources = [sentence.source for sentence in entering]
        empty: list[Ids] = [[]] * (smallest_fitting(self.sizes, len(sources)) - len(sources))
        src, src_lengths = pad_sources([*sources, *empty], self.width)
        return self.model.start(self.model.encode(src.to(self.device), src_lengths.to(self.device)))

    def take(self, most: int) -> tuple[range, slice]:
        """Take at most `most` sentences of the current tile; return them and their rows in it."""
        start = len(self.sentences) - self.waiting
        row = start % len(self.slots)
        if start and row == 0:
            self.tile = self._encode(start)
        count = min(most, self.waiting, len(self.slots) - row)
        self.waiting -= count
        return range(start, start + count), slice(row, row + count)
