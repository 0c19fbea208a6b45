"""Search over many sentences by an engine: ids in, ids out.

Sentences of one padded length are searched together in slots, each at a step of its own. A finished
sentence frees its slot for the next; when none is left, the batch shrinks.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from seq2seq.data.vocabulary.vocabulary import BOS_ID, Ids
from seq2seq.engines.engine import Engine, StepOptions
from seq2seq.inference.search.beam import Beam, DiverseBeam, PhraseBeam
from seq2seq.inference.search.interface import (
    Hypothesis,
    NonFiniteError,
    SearchOptions,
)
from seq2seq.inference.search.rules import RuleStates, rules_of
from seq2seq.inference.search.sentences import Request, Sentence, make_sentence, queues
from seq2seq.inference.search.strategies import (
    Greedy,
    Sampled,
    Slots,
    Strategy,
    rows_of,
    spread,
)
from seq2seq.inference.search.trail import Trail

REFILL = 8  # slots are refilled once 1 / REFILL of them are empty


def search(
    engine: Engine,
    requests: Sequence[Request],
    options: SearchOptions,
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
    samples = options.sampling.samples if options.sampling else 1
    repeated = [(request, sample) for request in requests for sample in range(samples)]
    results: list[list[Hypothesis]] = [[] for _ in repeated]
    missing = [samples] * len(requests)
    for width, numbers in queues([request for request, _ in repeated]):
        sentences = [_sentence(*repeated[n], options) for n in numbers]
        try:
            for place, hypotheses in _Batch(engine, sentences, width, options).run():
                number = numbers[place]
                results[number] = hypotheses
                missing[number // samples] -= 1
                if not missing[number // samples] and on_found is not None:
                    on_found(number // samples)
        except NonFiniteError as error:
            raise NonFiniteError(numbers[error.sentence] // samples, error.value) from None
    return [
        [hypothesis for hypotheses in results[start : start + samples] for hypothesis in hypotheses]
        for start in range(0, len(results), samples)
    ]


def _sentence(request: Request, sample: int, options: SearchOptions) -> Sentence:
    """Return a sentence; what is drawn for it depends on it alone, not on the others."""
    if options.sampling is None:
        return make_sentence(request, options)
    source = " ".join(map(str, request.source))
    return make_sentence(request, options, f"{options.sampling.seed} {sample} {source}")


class _Batch:
    """Slots of one padded length, filled with sentences from a queue."""

    def __init__(
        self, engine: Engine, sentences: Sequence[Sentence], width: int, options: SearchOptions
    ) -> None:
        self.engine, self.sentences, self.width, self.options = engine, sentences, width, options
        self.entered = self.first_encoded = self.encoded_until = 0  # sentences
        count = engine.slots(width, options.size, len(sentences))
        self.slots, self.trail = Slots(count), Trail(count, options.size)
        kind = _strategy(sentences[0], options)
        self.strategy: Strategy = kind(engine, options, self.slots, self.trail)
        self.rules = RuleStates(rules_of(options), options, count, engine.vocabulary_size)
        self.encoded = self._encode()
        self.rows = engine.spread(self.encoded, options.size, _step_options(kind, options))
        self.ids = np.full(count * options.size, BOS_ID)
        self._begin(range(min(count, len(sentences))))

    def run(self) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the number and the hypotheses of each sentence after its search has ended."""
        while (self.slots.limits > 0).any():
            self._step()
            yield from self._pop()

    def _encode(self) -> object:
        """Encode the next sentences, as many as fit into the slots."""
        count = len(self.slots.limits)
        start = self.encoded_until
        sources: list[Ids] = [each.source for each in self.sentences[start : start + count]]
        self.encoded_until += len(sources)
        padded = self.engine.slots(self.width, self.options.size, len(sources))
        sources += [[]] * (padded - len(sources))
        return self.engine.encode(sources, self.width)

    def _begin(self, slots: Sequence[int]) -> None:
        """Start the next sentences in slots that hold their rows."""
        for slot in slots:
            sentence = self.sentences[self.entered]
            self.slots.begin(slot, self.entered, sentence, self.trail.end)
            self.rules.begin(slot, sentence)
            self.strategy.begin(slot, sentence)
            self.entered += 1

    def _step(self) -> None:
        slots = self.slots
        step = self.engine.step(self.rows, self.ids)
        self.engine.mask(step, self.rules.mask(slots.lengths, slots.limits))
        busy = slots.limits > 0
        slots.lengths += busy
        choice = self.strategy.choose(step, self.rules)
        self._check_finite(choice.best, busy)
        attention = step.attention if self.options.return_attention else None
        self.trail.append(choice.tokens, choice.parents, choice.log_probs, attention)
        self.ids, self.rows = choice.tokens.ravel(), step.rows
        if choice.parents is None:
            self.rules.advance(choice.tokens, np.zeros_like(choice.tokens))
        else:
            self.rows = self.engine.select(self.rows, rows_of(choice.parents).ravel())
            self.rules.advance(choice.tokens, choice.parents)
        done = choice.done & busy
        slots.ends[done], slots.limits[done] = self.trail.end, 0
        self.rules.end(np.flatnonzero(done).tolist())

    def _check_finite(self, values: np.ndarray, busy: np.ndarray) -> None:
        """Raise NonFiniteError if the best value of a slot [B] that holds a sentence is not finite.

        No comparison orders nan, and a sentence without a possible token would never end.
        """
        undefined = busy & ~np.isfinite(values)
        if undefined.any():
            slot = undefined.argmax()
            raise NonFiniteError(int(self.slots.sentences[slot]), float(values[slot]))

    def _pop(self) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the sentences that are done, and fill their slots, once these are enough."""
        slots = self.slots
        free = np.flatnonzero(slots.limits == 0)
        busy = len(slots.limits) - len(free)
        if not busy or len(free) >= max(1, len(slots.limits) // REFILL):
            done = free[slots.sentences[free] >= 0].tolist()
            found = self.strategy.hypotheses(done) if done else []
            yield from zip(slots.sentences[done].tolist(), found, strict=True)
            slots.sentences[done] = -1
            self._fill(free)
        oldest = slots.starts[slots.sentences >= 0].min(initial=self.trail.end)
        self.trail.make_room(int(oldest))

    def _fill(self, free: np.ndarray) -> None:
        """Start the next sentences in free slots; drop those slots that are not needed."""
        while len(free) and self.entered < len(self.sentences):
            if self.entered == self.encoded_until:
                self.encoded = self._encode()
                self.first_encoded = self.entered
            count = min(len(free), self.encoded_until - self.entered)
            taken = np.arange(count) + self.entered - self.first_encoded
            into, free = free[:count], free[count:]
            self.rows = self.engine.put(self.rows, into, self.encoded, taken)
            self.ids[spread(into, self.options.size)] = BOS_ID
            self._begin(into.tolist())
        busy = len(self.slots.limits) - len(free)
        needed = self.engine.slots(self.width, self.options.size, max(busy, 1))
        if self.entered == len(self.sentences) and busy and needed < len(self.slots.limits):
            used = np.flatnonzero(self.slots.limits > 0)
            self._keep(np.concatenate([used, free])[:needed])

    def _keep(self, slots: np.ndarray) -> None:
        """Drop all other slots and renumber these in the given order."""
        self.rows = self.engine.keep(self.rows, slots)
        self.ids = self.ids[spread(slots, self.options.size)]
        for part in (self.slots, self.trail, self.strategy):
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
    return Greedy if options.size == 1 else Beam


def _step_options(kind: type[Strategy], options: SearchOptions) -> StepOptions:
    """Return what a search reads of each step."""
    reads_scores = options.return_scores or options.repetition_penalty != 1
    return StepOptions(
        options.forbidden_ids,
        log_probs=kind is not Greedy or reads_scores,
        attention=options.return_attention or bool(options.coverage_penalty),
    )
