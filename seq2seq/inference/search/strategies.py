"""Strategies of search over arrays of all slots: greedy, sampling, beams and groups of beams."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.engine import Array, Best, Engine, Step
from seq2seq.inference.search.banks import Continuation, chosen_from_banks
from seq2seq.inference.search.interface import (
    MAX_FACTOR,
    MIN_COVERAGE,
    Hypothesis,
    SearchOptions,
)
from seq2seq.inference.search.rules import Phrases, RuleStates
from seq2seq.inference.search.sentences import Sentence
from seq2seq.inference.search.trail import Trail


def length_penalty(lengths: Array, exponent: float) -> Array:
    """Return `length ** exponent` [...] in float32, by which log-probabilities are divided."""
    with np.errstate(over="ignore"):
        norms = lengths.astype(np.float32) ** np.float32(min(exponent, MAX_FACTOR))
    return np.minimum(norms, np.float32(MAX_FACTOR))


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

    def begin(self, slot: int, number: int, sentence: Sentence, step: int) -> None:
        """Start a sentence in a slot."""
        self.sentences[slot], self.limits[slot] = number, sentence.limit
        self.lengths[slot], self.starts[slot] = 0, step
        self.sources[slot] = len(sentence.source) + 1

    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""
        for name, values in vars(self).items():
            setattr(self, name, values[slots])


class Choice(NamedTuple):
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
    def begin(self, slot: int, sentence: Sentence) -> None:
        """Reset the state of a slot that a sentence enters."""

    @abstractmethod
    def keep(self, slots: Array) -> None:
        """Drop all other slots and renumber these in the given order."""

    @abstractmethod
    def choose(self, step: Step, rules: RuleStates) -> Choice:
        """Choose the continuations; the lengths of the slots include the token to be chosen."""

    @abstractmethod
    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        """Return the hypotheses of slots whose search has ended, best first."""


class Greedy(Strategy):
    """Take the most probable token at every step until end-of-sentence."""

    def begin(self, slot: int, sentence: Sentence) -> None:
        pass

    def keep(self, slots: Array) -> None:
        pass

    def choose(self, step: Step, rules: RuleStates) -> Choice:  # noqa: ARG002
        best = self._next(step)
        values, tokens = best.log_probs[:, 0], best.tokens[:, 0]
        done = tokens == EOS_ID
        stuck = (self.slots.lengths >= self.slots.limits) & ~done  # end-of-sentence alone may be
        checked = np.where(stuck, np.float32(-np.inf), values) if stuck.any() else values
        return Choice(best.tokens, None, best.log_probs, checked, done)

    def _next(self, step: Step) -> Best:
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

    def begin(self, slot: int, sentence: Sentence) -> None:
        self._generators[slot] = random.Random(sentence.seed)

    def keep(self, slots: Array) -> None:
        self._generators = [self._generators[slot] for slot in slots.tolist()]

    def _next(self, step: Step) -> Best:
        assert self.options.sampling is not None, "how to sample is an option of this search"
        numbers = np.array([generator.random() for generator in self._generators])
        return self.engine.draw(step, self.options.sampling, numbers)


class Beam(Strategy):
    """Keep the K best partial hypotheses per sentence; finished ones move to a pool.

    A sentence is finished at its limit, or once its pool holds K hypotheses and no partial
    hypothesis would score higher than the worst of them if it ended now, with the source fully
    covered. With a length penalty `a > 0` this bound is not admissible: the log-probability `P` of
    a hypothesis can only fall, but `P / length^a` may still rise (see docs/results/speed.md).

    Diverse beam search divides the hypotheses of a slot among groups, each with a pool of its own;
    arrays have a row for each of B G groups of W = K / G hypotheses.
    """

    def __init__(self, engine: Engine, options: SearchOptions, slots: Slots, trail: Trail) -> None:
        super().__init__(engine, options, slots, trail)
        self.width = options.size // options.groups
        shape = (len(slots.lengths) * options.groups, self.width)
        self._scores = np.full(shape, -np.inf, np.float32)  # partial hypotheses
        self._pool = np.full(shape, -np.inf, np.float32)  # finished hypotheses, best first
        self._pool_steps = np.zeros(shape, np.int64)  # number of the step that ended each
        self._pool_parents = np.zeros(shape, np.int64)  # hypothesis of the slot that it ended
        self._pool_log_probs = np.zeros(shape, np.float32)  # of end-of-sentence
        self._coverage: Array | None = None  # [N, S], summed attention of partial hypotheses

    def begin(self, slot: int, sentence: Sentence) -> None:  # noqa: ARG002
        groups = slice(slot * self.options.groups, (slot + 1) * self.options.groups)
        self._scores[groups], self._pool[groups] = -np.inf, -np.inf
        self._scores[groups, 0] = 0
        if self._coverage is not None:
            self._coverage[slot * self.options.size : (slot + 1) * self.options.size] = 0

    def keep(self, slots: Array) -> None:
        groups = spread(slots, self.options.groups)
        for name in ("_scores", "_pool", "_pool_steps", "_pool_parents", "_pool_log_probs"):
            setattr(self, name, getattr(self, name)[groups])
        if self._coverage is not None:
            self._coverage = self._coverage[spread(slots, self.options.size)]

    def choose(self, step: Step, rules: RuleStates) -> Choice:
        groups, width = self.options.groups, self.width
        best = self._candidates(step, rules)
        if self.options.coverage_penalty and step.attention is not None:
            before = 0 if self._coverage is None else self._coverage
            self._coverage = before + step.attention
        ends = best.tokens == EOS_ID
        lengths = np.maximum(self.slots.lengths, 1)  # of empty slots, too
        norms = length_penalty(lengths, self.options.length_penalty)
        norms = norms.repeat(groups) if groups > 1 else norms
        if len(ended := np.flatnonzero(ends[:, :width].any(axis=1))):
            self._add_to_pool(ended, best, ends, norms)
        self._scores, parents, tokens, log_probs = self._extended(best, ends, ended)
        done = self._pool[:, -1] >= self._scores[:, 0] / norms
        if groups > 1:
            done = done.reshape(-1, groups).all(axis=1)
            parents += self._offsets()
        done |= self.slots.lengths >= self.slots.limits
        shape = len(done), self.options.size
        tokens, parents = tokens.reshape(shape), parents.reshape(shape)
        if self._coverage is not None:
            self._coverage = self._coverage[rows_of(parents).ravel()]
        first = best.scores[::groups, 0]
        return Choice(tokens, parents, log_probs.reshape(shape), first, done)

    def _candidates(self, step: Step, rules: RuleStates) -> Best:
        """Return the best continuations of each group: [B G, 2 W]."""
        if self.options.groups > 1:
            return self._diverse(step)
        best = self.engine.best(step, self._scores, 2 * self.width)
        if phrases := rules.phrases():
            self._allocate(step, phrases, best)
        return best

    def _allocate(self, step: Step, phrases: Mapping[int, Sequence[Phrases]], best: Best) -> None:
        """Replace the candidates of sentences with phrases, in place, by those of their banks.

        These are the best of all hypotheses, the best of each, and all that advance a phrase.
        """
        size = self.options.size
        of_each = self.engine.best(step, self._scores.reshape(-1, 1), 1)
        advancing = [
            (slot * size + k, token)
            for slot, hypotheses in phrases.items()
            for k, (lexical, progress) in enumerate(hypotheses)
            for token in lexical.advancing(progress)
        ]
        rows, tokens = np.array(advancing, np.int64).reshape(-1, 2).T
        values = self.engine.log_probs(step, rows, tokens)
        joined = zip(
            [*rows.tolist(), *range(len(of_each.tokens))],
            [*tokens.tolist(), *of_each.tokens[:, 0].tolist()],
            [*values.tolist(), *of_each.log_probs[:, 0].tolist()],
            strict=True,
        )
        log_probs: dict[int, dict[tuple[int, int], float]] = {slot: {} for slot in phrases}
        for row, token, value in joined:
            if row // size in log_probs:
                log_probs[row // size][row % size, token] = value
        for slot, hypotheses in phrases.items():
            found, scores = log_probs[slot], self._scores[slot]
            parts = (best.parents[slot], best.tokens[slot], best.log_probs[slot])
            for parent, token, value in zip(*(part.tolist() for part in parts), strict=True):
                found[parent, token] = value
            candidates = [
                Continuation((scores[k] + np.float32(value)).item(), k, token)
                for (k, token), value in found.items()
            ]
            chosen = chosen_from_banks(
                candidates, hypotheses[0][0], [each for _, each in hypotheses], size, 2 * size
            )
            best.scores[slot], best.parents[slot], best.tokens[slot] = zip(*chosen, strict=True)
            best.log_probs[slot] = [found.get(pair[1:], -np.inf) for pair in chosen]

    def _diverse(self, step: Step) -> Best:
        """Return the continuations of groups, chosen one after the other.

        Diverse beam search (Vijayakumar et al. 2018) with Hamming diversity: a group ranks tokens
        by their log-probability minus `diversity` times the number of hypotheses of earlier groups
        that continue with the same token at this step. Scores are without that penalty;
        continuations beyond the W best that end, or do not end, have -inf.
        """
        groups, width = self.options.groups, self.width
        most = width * self.engine.vocabulary_size
        count = min(most, 2 * width + width * (self.options.size - width))  # penalties demote these
        all_groups = self.engine.best(step, self._scores, count)
        before = self._scores.reshape(-1, groups, width)
        taken = np.full((len(before), 0), -1)  # tokens of earlier groups
        chosen = []
        for group in range(groups):
            best = Best(*(part[group::groups] for part in all_groups))
            same = (best.tokens[:, :, None] == taken[:, None]).sum(axis=2, dtype=np.float32)
            ranks = best.log_probs - np.float32(self.options.diversity) * same
            ranks += chosen_by(best.parents, before[:, group])[0]
            order = descending(ranks)[:, : 2 * width]
            ranks, *parts = chosen_by(order, ranks, *best)
            best = Best(*parts)
            ends = best.tokens == EOS_ID
            place = np.arange(order.shape[1])
            usable = np.where(ends, place < width, np.cumsum(~ends, axis=1) <= width)
            scores = np.where(usable & ~np.isneginf(ranks), best.scores, np.float32(-np.inf))
            continuing = ~ends & ~np.isneginf(scores)
            taken = np.concatenate([taken, np.where(continuing, best.tokens, -1)], axis=1)
            chosen.append(best._replace(scores=scores))
        stacked = (np.stack(parts, axis=1) for parts in zip(*chosen, strict=True))
        return Best(*(part.reshape(-1, part.shape[2]) for part in stacked))

    def _add_to_pool(self, groups: Array, best: Best, ends: Array, norms: Array) -> None:
        """Move those of the W best candidates that end to the pool, with their final score."""
        width = self.width
        parents = best.parents[groups, :width]
        scores = np.where(ends[groups, :width], best.scores[groups, :width], np.float32(-np.inf))
        scores = scores / norms[groups, None]
        of_slot = parents + groups[:, None] % self.options.groups * width
        if self._coverage is not None:
            slots = groups // self.options.groups
            coverage = self._coverage[slots[:, None] * self.options.size + of_slot]
            lengths = np.broadcast_to(self.slots.sources[slots][:, None], parents.shape)
            scores = scores + coverage_penalty(coverage, lengths, self.options.coverage_penalty)
        new = scores, np.full(parents.shape, self.trail.end), of_slot, best.log_probs[groups, :width]
        old = self._pool, self._pool_steps, self._pool_parents, self._pool_log_probs
        joined = [np.concatenate([a[groups], b], axis=1) for a, b in zip(old, new, strict=True)]
        order = descending(joined[0])[:, :width]
        for pool, part in zip(old, chosen_by(order, *joined), strict=True):
            pool[groups] = part

    def _extended(self, best: Best, ends: Array, ended: Array) -> tuple[Array, ...]:
        """Return scores, parents, tokens and log-probabilities of the W best that do not end."""
        parts = best.scores, best.parents, best.tokens, best.log_probs
        chosen = tuple(part[:, : self.width].copy() for part in parts)
        groups = ended if self.options.groups == 1 else np.arange(len(ends))
        if len(groups):
            scores = np.where(ends[groups], np.float32(-np.inf), best.scores[groups])
            order = descending(scores)[:, : self.width]
            reordered = chosen_by(order, scores, *(part[groups] for part in parts[1:]))
            for into, part in zip(chosen, reordered, strict=True):
                into[groups] = part
        return chosen

    def _offsets(self) -> Array:
        """Return the first hypothesis, within its slot, of each group: [B G, 1]."""
        return (np.arange(len(self._scores)) % self.options.groups * self.width)[:, None]

    def hypotheses(self, slots: Sequence[int]) -> list[list[Hypothesis]]:
        size = self.options.size
        of_slots = np.array(slots)
        groups = spread(of_slots, self.options.groups)
        pool = self._pool, self._pool_steps, self._pool_parents, self._pool_log_probs
        parts = [part[groups].reshape(-1, size) for part in pool]
        order = descending(parts[0])[:, : self.options.returned or size]
        scores, steps, parents, log_probs = chosen_by(order, *parts)
        lengths = steps - self.slots.starts[of_slots][:, None]  # without end-of-sentence
        longest = int(np.where(np.isneginf(scores), 0, lengths).max())
        traced = self.trail.trace(of_slots.repeat(order.shape[1]), parents.ravel(), steps.ravel(), longest)
        ended = np.stack([scores, log_probs], axis=-1).tolist(), lengths.tolist()
        found, number = [], 0  # of a traced hypothesis
        for slot, values, counts in zip(slots, *ended, strict=True):
            found.append(list[Hypothesis]())
            for (score, log_prob), length in zip(values, counts, strict=True):
                if score > -math.inf:
                    ids = [*traced.tokens[number][longest - length :], EOS_ID]
                    own: tuple[float, ...] = ()
                    if self.options.return_scores:
                        own = (*traced.log_probs[number][longest - length :], log_prob)
                    rows = traced.hypotheses[number, longest - length :]
                    start, width = self.slots.starts[slot], self.slots.sources[slot]
                    attention = self.trail.attention(slot, rows, start, width)
                    found[-1].append(Hypothesis(ids, score, attention, own))
                number += 1
        return found


def descending(values: Array) -> Array:
    """Return the order of values [..., M] from the largest, nan first, to the smallest; stable."""
    return np.argsort(-values, axis=-1, kind="stable")


def chosen_by(order: Array, *parts: Array) -> list[Array]:
    """Return the columns `order` [R, M] of each row of parts [R, *], as `np.take_along_axis`."""
    places = order + (np.arange(len(order)) * parts[0].shape[1])[:, None]
    return [part.reshape(-1)[places] for part in parts]


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
