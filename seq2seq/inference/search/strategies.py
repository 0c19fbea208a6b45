"""Strategies of search over arrays of all slots: greedy, sampling, beams and groups of beams."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.engine import Array, Best, Engine, EngineStep
from seq2seq.inference.search.interface import Hypothesis, SearchOptions
from seq2seq.inference.search.rules import RuleStates
from seq2seq.inference.search.sentences import Sentence, SlotTable

MIN_COVERAGE = 1e-4  # summed attention assumed for neglected source positions
MAX_FACTOR = 1e30  # larger penalties and norms overflow in float32: scores would be equal or nan


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


STEPS = 64  # allocated at first


class Selection(NamedTuple):
    """Continuations of all hypotheses, and the slots whose search ends with them."""

    tokens: Array  # [B, K]
    parents: Array | None  # [B, K], within a slot; None: each continues itself
    log_probs: Array  # [B, K] of the tokens, nats
    best_scores: Array  # [B], before the choice, to be finite
    is_done: Array  # [B]


class Path(NamedTuple):
    """Steps that led to a hypothesis, first to last."""

    tokens: list[int]  # [T]
    log_probs: list[float]  # [T], of the tokens, nats
    hypotheses: list[int]  # [T + 1], continued by the tokens, and the last one: numbers in a slot


class Trail:
    """Steps since a slot's oldest sentence started, numbered from the start of the search.

    Attention weights are those of the hypotheses before the choice, and so belong to the parents.
    """

    def __init__(self) -> None:
        self.first = self.end = 0  # numbers of the first step and of the next
        self._parts: dict[str, Array] = {}  # [STEPS or more, B, K] or [STEPS or more, B, K, S]

    def append(self, selection: Selection, attention: Array | None) -> None:
        """Add a step, and its attention weights [B K, S], if they are read."""
        if attention is not None:
            attention = attention.reshape(*selection.tokens.shape, -1)
        self._set("tokens", selection.tokens)
        self._set("parents", selection.parents)
        self._set("log_probs", selection.log_probs)
        self._set("attention", attention)
        self.end += 1

    def _set(self, name: str, part: Array | None) -> None:
        """Set a part of the next step, if it has that part."""
        if part is None:
            return
        if name not in self._parts:
            self._parts[name] = np.zeros((STEPS, *part.shape), part.dtype)
        self._parts[name][self.end - self.first] = part

    def make_room(self, oldest: int) -> None:
        """Make room for a step, in place of those before the step `oldest`."""
        dropped_steps = oldest - self.first
        used_steps = self.end - oldest
        if dropped_steps + used_steps == len(self._parts["tokens"]):
            for name, part in self._parts.items():
                free_places = np.zeros_like(part[: max(dropped_steps, used_steps)])
                self._parts[name] = np.concatenate([part[dropped_steps:], free_places])
            self.first = oldest

    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""
        self._parts = {name: part[:, slots] for name, part in self._parts.items()}

    def path(self, name: str, slot: int, start: int, end: int) -> list[Any]:
        """Return the tokens or log-probabilities of a slot's only hypothesis."""
        path: list[Any] = self._parts[name][start - self.first : end - self.first, slot, 0].tolist()
        return path

    def trace(self, slots: Array, hypotheses: Array, steps: Array, lengths: Array) -> list[Path]:
        """Trace M hypotheses back from their places in `slots` [M] before `steps` [M].

        All are traced for as many steps as the longest has, and cut to their `lengths` [M].
        """
        longest = int(lengths.max(initial=0))
        steps_back = np.arange(longest, 0, -1)[:, None]
        places = np.maximum(steps - self.first - steps_back, 0)  # [T, M]
        rows = np.empty((longest + 1, len(slots)), np.int64)
        rows[longest] = hypotheses
        for n in reversed(range(longest)):
            rows[n] = self._parts["parents"][places[n], slots, rows[n + 1]]
        tokens = self._parts["tokens"][places, slots, rows[1:]].T.tolist()
        log_probs = self._parts["log_probs"][places, slots, rows[1:]].T.tolist()
        return [
            Path(*(column[longest - length :] for column in columns))
            for length, *columns in zip(
                lengths.tolist(), tokens, log_probs, rows.T.tolist(), strict=True
            )
        ]

    def attention(self, slot: int, hypotheses: Any, start: int, width: int) -> Array | None:
        """Return the weights [T, S] of a path: of these hypotheses [T] of a slot from a step on."""
        if "attention" not in self._parts:
            return None
        steps = np.arange(len(hypotheses)) + (start - self.first)
        weights: Array = self._parts["attention"][steps, slot, hypotheses, :width]
        return weights


