"""Search over many sentences by an engine: ids in, ids out.

Sentences of one padded length are searched together in slots, each at a step of its own. A finished
sentence frees its slot for the next; when none is left, the batch shrinks. Threads search batches
side by side where the engine gains by that.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event
from typing import NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import BOS_ID, Ids
from seq2seq.engines.engine import Array, Engine, Rows, StepOptions, spread
from seq2seq.inference.search.beam import Beam, DiverseBeam, PhraseBeam
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, Request, SearchOptions
from seq2seq.inference.search.rules import RuleStates, rules_of
from seq2seq.inference.search.sentences import Sentence, SlotTable, make_sentence, queues
from seq2seq.inference.search.strategies import Greedy, Sampled, Strategy, Trail, rows_of
from seq2seq.runtime import cancellation, errors

REFILL = 8  # slots are refilled once 1 / REFILL of them are empty

Entry = tuple[int, Sentence]  # with its number
Found = tuple[int, list[Hypothesis]]  # likewise


def search(
    engine: Engine,
    requests: Sequence[Request],
    options: SearchOptions,
    on_found: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return at most `options.beam_size` hypotheses for each request, best first.

    No hypothesis is empty or longer than its limit, which counts from the end of a prefix that
    leaves no room. No n-gram of `no_repeat_ngram` tokens occurs twice, except in a prefix.
    Hypotheses contain the phrases of `lexical`, which raises the limit if they need more room, and
    which only a prefix overrides. With sampling, there are as many hypotheses as samples, in the
    order in which they were drawn. Where the rules together leave no next token, there are none.
    `on_found` is called with the number of each request whose search has ended. Raises
    NonFiniteError if the log-probabilities of a sentence are not finite.
    """
    samples = options.sampling.samples if options.sampling else 1
    sentences = [
        make_sentence(request, options, sample) for request in requests for sample in range(samples)
    ]
    results: list[list[Hypothesis]] = [[] for _ in sentences]
    unfinished_samples = [samples] * len(requests)
    workers = engine.workers(len(sentences))
    waiting_queues = [
        _Queue(width, deque((number, sentences[number]) for number in numbers), workers)
        for width, numbers in queues(sentences)
    ]
    try:
        for number, hypotheses in _side_by_side(engine, waiting_queues, options, workers):
            results[number] = hypotheses
            unfinished_samples[number // samples] -= 1
            if not unfinished_samples[number // samples] and on_found is not None:
                on_found(number // samples)
    except NonFiniteError as error:
        raise NonFiniteError(error.sentence // samples, error.value) from None
    return [
        [hypothesis for hypotheses in results[start : start + samples] for hypothesis in hypotheses]
        for start in range(0, len(results), samples)
    ]


class _Queue(NamedTuple):
    """Sentences of one padded width that wait for a slot."""

    width: int
    entries: deque[Entry]
    workers: int  # threads that take them

    @property
    def share(self) -> int:
        """Return the number of sentences that one thread should take next, at most."""
        return -(-len(self.entries) // self.workers)

    def take(self, count: int) -> list[Entry]:
        """Return the next sentences, fewer or none if other threads have taken them."""
        entries: list[Entry] = []
        with suppress(IndexError):
            while len(entries) < count:
                entries.append(self.entries.popleft())
        return entries


def _side_by_side(
    engine: Engine, waiting_queues: Sequence[_Queue], options: SearchOptions, workers: int
) -> Iterator[Found]:
    """Search queues in several threads; yield what these find."""
    if workers <= 1:
        yield from _results(engine, waiting_queues, options)
        return
    results: SimpleQueue[Found | Future[None]] = SimpleQueue()
    is_over = Event()

    def work() -> None:
        for result in _results(engine, waiting_queues, options):
            results.put(result)
            if is_over.is_set():
                break

    with ThreadPoolExecutor(workers) as pool:
        for _ in range(workers):
            pool.submit(copy_context().run, work).add_done_callback(results.put)
        try:
            while workers:
                result = results.get()
                if isinstance(result, Future):
                    result.result()  # raises its error
                    workers -= 1
                else:
                    yield result
        finally:
            is_over.set()


def _results(
    engine: Engine, waiting_queues: Sequence[_Queue], options: SearchOptions
) -> Iterator[Found]:
    """Search queues, or what other threads leave of them, one after the other."""
    for queue in waiting_queues:
        while entries := queue.take(engine.slot_count(queue.width, options.beam_size, queue.share)):
            unfinished = dict(entries)
            try:
                for number, hypotheses in _Batch(engine, queue, unfinished, options).run():
                    del unfinished[number]
                    yield number, hypotheses
            except (RuntimeError, MemoryError) as error:
                if not (errors.is_out_of_memory(error) and engine.shrink()):
                    raise
                queue.entries.extendleft(reversed(unfinished.items()))


class _Batch:
    """Slots of one padded width, filled with sentences from a queue.

    What it has taken from the queue and not finished is in `unfinished`, to be searched again.
    """

    def __init__(
        self, engine: Engine, queue: _Queue, unfinished: dict[int, Sentence], options: SearchOptions
    ) -> None:
        self.engine = engine
        self.queue = queue
        self.options = options
        self.unfinished = unfinished
        entries = list(unfinished.items())
        count = engine.slot_count(queue.width, options.beam_size, len(entries))
        self.table = SlotTable(count)
        self.trail = Trail()
        kind = _strategy(entries[0][1], options)
        self.strategy: Strategy = kind(engine, options, self.table, self.trail)
        self.rules = RuleStates(rules_of(options), options, self.table)
        self.encoded = self._encode(entries)
        self.rows = engine.spread(self.encoded, options.beam_size, _step_options(kind, options))
        self.ids = np.full(count * options.beam_size, BOS_ID)
        self._begin(np.arange(len(entries)), entries)
        self.encoded_entries = deque[tuple[int, Entry]]()  # next, with their rows of `encoded`

    def run(self) -> Iterator[Found]:
        """Yield the number and the hypotheses of each sentence after its search has ended."""
        while (self.table.limits > 0).any():
            self._step()
            yield from self._pop()

    def _encode(self, entries: Sequence[Entry]) -> Rows:
        """Encode sentences, and empty ones up to a number of slots."""
        count = self.engine.slot_count(self.queue.width, self.options.beam_size, len(entries))
        sources: list[Ids] = [sentence.source for _, sentence in entries]
        return self.engine.encode(sources + [[]] * (count - len(sources)), self.queue.width)

    def _begin(self, slots: Array, entries: Sequence[Entry]) -> None:
        """Start sentences in slots that hold their rows."""
        sentences = [sentence for _, sentence in entries]
        self.table.begin(slots, entries, self.trail.end)
        self.strategy.begin(slots, sentences)
        for slot, sentence in zip(slots.tolist(), sentences, strict=True):
            self.rules.begin(slot, sentence)

    def _step(self) -> None:
        """Advance all hypotheses by one token, and free the slots whose sentence is done."""
        cancellation.check_cancelled()
        table = self.table
        step = self.engine.step(self.rows, self.ids)
        self.engine.mask(step, self.rules.mask(step))
        is_busy = table.limits > 0
        table.lengths += is_busy
        selection = self.strategy.choose(step, self.rules)
        dead_ends = self.rules.dead_ends & is_busy
        self._check_finite(selection.best_scores, is_busy & ~dead_ends)
        attention = step.attention if self.options.return_attention else None
        self.trail.append(selection, attention)
        self.ids = selection.tokens.ravel()
        self.rows = step.rows
        parents = selection.parents
        if parents is None:
            parents = np.zeros_like(selection.tokens)
        else:
            self.rows = self.engine.select(self.rows, rows_of(parents).ravel())
        self.rules.advance(selection.tokens, parents, selection.log_probs)
        is_done = selection.is_done & is_busy | dead_ends
        table.dead_ends |= dead_ends
        table.ends[is_done] = self.trail.end
        table.limits[is_done] = 0
        self.rules.end(np.flatnonzero(is_done).tolist())

    def _check_finite(self, best_scores: Array, is_busy: Array) -> None:
        """Raise NonFiniteError if the best score of a slot [B] that holds a sentence is not finite.

        No comparison orders nan, and a sentence without a possible token would never end, unless
        rules left none.
        """
        is_undefined = is_busy & ~np.isfinite(best_scores)
        if is_undefined.any():
            slot = is_undefined.argmax()
            raise NonFiniteError(int(self.table.sentence_numbers[slot]), float(best_scores[slot]))

    def _pop(self) -> Iterator[Found]:
        """Yield the sentences that are done, and fill their slots, once these are enough."""
        table = self.table
        free_slots = np.flatnonzero(table.limits == 0)
        is_over = len(free_slots) == len(table)
        if is_over or len(free_slots) >= max(1, len(table) // REFILL):
            ended = free_slots[table.sentence_numbers[free_slots] >= 0].tolist()
            lists = self.strategy.hypotheses(ended) if ended else []
            yield from zip(table.sentence_numbers[ended].tolist(), lists, strict=True)
            table.sentence_numbers[ended] = -1
            self._fill(free_slots)
        oldest = table.starts[table.sentence_numbers >= 0].min(initial=self.trail.end)
        self.trail.make_room(int(oldest))

    def _fill(self, free_slots: Array) -> None:
        """Start the next sentences in free slots; drop those slots that are not needed."""
        while len(free_slots):
            if not self.encoded_entries and not self._encode_next(len(free_slots)):
                break
            number = min(len(free_slots), len(self.encoded_entries))
            next_entries = [self.encoded_entries.popleft() for _ in range(number)]
            rows, entries = zip(*next_entries, strict=True)
            slots = free_slots[:number]
            free_slots = free_slots[number:]
            self.rows = self.engine.put(self.rows, slots, self.encoded, np.array(rows))
            self.ids[spread(slots, self.options.beam_size)] = BOS_ID
            self._begin(slots, entries)
        busy_count = len(self.table) - len(free_slots)
        needed = self.engine.slot_count(
            self.queue.width, self.options.beam_size, max(busy_count, 1)
        )
        needed = max(needed, busy_count)  # another search may have shrunk the engine meanwhile
        if busy_count and needed < len(self.table):
            busy_slots = np.flatnonzero(self.table.limits > 0)
            self._keep(np.concatenate([busy_slots, free_slots])[:needed])

    def _encode_next(self, free_count: int) -> bool:
        """Encode the next sentences of the queue, for free slots at least; False if it is empty."""
        count = min(len(self.table), max(free_count, self.queue.share))
        entries = self.queue.take(count)
        if not entries:
            return False
        self.unfinished.update(entries)
        self.encoded = self._encode(entries)
        self.encoded_entries.extend(enumerate(entries))
        return True

    def _keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""
        self.rows = self.engine.keep(self.rows, slots)
        self.ids = self.ids[spread(slots, self.options.beam_size)]
        for part in (self.table, self.trail, self.strategy):
            part.keep(slots)
        self.rules.keep(slots.tolist())


def _strategy(sentence: Sentence, options: SearchOptions) -> type[Strategy]:
    """Return the strategy for a queue of sentences: all of them have phrases, or none."""
    if options.sampling is not None:
        return Sampled
    if sentence.lexical.phrases:
        return PhraseBeam
    if options.groups > 1:
        return DiverseBeam
    return Greedy if options.beam_size == 1 else Beam


def _step_options(kind: type[Strategy], options: SearchOptions) -> StepOptions:
    """Return what a search reads of each step."""
    reads_scores = options.return_scores or options.repetition_penalty != 1
    return StepOptions(
        () if kind is PhraseBeam else options.forbidden_ids,  # a phrase may have these
        log_probs=kind is not Greedy or reads_scores,
        attention=options.return_attention or bool(options.coverage_penalty),
    )
