"""Strategies of search over arrays of all slots: greedy, sampling, beams and groups of beams."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.engine import Array, Best, Engine, EngineStep
from seq2seq.inference.search.interface import (
    MAX_FACTOR,
    MIN_COVERAGE,
    Hypothesis,
    SearchOptions,
)
from seq2seq.inference.search.rule_states import RuleStates
from seq2seq.inference.search.sentences import Sentence
from seq2seq.inference.search.trail import Trail


def length_penalty(lengths: Array, exponent: float) -> Array:
    """Return `length ** exponent` [...], by which log-probabilities are divided."""
    with np.errstate(over="ignore"):
        norms: Array = np.minimum(lengths.astype(np.float64) ** exponent, MAX_FACTOR)
    return norms


def coverage_penalty(coverage: Array, lengths: Array, factor: float) -> Array:
    """Return `beta * sum_s log(min(sum_t a_ts, 1))`: [..., S] -> [...]; Wu et al. (2016), eq. 14.

    `lengths` [...] are those of the sources. Unlike in the paper end-of-sentence is among the
    positions s, and those with less than MIN_COVERAGE count as if they had that much. Otherwise one
    position outside a local attention window would outweigh everything else.
    """
    logs = np.log(coverage.clip(MIN_COVERAGE, 1))
    logs[np.arange(logs.shape[-1]) >= lengths[..., None]] = 0
    penalties: Array = min(factor, MAX_FACTOR) * logs.sum(axis=-1)
    return penalties


class Slots:
    """Sentences in search: arrays over all slots [B]; an empty slot has limit 0."""

    def __init__(self, count: int) -> None:
        self.sentences = np.full(count, -1)  # numbers; -1: empty
        self.lengths = np.zeros(count, np.int64)  # tokens so far
        self.limits = np.zeros(count, np.int64)  # tokens at most, end-of-sentence included
        self.sources = np.ones(count, np.int64)  # source tokens, end-of-sentence included
        self.starts = np.zeros(count, np.int64)  # number of the first step
        self.ends = np.zeros(count, np.int64)  # number of the step after the last, once it is done

    def begin(self, slots: Array, entering: Sequence[tuple[int, Sentence]], step: int) -> None:
        """Start sentences, given with their numbers, in slots."""
        self.sentences[slots] = [number for number, _ in entering]
        self.limits[slots] = [sentence.limit for _, sentence in entering]
        self.sources[slots] = [len(sentence.source) + 1 for _, sentence in entering]
        self.lengths[slots], self.starts[slots] = 0, step

    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""
        for name, values in vars(self).items():
            setattr(self, name, values[slots])


class Selection(NamedTuple):
    """Continuations of all hypotheses, and the slots whose search ends with them."""

    tokens: Array  # [B, K]
    parents: Array | None  # [B, K], within a slot; None: each continues itself
    log_probs: Array  # [B, K] of the tokens, nats
    best: Array  # [B], the best score before the choice, to be finite
    done: Array  # [B]


class Strategy(ABC):
    """Choice of continuations, with a state for each slot."""

    def __init__(self, engine: Engine, options: SearchOptions, slots: Slots, trail: Trail) -> None:
        self.engine, self.options, self.slots, self.trail = engine, options, slots, trail

    @abstractmethod
    def begin(self, slots: Array, sentences: Sequence[Sentence]) -> None:
        """Reset the state of slots that sentences enter."""

    @abstractmethod
    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""

    @abstractmethod
    def choose(self, step: EngineStep, rules: RuleStates) -> Selection:
        """Choose the continuations; the lengths of the slots include the token to be chosen."""

    @abstractmethod
    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """Return the hypotheses of slots whose search has ended, best first."""


class Greedy(Strategy):
    """Take the most probable token at every step until end-of-sentence."""

    def begin(self, slots: Array, sentences: Sequence[Sentence]) -> None:
        pass

    def keep(self, slots: Array) -> None:
        pass

    def choose(self, step: EngineStep, rules: RuleStates) -> Selection:  # noqa: ARG002
        best = self._next(step)
        values, tokens = best.log_probs[:, 0], best.tokens[:, 0]
        done = tokens == EOS_ID
        stuck = (self.slots.lengths >= self.slots.limits) & ~done  # end-of-sentence alone may be
        checked = np.where(stuck, np.float32(-np.inf), values) if stuck.any() else values
        return Selection(best.tokens, None, best.log_probs, checked, done)

    def _next(self, step: EngineStep) -> Best:
        """Return the next token of each hypothesis: [N, 1]."""
        return self.engine.best(step, np.zeros((len(self.slots.lengths), 1), np.float32), 1)

    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        starts, ends = self.slots.starts[slots], self.slots.ends[slots]
        norms = length_penalty(ends - starts, self.options.length_penalty)
        columns = zip(slots, starts.tolist(), ends.tolist(), norms.tolist(), strict=True)
        return [[self._hypothesis(*column)] for column in columns]

    def _hypothesis(self, slot: int, start: int, end: int, norm: float) -> Hypothesis:
        ids = self.trail.path("tokens", slot, start, end)
        same = np.zeros(len(ids), int)
        attention = self.trail.attention(slot, same, start, self.slots.sources[slot])
        if not self.options.return_scores:
            return Hypothesis(ids, math.nan, attention)
        log_probs = self.trail.path("log_probs", slot, start, end)
        return Hypothesis(ids, total_of(log_probs) / norm, attention, tuple(log_probs))


class Sampled(Greedy):
    """Draw each token; a sentence is drawn alike in any batch.

    A token is drawn by inverting the distribution function at one uniform number per position,
    from a generator that the seed, the source and the number of the sample determine.
    """

    def __init__(self, engine: Engine, options: SearchOptions, slots: Slots, trail: Trail) -> None:
        super().__init__(engine, options, slots, trail)
        self._generators = [random.Random(0) for _ in slots.lengths]

    def begin(self, slots: Array, sentences: Sequence[Sentence]) -> None:
        for slot, sentence in zip(slots.tolist(), sentences, strict=True):
            self._generators[slot] = random.Random(sentence.seed)

    def keep(self, slots: Array) -> None:
        self._generators = [self._generators[slot] for slot in slots.tolist()]

    def _next(self, step: EngineStep) -> Best:
        assert self.options.sampling is not None, "how to sample is an option of this search"
        numbers = np.array([generator.random() for generator in self._generators])
        return self.engine.draw(step, self.options.sampling, numbers)


def rows_of(parents: Array) -> Array:
    """Return the rows of hypotheses that are numbered within their slots: [B, K]."""
    rows: Array = parents + np.arange(len(parents))[:, None] * parents.shape[1]
    return rows


def spread(slots: Array, count: int) -> Array:
    """Return the `count` places of each slot [M]: [M * count]."""
    return (slots[:, None] * count + np.arange(count)).ravel()


def total_of(log_probs: Sequence[float]) -> float:
    """Return a sum in order; `sum` compensates from Python 3.12 on."""
    total = 0.0
    for value in log_probs:
        total += value
    return total