class Strategy(ABC):
    """Choice of continuations, with a state for each slot."""

    def __init__(
        self, engine: Engine, options: SearchOptions, table: SlotTable, trail: Trail
    ) -> None:
        self.engine = engine
        self.options = options
        self.table = table
        self.trail = trail

    def begin(self, slots: Array, sentences: Sequence[Sentence]) -> None:  # noqa: B027
        """Reset the state of slots that sentences enter, if there is one."""

    def keep(self, slots: Array) -> None:  # noqa: B027
        """Drop all other slots and renumber these in the given order."""

    @abstractmethod
    def choose(self, step: EngineStep, rules: RuleStates) -> Selection:
        """Choose the continuations; the lengths of the slots include the token to be chosen."""

    @abstractmethod
    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """Return the hypotheses of slots whose search has ended, best first."""


class Greedy(Strategy):
    """Take the most probable token at every step until end-of-sentence."""

    def choose(self, step: EngineStep, rules: RuleStates) -> Selection:  # noqa: ARG002
        best = self._next(step)
        best_scores = best.log_probs[:, 0]
        is_done = best.tokens[:, 0] == EOS_ID
        is_stuck = (self.table.lengths >= self.table.limits) & ~is_done  # only EOS may follow
        if is_stuck.any():
            best_scores = np.where(is_stuck, np.float32(-np.inf), best_scores)
        return Selection(best.tokens, None, best.log_probs, best_scores, is_done)

    def _next(self, step: EngineStep) -> Best:
        """Return the next token of each hypothesis: [N, 1]."""
        return self.engine.best(step, np.zeros((len(self.table), 1), np.float32), 1)

    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        starts = self.table.starts[slots]
        ends = self.table.ends[slots]
        norms = length_penalty(ends - starts, self.options.length_penalty)
        columns = zip(slots, starts.tolist(), ends.tolist(), norms.tolist(), strict=True)
        dead_ends = self.table.dead_ends[slots]
        return [
            [] if is_dead_end else [self._hypothesis(*column)]
            for column, is_dead_end in zip(columns, dead_ends, strict=True)
        ]

    def _hypothesis(self, slot: int, start: int, end: int, norm: float) -> Hypothesis:
        ids = self.trail.path("tokens", slot, start, end)
        attention = self.trail.attention(
            slot, [0] * len(ids), start, self.table.source_lengths[slot]
        )
        if not self.options.return_scores:
            return Hypothesis(ids, math.nan, attention)
        log_probs = self.trail.path("log_probs", slot, start, end)
        return Hypothesis(ids, total_of(log_probs) / norm, attention, tuple(log_probs))


class Sampled(Greedy):
    """Draw each token; a sentence is drawn alike in any batch.

    A token is drawn by inverting the distribution function at one uniform number per position,
    from a generator that the seed, the source and the number of the sample determine.
    """

    def __init__(
        self, engine: Engine, options: SearchOptions, table: SlotTable, trail: Trail
    ) -> None:
        super().__init__(engine, options, table, trail)
        self._generators = [random.Random(0) for _ in range(len(table))]

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


def total_of(log_probs: Sequence[float]) -> float:
    """Return a sum in order; `sum` compensates from Python 3.12 on."""
    total = 0.0
    for value in log_probs:
        total += value
    return total
